#include "loam/kernels/cpu/matmul_dnnl.h"

#ifdef LOAM_STD_THREADS  // oneDNN runs on OpenMP, which ThreadSanitizer does not understand

namespace loam::cpu {
bool dnnl_has_bf16() { return false; }
bool dnnl_matmul(const ExecContext&, const MatmulArgs&) { return false; }
}  // namespace loam::cpu

#else

#include <omp.h>

#include <array>
#include <bit>
#include <map>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <unordered_map>

namespace loam::cpu {
namespace {

using Desc = dnnl::memory::desc;

dnnl::memory::data_type dnnl_type(DType dtype) {
  return dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

const dnnl::engine& engine() {
  static const dnnl::engine cpu_engine(dnnl::engine::kind::cpu, 0);
  return cpu_engine;
}

// A row-major matrix of this row stride, read as its transpose where asked.
Desc matrix_desc(int64_t rows, int64_t cols, DType dtype, int64_t stride, bool transpose) {
  return {{rows, cols}, dnnl_type(dtype), transpose ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1}};
}

// The number of threads that OpenMP gives to loops started from this thread, for the lifetime of the object.
class OpenMpThreads {
 public:
  explicit OpenMpThreads(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  ~OpenMpThreads() { omp_set_num_threads(before_); }
  OpenMpThreads(const OpenMpThreads&) = delete;
  OpenMpThreads& operator=(const OpenMpThreads&) = delete;

 private:
  int before_;
};

struct Plan {
  dnnl::matmul::primitive_desc desc;
  dnnl::matmul primitive;
};

// Everything that a primitive is made for. alpha is part of it by its bits.
using Key = std::array<int64_t, 12>;

Key make_key(const ExecContext& ctx, const MatmulArgs& args) {
  const auto [m, n] = args.c.dims<2>();
  const int64_t types = static_cast<int64_t>(args.a.dtype) + 16 * static_cast<int64_t>(args.c.dtype) +
                        256 * (args.bias ? 1 + static_cast<int64_t>(args.bias.dtype) : 0);
  return {m,
          n,
          args.a.dim(args.transpose_a ? 0 : 1),
          args.a.stride(0),
          args.b.stride(0),
          args.c.stride(0),
          types,
          args.transpose_a,
          args.transpose_b,
          args.accumulate,
          std::bit_cast<int32_t>(args.alpha),
          ctx.threads};
}

std::optional<Plan> make_plan(const MatmulArgs& args) {
  const auto [m, n] = args.c.dims<2>();
  const int64_t k = args.a.dim(args.transpose_a ? 0 : 1);
  const Desc a = matrix_desc(m, k, args.a.dtype, args.a.stride(0), args.transpose_a);
  const Desc b = matrix_desc(k, n, args.b.dtype, args.b.stride(0), args.transpose_b);
  const Desc c = matrix_desc(m, n, args.c.dtype, args.c.stride(0), false);
  const Desc bias = args.bias ? Desc({1, n}, dnnl_type(args.bias.dtype), dnnl::memory::format_tag::ab) : Desc();
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (args.alpha != 1) attr.set_output_scales(0, {args.alpha});
  if (args.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attr.set_post_ops(sum);
  }
  try {
    const auto op = args.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
    const dnnl::matmul::primitive_desc desc(op, attr, engine());
    return Plan{desc, dnnl::matmul(desc)};
  } catch (const dnnl::error&) {
    return std::nullopt;
  }
}

// Shapes of a run are few; a program that meets ever new ones (prefill of any length) must not keep them all.
std::optional<Plan> find_plan(const ExecContext& ctx, const MatmulArgs& args) {
  constexpr size_t kMostPlans = 256;
  static std::mutex mutex;
  static std::map<Key, std::optional<Plan> > plans;
  const Key key = make_key(ctx, args);
  const std::lock_guard lock(mutex);
  if (const auto found = plans.find(key); found != plans.end()) return found->second;
  if (plans.size() >= kMostPlans) plans.clear();
  return plans.emplace(key, make_plan(args)).first->second;
}

}  // namespace

bool dnnl_has_bf16() {
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  return isa == dnnl::cpu_isa::avx512_core_bf16 || isa == dnnl::cpu_isa::avx512_core_amx;
}

bool dnnl_matmul(const ExecContext& ctx, const MatmulArgs& args) {
  // Output scales are applied to the bias too.
  if (args.bias && (args.alpha != 1 || args.bias.stride(0) != 1)) return false;
  const OpenMpThreads threads(ctx.threads);
  const std::optional<Plan> plan = find_plan(ctx, args);
  if (!plan) return false;
  const auto memory = [](const Desc& desc, void* data) { return dnnl::memory(desc, engine(), data); };
  const int64_t scratch = static_cast<int64_t>(plan->desc.scratchpad_desc().get_size());
  const Tensor scratchpad = ctx.empty({scratch}, DType::u8, MemoryKind::workspace);
  if (ctx.arena->sparse()) return true;
  std::unordered_map<int, dnnl::memory> operands = {
      {DNNL_ARG_SRC, memory(plan->desc.src_desc(), args.a.data)},
      {DNNL_ARG_WEIGHTS, memory(plan->desc.weights_desc(), args.b.data)},
      {DNNL_ARG_DST, memory(plan->desc.dst_desc(), args.c.data)},
      {DNNL_ARG_SCRATCHPAD, memory(plan->desc.scratchpad_desc(), scratchpad.data<uint8_t>())}};
  if (args.bias) operands.emplace(DNNL_ARG_BIAS, memory(plan->desc.bias_desc(), args.bias.data));
  try {
    dnnl::stream stream(engine());
    plan->primitive.execute(stream, operands);
    stream.wait();
  } catch (const dnnl::error& error) {
    const auto [m, n] = args.c.dims<2>();
    fail(error.status == dnnl_out_of_memory ? ErrorCode::kOutOfMemory : ErrorCode::kInternal,
         "matmul: oneDNN on a result of [{}, {}]: {}", m, n, error.what());
  }
  return true;
}

}  // namespace loam::cpu

#endif
