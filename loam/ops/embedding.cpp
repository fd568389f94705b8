#include "loam/ops/embedding.h"

#include "loam/ops/op.h"

namespace loam::ops {
namespace {

struct EmbeddingNode final : Node {
  Tensor ids;

  const char* name() const override { return "embedding"; }
  void backward_input(const Context&, BackwardScope&) override {}
  void backward_weight(const Context& ctx, BackwardScope& scope) override {
    const GradTarget d_table = scope.param_grad(0);
    ctx.kernels->embedding_bwd(ctx, {ids, fold(scope.output_grad(0), 1, name()), d_table.view, d_table.accumulate});
  }
  void visit_saved(const SavedVisitor& visit) const override { visit("ids", ids); }
};

}  // namespace

Tensor table_rows(const Context& ctx, const Tensor& ids, const Tensor& table) {
  LOAM_CHECK(ids && ids.dtype() == DType::i32 && ids.is_contiguous(), "embedding: ids must be contiguous i32");
  check_float(table, "embedding", "table");
  const auto [V, C] = table.dims<2>();
  if (ids.device().kind == DeviceKind::cpu) {  // ids that lie on a GPU were looked at before they went there
    for (int32_t id : ids.span<int32_t>()) {
      LOAM_CHECK(id >= 0 && id < V, "embedding: id {} is outside [0, {})", id, V);
    }
  }
  Shape shape = ids.shape();
  shape.push_back(C);
  const Tensor out = ctx.empty(shape, table.dtype());
  ctx.kernels->embedding_fwd(ctx, {ids.reshape({ids.numel()}), table, fold(out, 1, "embedding")});
  return out;
}

Var embedding(const Context& ctx, const Tensor& ids, const ParamRef& table) {
  Var out(table_rows(ctx, ids, table.value()));
  EmbeddingNode node;
  node.ids = ids.reshape({ids.numel()});
  record(ctx, std::move(node), {}, {&out}, {table});
  return out;
}

}  // namespace loam::ops
