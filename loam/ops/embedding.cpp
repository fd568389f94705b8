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

Var embedding(const Context& ctx, const Tensor& ids, const ParamRef& table) {
  const Tensor weight = table.value();
  LOAM_CHECK(ids && ids.dtype() == DType::i32 && ids.is_contiguous(), "embedding: ids must be contiguous i32");
  check_float(weight, "embedding", "table");
  const auto [V, C] = weight.dims<2>();
  for (int32_t id : ids.span<int32_t>()) {
    LOAM_CHECK(id >= 0 && id < V, "embedding: id {} is outside [0, {})", id, V);
  }
  Shape shape = ids.shape();
  shape.push_back(C);
  Var out(ctx.empty(shape, weight.dtype()));
  const Tensor flat = ids.reshape({ids.numel()});
  ctx.kernels->embedding_fwd(ctx, {flat, weight, fold(out.value, 1, "embedding")});

  EmbeddingNode node;
  node.ids = flat;
  record(ctx, std::move(node), {}, {&out}, {table});
  return out;
}

}  // namespace loam::ops
