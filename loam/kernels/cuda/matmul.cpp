// Matrix products by cuBLASLt. It counts by columns: a row-major matrix is to it the transpose of a column-major one of
// the same memory, so that it is asked for c^T [N,M] = op(b)^T op(a)^T, and a bias along a row is one along its
// columns.
#include "loam/kernels/cuda/matmul.h"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <mutex>
#include <optional>

#include "loam/kernels/cuda/handles.h"
#include "loam/kernels/cuda/register.h"
#include "loam/tensor/cuda/cuda.h"

namespace loam::cuda {
namespace {

void check_lt(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(status == CUBLAS_STATUS_ALLOC_FAILED ? ErrorCode::kOutOfMemory : ErrorCode::kUnavailable,
       "matmul: cuBLASLt: {}: {}", what, cublasLtGetStatusString(status));
}

// f32 is multiplied as f32, not as TF32.
constexpr cublasComputeType_t kCompute = CUBLAS_COMPUTE_32F;

// Sums of parts of K are added in f32 by a step of their own: always in one order, and c is rounded once.
constexpr uint32_t kReductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
constexpr uint64_t kMostWorkspace = uint64_t{32} << 20;

// What cuBLASLt is asked to do: an algorithm and a description of the operands, without their places.
struct Plan {
  cublasLtMatmulDescOpaque_t op{};
  cublasLtMatrixLayoutOpaque_t a{}, b{}, c{};
  cublasLtMatmulAlgo_t algorithm{};
  int64_t workspace = 0;  // bytes
};

// Everything that a plan is made for.
using Key = std::array<int64_t, 9>;

cudaDataType_t type_of(DType dtype) {
  return dtype == DType::bf16 ? CUDA_R_16BF : dtype == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}

// The power of two, at most 16, that an address is a multiple of: no access is wider.
uint32_t alignment_of(const void* data) {
  return 1u << std::min(4, std::countr_zero(reinterpret_cast<uintptr_t>(data)));
}

// The distance of rows; that of a single row, which is never used, as that of a contiguous matrix.
int64_t row_stride(const View& v) { return v.dim(0) > 1 ? v.stride(0) : std::max<int64_t>(v.dim(1), 1); }

Key make_key(const MatmulArgs& args) {
  const int64_t types = static_cast<int64_t>(args.a.dtype) + 16 * static_cast<int64_t>(args.c.dtype) +
                        256 * (args.bias ? 1 + static_cast<int64_t>(args.bias.dtype) : 0);
  const int64_t flags = args.transpose_a + 2 * args.transpose_b + 4 * args.accumulate;
  const int64_t alignments =
      alignment_of(args.a.data) + 32 * alignment_of(args.b.data) + 1024 * alignment_of(args.c.data);
  return {args.c.dim(0),
          args.c.dim(1),
          args.a.dim(args.transpose_a ? 0 : 1),
          row_stride(args.a),
          row_stride(args.b),
          row_stride(args.c),
          types,
          flags,
          alignments};
}

template <class T>
void set(cublasLtMatmulDescOpaque_t& op, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check_lt(cublasLtMatmulDescSetAttribute(&op, attribute, &value, sizeof(value)), "an attribute of a product");
}
template <class T>
void set(cublasLtMatmulPreferenceOpaque_t& op, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  check_lt(cublasLtMatmulPreferenceSetAttribute(&op, attribute, &value, sizeof(value)), "an attribute of a choice");
}

void describe(cublasLtMatrixLayoutOpaque_t& layout, const View& v) {
  check_lt(cublasLtMatrixLayoutInit(&layout, type_of(v.dtype), static_cast<uint64_t>(v.dim(1)),
                                    static_cast<uint64_t>(v.dim(0)), row_stride(v)),
           "the layout of a matrix");
}

// None if cuBLASLt has no algorithm.
std::optional<Plan> make_plan(cublasLtHandle_t handle, const MatmulArgs& args) {
  for (const View* v : {&args.a, &args.b, &args.c}) {
    if (row_stride(*v) < v->dim(1)) return std::nullopt;  // rows that overlap
  }
  Plan plan;
  check_lt(cublasLtMatmulDescInit(&plan.op, kCompute, CUDA_R_32F), "a product");
  set(plan.op, CUBLASLT_MATMUL_DESC_TRANSA, args.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(plan.op, CUBLASLT_MATMUL_DESC_TRANSB, args.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (args.bias) {
    set(plan.op, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(plan.op, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(type_of(args.bias.dtype)));
    set(plan.op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias.data);
  }
  describe(plan.a, args.b);
  describe(plan.b, args.a);
  describe(plan.c, args.c);

  cublasLtMatmulPreferenceOpaque_t preference{};
  check_lt(cublasLtMatmulPreferenceInit(&preference), "a choice");
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMostWorkspace);
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kReductions);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(args.b.data));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(args.a.data));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(args.c.data));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(args.c.data));
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, &plan.op, &plan.a, &plan.b, &plan.c, &plan.c,
                                                               &preference, 1, &best, &found);
  if (status != CUBLAS_STATUS_SUCCESS || found == 0 || best.state != CUBLAS_STATUS_SUCCESS) return std::nullopt;
  plan.algorithm = best.algo;
  plan.workspace = static_cast<int64_t>(best.workspaceSize);
  return plan;
}

}  // namespace

struct MatmulCache::State {
  cublasLtHandle_t handle = nullptr;
  std::mutex mutex;
  std::map<Key, std::optional<Plan>> plans;
};

MatmulCache::MatmulCache() : state_(std::make_unique<State>()) {
  check_lt(cublasLtCreate(&state_->handle), "cublasLtCreate");
}
MatmulCache::~MatmulCache() { cublasLtDestroy(state_->handle); }

namespace {

// Shapes of a run are few; a program that meets ever new ones (prefill of any length) must not keep them all.
std::optional<Plan> find_plan(MatmulCache::State& state, const MatmulArgs& args) {
  constexpr size_t kMostPlans = 1024;
  const Key key = make_key(args);
  const std::lock_guard lock(state.mutex);
  if (const auto found = state.plans.find(key); found != state.plans.end()) return found->second;
  if (state.plans.size() >= kMostPlans) state.plans.clear();
  return state.plans.emplace(key, make_plan(state.handle, args)).first->second;
}

// Whether cuBLASLt adds the bias before it rounds: its algorithms for other shapes than these round a c of 16 bits
// twice.
bool adds_bias_well(const MatmulArgs& args) {
  if (args.bias.stride(0) != 1 || alignment_of(args.bias.data) < 16) return false;
  if (args.c.dtype == DType::f32) return true;
  return !args.accumulate && args.c.dim(0) >= 64 && args.c.dim(1) % 16 == 0 &&
         args.a.dim(args.transpose_a ? 0 : 1) % 16 == 0;
}

// False, and nothing was done, if cuBLASLt has no algorithm.
bool lt_matmul(const ExecContext& ctx, const MatmulArgs& args) {
  if (args.bias && !adds_bias_well(args)) return false;
  MatmulCache::State& state = handles_of(ctx).matmul().state();
  std::optional<Plan> plan = find_plan(state, args);
  if (!plan) return false;
  if (args.bias) set(plan->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias.data);
  Tensor workspace;
  if (plan->workspace > 0) workspace = ctx.empty({plan->workspace}, DType::u8, MemoryKind::workspace);
  if (ctx.arena->sparse()) return true;
  const float beta = args.accumulate ? 1 : 0;
  const cublasStatus_t status = cublasLtMatmul(state.handle, &plan->op, &args.alpha, args.b.data, &plan->a, args.a.data,
                                               &plan->b, &beta, args.c.data, &plan->c, args.c.data, &plan->c,
                                               &plan->algorithm, workspace ? workspace.data<uint8_t>() : nullptr,
                                               static_cast<size_t>(plan->workspace), stream_of(ctx.stream));
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return false;
  check_lt(status, "cublasLtMatmul");
  return true;
}

// Rows [begin, begin + rows) of the product.
MatmulArgs rows_of(const MatmulArgs& args, int64_t begin, int64_t rows) {
  MatmulArgs part = args;
  const int along = args.transpose_a ? 1 : 0;
  part.a.data = static_cast<std::byte*>(args.a.data) + begin * args.a.stride(along) * dtype_size(args.a.dtype);
  part.a.shape[along] = rows;
  part.c.data = static_cast<std::byte*>(args.c.data) + begin * args.c.stride(0) * dtype_size(args.c.dtype);
  part.c.shape[0] = rows;
  return part;
}

// Without a bias.
void product(const ExecContext& ctx, const MatmulArgs& args) {
  if (!lt_matmul(ctx, args)) tiled_matmul(ctx, args);
}

// A bias that cuBLASLt does not take is added afterwards: to a c of f32 where it lies, else to sums in f32, some rows
// at a time.
void product_then_bias(const ExecContext& ctx, const MatmulArgs& args) {
  constexpr int64_t kMostSums = int64_t{32} << 20, kRowUnit = 128;
  const auto [m, n] = args.c.dims<2>();
  MatmulArgs sum = args, finish = args;
  sum.bias = {};
  if (args.c.dtype == DType::f32) {
    finish.accumulate = false;
    product(ctx, sum);
    return finish_matmul(ctx, args.c, finish);
  }
  sum.accumulate = false;
  const int64_t each = std::min(m, std::max(kRowUnit, kMostSums / n / kRowUnit * kRowUnit));
  const Tensor sums = ctx.empty({each, n}, DType::f32, MemoryKind::workspace);
  for (int64_t begin = 0; begin < m; begin += each) {
    const int64_t rows = std::min(each, m - begin);
    MatmulArgs part = rows_of(sum, begin, rows);
    part.c = sums.narrow(0, 0, rows);
    product(ctx, part);
    finish_matmul(ctx, part.c, rows_of(finish, begin, rows));
  }
}

void matmul(const ExecContext& ctx, const MatmulArgs& args) {
  if (args.c.numel() == 0) return;
  const bool empty = args.a.dim(args.transpose_a ? 0 : 1) == 0;
  if (ctx.numerics == Numerics::exact || empty) return tiled_matmul(ctx, args);
  MatmulArgs given = args;
  Tensor bias;
  if (args.bias && args.bias.dtype != args.c.dtype && args.c.dtype != DType::f32 && adds_bias_well(args)) {
    bias = ctx.empty(args.bias.shape, args.c.dtype, MemoryKind::workspace);  // the only type that it takes there
    if (!ctx.arena->sparse()) ctx.kernels->copy(ctx, {.in = args.bias, .out = bias});
    given.bias = bias;
  }
  if (lt_matmul(ctx, given)) return;
  args.bias ? product_then_bias(ctx, args) : tiled_matmul(ctx, args);
}

}  // namespace

void register_matmul_kernels(KernelTable& table) { table.matmul.function = matmul; }

}  // namespace loam::cuda
