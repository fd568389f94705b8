#include "loam/ops/op.h"

namespace loam::ops {

void check_float(const Tensor& t, const char* op, const char* what) {
  LOAM_CHECK(static_cast<bool>(t), "{}: {} is empty", op, what);
  LOAM_CHECK(is_float(t.dtype()), "{}: {} {} is {}, not f32, bf16 or f16", op, what, t.shape().str(),
             dtype_name(t.dtype()));
}

void check_vector(const Tensor& t, int64_t size, const char* op, const char* what) {
  LOAM_CHECK(t.dtype() == DType::f32 && t.shape() == Shape({size}), "{}: {} is {} {}, not f32 [{}]", op, what,
             dtype_name(t.dtype()), t.shape().str(), size);
}

View fold(const View& view, int kept, const char* op) {
  LOAM_CHECK(view.rank() >= kept, "{}: shape {} has fewer than {} axes", op, view.shape.str(), kept);
  const int leading = view.rank() - kept;
  int64_t rows = 1, stride = 0;
  int64_t next = -1;  // the stride that the next axis outwards must have; any so far
  for (int axis = leading - 1; axis >= 0; --axis) {
    rows *= view.shape[axis];
    if (view.shape[axis] == 1) continue;
    if (next < 0) stride = view.strides[axis];
    LOAM_CHECK(next < 0 || view.strides[axis] == next,
               "{}: shape {} with strides {} has rows that are not evenly spaced", op, view.shape.str(),
               view.strides.str());
    next = view.strides[axis] * view.shape[axis];
  }
  View out = view;
  out.shape = {rows};
  out.strides = {stride};
  int64_t row = 1;
  for (int axis = leading; axis < view.rank(); ++axis) {
    out.shape.push_back(view.shape[axis]);
    out.strides.push_back(view.strides[axis]);
    row *= view.shape[axis];
  }
  if (next < 0) out.strides[0] = row;  // a single row
  return out;
}

View slice(View view, int64_t begin, int64_t length) {
  view.data = static_cast<std::byte*>(view.data) + begin * view.strides[0] * dtype_size(view.dtype);
  view.shape[0] = length;
  return view;
}

Shape with_last(Shape shape, int64_t size) {
  shape[-1] = size;
  return shape;
}

bool differentiates(const Context& ctx, std::initializer_list<const Var*> inputs,
                    std::initializer_list<ParamRef> params) {
  if (!ctx.tape) return false;
  for (const Var* input : inputs) {
    if (ctx.tape->wants_grad(*input)) return true;
  }
  for (const ParamRef& p : params) {
    if (p.trainable()) return true;
  }
  return false;
}

void sum_all(const ExecContext& ctx, const Tensor& x, const Tensor& out) {
  constexpr int64_t kColumns = 256;
  const int64_t n = x.numel(), body = n / kColumns;
  const Tensor flat = x.reshape({n}), to = out.reshape({1});
  const Tensor columns = ctx.empty({kColumns}, DType::f32, MemoryKind::workspace);
  ctx.kernels->sum_rows(ctx, {flat.narrow(0, 0, body * kColumns).reshape({body, kColumns}), columns});
  ctx.kernels->sum_rows(ctx, {columns.reshape({kColumns, 1}), to});
  const int64_t rest = n - body * kColumns;
  if (rest > 0) ctx.kernels->sum_rows(ctx, {flat.narrow(0, body * kColumns, rest).reshape({rest, 1}), to, true});
}

}  // namespace loam::ops
