#include "tests/harness/cuda_mirror.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "loam/kernels/kernel_views.h"
#include "loam/tensor/device_memory.h"

namespace loam::testing {

bool on_cuda() {
  const char* device = std::getenv("LOAM_TEST_DEVICE");
  return device && std::string_view(device) == "cuda";
}

#ifndef LOAM_HAS_CUDA
ExecResources test_resources(int threads, Numerics numerics) {
  LOAM_CHECK(!on_cuda(), "tests: this build has no CUDA");
  return make_exec_resources({}, threads, numerics);
}
#else
namespace {

constexpr int64_t kGuard = 256;
constexpr uint8_t kMark = 0xA5;

// The host's memory that a call may touch, as intervals that do not overlap, and their places on the GPU. A place has
// the host's remainder modulo kGuard, so that alignment is that of the test.
class Mirror {
 public:
  explicit Mirror(Arena& arena) : arena_(arena) {}

  void add(const View& v, bool written) {
    if (v.numel() == 0) return add(v.data, 0, written);
    int64_t last = 0;
    for (int axis = 0; axis < v.rank(); ++axis) last += (v.dim(axis) - 1) * v.stride(axis);
    add(v.data, (last + 1) * dtype_size(v.dtype), written);
  }
  void add(void* data, int64_t bytes, bool written) {
    auto* begin = static_cast<uint8_t*>(data);
    spans_.push_back({begin, begin + bytes, written, {}, nullptr});
  }

  void upload() {
    std::sort(spans_.begin(), spans_.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
    std::vector<Span> joined;
    for (const Span& span : spans_) {
      if (!joined.empty() && span.begin < joined.back().end) {
        joined.back().end = std::max(joined.back().end, span.end);
        joined.back().written |= span.written;
      } else {
        joined.push_back(span);
      }
    }
    spans_ = std::move(joined);
    for (Span& span : spans_) {
      const auto shift = static_cast<int64_t>(reinterpret_cast<uintptr_t>(span.begin) % kGuard);
      span.memory = Tensor::empty(arena_, {shift + span.bytes() + 2 * kGuard}, DType::u8);
      span.device = span.memory.data<uint8_t>() + kGuard + shift;
      device_memory(DeviceKind::cuda).fill(span.memory.data<uint8_t>(), kMark, span.memory.bytes());
      if (span.bytes() > 0) device_memory(DeviceKind::cuda).copy(span.device, span.begin, span.bytes());
    }
  }

  template <class T>
  T* device(T* data) const {
    const auto* at = reinterpret_cast<const uint8_t*>(data);
    for (const Span& span : spans_) {
      if (at >= span.begin && (at < span.end || at == span.begin))
        return reinterpret_cast<T*>(span.device + (at - span.begin));
    }
    fail(ErrorCode::kInternal, "mirror: memory that was not carried over");
  }

  void download(const char* kernel) {
    for (Span& span : spans_) {
      std::vector<uint8_t> all(static_cast<size_t>(span.memory.bytes()));
      device_memory(DeviceKind::cuda).copy(all.data(), span.memory.data<uint8_t>(), span.memory.bytes());
      const auto head = all.begin() + (span.device - span.memory.data<uint8_t>());
      const auto marked = [](auto from, auto to) {
        return std::all_of(from, to, [](uint8_t byte) { return byte == kMark; });
      };
      EXPECT_TRUE(marked(all.begin(), head) && marked(head + span.bytes(), all.end()))
          << kernel << " wrote outside of its arguments";
      if (span.written && span.bytes() > 0) std::memcpy(span.begin, &*head, static_cast<size_t>(span.bytes()));
    }
  }

 private:
  struct Span {
    uint8_t *begin, *end;
    bool written;  // else it may be memory that must not be
    Tensor memory;
    uint8_t* device;
    int64_t bytes() const { return end - begin; }
  };
  Arena& arena_;
  std::vector<Span> spans_;
};

const ExecResources& gpu() {
  static const ExecResources resources = make_exec_resources({DeviceKind::cuda, 0});
  return resources;
}

template <auto kSlot, class Args>
void mirrored(const ExecContext& host, const Args& given) {
  Args args = given;
  ExecContext ctx = gpu().context;
  Mirror mirror(*ctx.arena);
  visit_views(args, [&](const View& v, Access access) {
    if (v) mirror.add(v, access != Access::read);
  });
  if constexpr (std::is_same_v<Args, SumSquaresArgs>) mirror.add(args.out, sizeof(double), true);
  if constexpr (std::is_same_v<Args, ClipArgs>) {
    for (const double* sum : {args.squares, args.losses}) {
      if (sum) mirror.add(const_cast<double*>(sum), sizeof(double), false);
    }
  }
  if (host.step) mirror.add(host.step, sizeof(StepState), true);
  mirror.upload();
  visit_views(args, [&](View& v, Access) {
    if (!v) return;
    v.data = mirror.device(static_cast<uint8_t*>(v.data));
    v.device = ctx.device;
  });
  if constexpr (std::is_same_v<Args, SumSquaresArgs>) args.out = mirror.device(args.out);
  if constexpr (std::is_same_v<Args, ClipArgs>) {
    args.squares = mirror.device(args.squares);
    if (args.losses) args.losses = mirror.device(args.losses);
  }
  ctx.first_row = host.first_row;
  if (host.step) ctx.step = mirror.device(host.step);
  ctx.numerics = host.numerics;
  ctx.tf32 = host.tf32;
  ctx.seed = host.seed;
  const auto& slot = ctx.kernels->*kSlot;
  slot(ctx, args);
  mirror.download(slot.name);
}

KernelTable make_table() {
  KernelTable table;
#define LOAM_KERNEL(name, Args) table.name.function = mirrored<&KernelTable::name, Args>;
#include "loam/kernels/kernels.def"
#undef LOAM_KERNEL
  return table;
}

}  // namespace

ExecResources test_resources(int threads, Numerics numerics) {
  ExecResources resources = make_exec_resources({}, threads, numerics);
  if (!on_cuda()) return resources;
  static const KernelTable table = make_table();
  resources.context.kernels = &table;
  return resources;
}
#endif

}  // namespace loam::testing
