// One declaration of a case, all the checks of an op.
//
// check_op draws the inputs, runs the op in f32, bf16 and f16, and compares with a reference in double:
//   values and gradients of every input and parameter; gradients are compared with central differences of the
//   reference; the same when everything is used twice (accumulation), with 1 and 2 threads, from strided inputs, under
//   recompute(), with the two halves of backward apart; without a tape: the same bits, no nodes; inputs keep their
//   bits; guards round every block keep theirs, and fresh memory holds NaN; row-wise ops: NaN or infinity in one row
//   changes no other row.
// Tolerances are c * eps(dtype), relative in norm.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "loam/autograd/tape.h"
#include "loam/kernels/exec_context.h"

namespace loam::testing {

using Values = std::vector<double>;

// An input or a parameter, drawn from a normal distribution. Vectors among the parameters stay f32 in every model.
struct Operand {
  Shape shape;
  double scale = 1;
  double mean = 0;
};

struct OpCase {
  std::string name;
  std::vector<Operand> inputs;
  std::vector<Operand> params;
  // The op: its results in order. Results that are not on the tape are compared, not differentiated.
  std::function<std::vector<Var>(const Context& ctx, std::span<const Var> inputs, std::span<const ParamRef> params)> op;
  // The same in double, row-major.
  std::function<std::vector<Values>(std::span<const Values> inputs, std::span<const Values> params)> reference;
  double c = 4;
  bool narrow = true;          // also in bf16 and f16
  bool strided = true;         // the inputs may be slices of a wider last axis
  bool row_wise = false;       // row n of every result depends only on row n of the inputs
  bool unit_gradient = false;  // the result must reach the root with factor 1
};

void check_op(const OpCase& op_case);
inline void check_ops(std::span<const OpCase> cases) {
  for (const OpCase& c : cases) check_op(c);
}
// With LOAM_BENCH in the environment: prints the time of forward and of backward.
void bench_op(const OpCase& op_case);

// Memory with guards, and a context on it. CUDA tests will ask for another device here.
ExecResources guarded_resources(int threads = 2);

// The elements of a float or i32 tensor of any strides, row-major.
Values values_of(const Tensor& t);
Tensor tensor_of(const ExecContext& ctx, const Shape& shape, DType dtype, std::span<const double> values);
Values random_values(int64_t count, uint64_t site, double scale = 1, double mean = 0);

// |got - want| / |want| in the 2-norm; equal infinities count as equal.
double relative_error(std::span<const double> got, std::span<const double> want);
double dtype_eps(DType dtype);  // spacing of the numbers at 1

}  // namespace loam::testing
