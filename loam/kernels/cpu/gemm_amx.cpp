#include "loam/kernels/cpu/gemm_amx.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "loam/base/parallel_for.h"
#include "loam/kernels/cpu/gemm.h"
#include "loam/kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "loam/kernels/cpu/gemm_amx.cpp"
#include <hwy/foreach_target.h>

#include "loam/kernels/cpu/gemm-inl.h"

#ifndef LOAM_KERNELS_CPU_GEMM_AMX_ONCE_
#define LOAM_KERNELS_CPU_GEMM_AMX_ONCE_
namespace loam::cpu {
namespace {

// A tile is 16 lines of 16 pairs of bf16. Of A, a line is a row and holds 32 steps of k; of B, a line is two steps of k
// for 16 columns. Any pairing of the 32 will do if both operands share it: k with k + 16, for then widened values are
// paired without a shuffle.
constexpr int64_t kLines = 16;
constexpr int64_t kDepth = 32;                    // of k in a tile
constexpr int64_t kTileFloats = 16 * kLines;      // packed pairs lie in memory as floats
constexpr int64_t kPanel = 2 * kLines;            // rows of A or columns of B that are packed, and multiplied, together
constexpr int64_t kPairFloats = 2 * kTileFloats;  // the two tiles of a panel at one depth, of one part

template <class T>
constexpr int kParts = 1;
template <>
constexpr int kParts<float> = 3;

// Panels to pack, panel_floats apart. The tiles of depth s of a panel lie at s * parts * kPairFloats, part by part, the
// two of a part together.
struct PanelArgs {
  Operand from;
  int64_t r, rows, k, depth;
  bool lines_of_k;  // as B's tiles, not A's
  float* to;
  int64_t panel_floats;
};

// What becomes of finished sums: c = alpha * sum (+ bias) (+ partial) (+ c).
struct SumsEnd {
  float alpha;
  const float* bias;     // of the first column, or null
  const float* partial;  // or null
  int64_t partial_stride;
  bool add;
};

// Sums of kPanel x kPanel, of which rows x columns belong to c.
struct FinishArgs {
  const float* sums;
  int64_t rows, columns;
  void* c;
  int64_t c_stride;
  SumsEnd end;
};

}  // namespace
}  // namespace loam::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace loam::cpu {
namespace HWY_NAMESPACE {
namespace {

using namespace loam::HWY_NAMESPACE;  // NOLINT: the vector helpers of this instruction set

using BitsTag = hn::RebindToSigned<FloatTag>;
using BitsVec = hn::Vec<BitsTag>;

// The bf16 nearest to x, as its bits in the upper half (ties go away from zero: no less exact here, and cheaper).
HWY_INLINE BitsVec upper_bf16(BitsTag d, FloatVec x) {
  return hn::And(hn::Add(hn::BitCast(d, x), hn::Set(d, 0x8000)), hn::Set(d, static_cast<int32_t>(0xFFFF0000u)));
}

// Packs one tile, or one for each part: line i pairs from[i * stride + j] with the element `mate` after it, j < 16.
// Keeps the largest magnitude, as bits.
template <class T>
HWY_INLINE void pack_lines(const T* from, int64_t stride, int64_t mate, float* to, BitsVec& largest) {
  const FloatTag d;
  const BitsTag di;
  const auto upper = hn::Set(di, static_cast<int32_t>(0xFFFF0000u)), magnitude = hn::Set(di, 0x7FFFFFFF);
  const hn::RebindToUnsigned<FloatTag> du;
  const auto put = [&](BitsVec low, BitsVec high, float* at) HWY_ATTR {
    const auto moved = hn::BitCast(di, hn::ShiftRight<16>(hn::BitCast(du, low)));
    hn::StoreU(hn::BitCast(d, hn::Or(moved, hn::And(high, upper))), d, at);
  };
  for (int64_t i = 0; i < kLines; ++i) {
    for (int64_t j = 0; j < 16; j += kLanes) {
      const T* at = from + i * stride + j;
      float* out = to + i * 16 + j;
      FloatVec low = load_f32(d, at), high = load_f32(d, at + mate);
      if constexpr (kParts<T> == 3) {
        const BitsVec sizes =
            hn::Max(hn::And(hn::BitCast(di, low), magnitude), hn::And(hn::BitCast(di, high), magnitude));
        largest = hn::Max(largest, sizes);
        for (int part = 0; part < 2; ++part, out += kPairFloats) {
          const BitsVec low_part = upper_bf16(di, low), high_part = upper_bf16(di, high);
          put(low_part, high_part, out);
          low = hn::Sub(low, hn::BitCast(d, low_part));
          high = hn::Sub(high, hn::BitCast(d, high_part));
        }
      }
      put(hn::BitCast(di, low), hn::BitCast(di, high), out);
    }
  }
}

// Packs rows < 16 or a depth < 32 of an operand by way of a whole block filled up with zeros.
template <class T>
HWY_NOINLINE void pack_edge(const T* from, int64_t r_stride, int64_t k_stride, int64_t rows, int64_t depth, float* to,
                            BitsVec& largest) {
  T block[kLines * kDepth] = {};
  const bool along_k = k_stride == 1;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < depth; ++k) {
      block[along_k ? r * kDepth + k : k * kLines + r] = from[r * r_stride + k * k_stride];
    }
  }
  const int64_t stride = along_k ? kDepth : kLines;
  pack_lines(block, stride, along_k ? 16 : 16 * stride, to, largest);
}

// Turns the lines of a tile into its columns.
HWY_INLINE void transpose_tile(const float* from, float* to) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t i = 0; i < kLines; ++i) {
    for (int64_t j = 0; j < 16; ++j) to[j * 16 + i] = from[i * 16 + j];
  }
#else
  const FloatTag d;
  for (int64_t i = 0; i < kLines; i += kLanes) {
    for (int64_t j = 0; j < 16; j += 4) {
      FloatVec columns[4];
      load_transposed<kLanes>(from + i * 16 + j, 16, columns);
      for (int64_t column = 0; column < 4; ++column) hn::StoreU(columns[column], d, to + (j + column) * 16 + i);
    }
  }
#endif
}

// Packs one tile of up to 16 rows and a depth of up to 32, or one for each part.
template <class T>
HWY_INLINE void pack_tile(const PanelArgs& args, int64_t r, int64_t k, BitsVec& largest) {
  const Operand& from = args.from;
  const bool along_k = from.k_stride == 1;
  const int64_t stride = along_k ? from.r_stride : from.k_stride, mate = along_k ? 16 : 16 * stride;
  const int64_t rows = std::min(kLines, args.rows - r), depth = std::min(kDepth, args.depth - k);
  const T* at = static_cast<const T*>(from.data) + (args.r + r) * from.r_stride + (args.k + k) * from.k_stride;
  float* tile = args.to + r / kPanel * args.panel_floats + k / kDepth * kParts<T> * kPairFloats +
                r % kPanel / kLines * kTileFloats;
  HWY_ALIGN float lines[kParts<T> * kPairFloats];
  float* packed = along_k == args.lines_of_k ? lines : tile;
  if (rows == kLines && depth == kDepth) {
    pack_lines(at, stride, mate, packed, largest);
  } else {
    pack_edge(at, from.r_stride, from.k_stride, rows, depth, packed, largest);
  }
  if (packed == tile) return;
  for (int part = 0; part < kParts<T>; ++part) {
    transpose_tile(lines + part * kPairFloats, tile + part * kPairFloats);
  }
}

// Packs panels, in the order of memory, and returns the largest magnitude as the bits of a float (0 for bf16).
template <class T>
int32_t pack_panels(const PanelArgs& args) {
  BitsVec largest = hn::Zero(BitsTag());
  if (args.from.k_stride == 1) {
    for (int64_t r = 0; r < args.rows; r += kLines) {
      for (int64_t k = 0; k < args.depth; k += kDepth) pack_tile<T>(args, r, k, largest);
    }
  } else {
    for (int64_t k = 0; k < args.depth; k += kDepth) {
      for (int64_t r = 0; r < args.rows; r += kLines) pack_tile<T>(args, r, k, largest);
    }
  }
  return hn::GetLane(hn::MaxOfLanes(BitsTag(), largest));
}
int32_t pack_panels_f32(const PanelArgs& args) { return pack_panels<float>(args); }
int32_t pack_panels_bf16(const PanelArgs& args) { return pack_panels<Bf16>(args); }

// Columns [j, j + Lanes(d)) of one row.
template <class T, class D>
HWY_INLINE void finish_lanes(D d, const float* sums, T* c, const float* partial, const SumsEnd& end, int64_t j) {
  auto value = hn::Mul(hn::Set(d, end.alpha), hn::LoadU(d, sums + j));
  if (partial) value = hn::Add(value, hn::LoadU(d, partial + j));
  if (end.bias) value = hn::Add(value, hn::LoadU(d, end.bias + j));
  if (end.add) value = hn::Add(value, load_f32(d, c + j));
  store_f32(d, value, c + j);
}

template <class T>
void finish(const FinishArgs& args) {
  const FloatTag d;
  const hn::CappedTag<float, 1> d1;
  for (int64_t i = 0; i < args.rows; ++i) {
    const float* sums = args.sums + i * kPanel;
    T* c = static_cast<T*>(args.c) + i * args.c_stride;
    const float* partial = args.end.partial ? args.end.partial + i * args.end.partial_stride : nullptr;
    int64_t j = 0;
    for (; j + kLanes <= args.columns; j += kLanes) finish_lanes(d, sums, c, partial, args.end, j);
    for (; j < args.columns; ++j) finish_lanes(d1, sums, c, partial, args.end, j);
  }
}
void finish_f32(const FinishArgs& args) { finish<float>(args); }
void finish_bf16(const FinishArgs& args) { finish<Bf16>(args); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace loam::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace loam::cpu {
namespace {

HWY_EXPORT(pack_panels_f32);
HWY_EXPORT(pack_panels_bf16);
HWY_EXPORT(finish_f32);
HWY_EXPORT(finish_bf16);

#ifdef __x86_64__
// The tile registers of this thread: c in 0 to 3, row by row, a in 4 and 5, b in 6 and 7. In assembler, so that nothing
// else here is compiled for a processor that has them.
class ProcessorTiles {
 public:
  ProcessorTiles() {
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    static_assert(sizeof config == 64);
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  ~ProcessorTiles() { asm volatile("tilerelease"); }
  ProcessorTiles(const ProcessorTiles&) = delete;
  ProcessorTiles& operator=(const ProcessorTiles&) = delete;

  template <int Tile>
  void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(Tile));
  }
  template <int Tile>
  void load(const float* from) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(int64_t{64}), "i"(Tile) : "memory");
  }
  template <int C, int A, int B>
  void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
  }
  template <int Tile>
  void store(float* to) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(4 * kPanel), "i"(Tile) : "memory");
  }
};
#endif

// The same in C++, after Intel's description of TDPBF16PS: even and odd steps of k are summed apart, by fused
// multiply-adds that flush small numbers. (A product of two bf16 is exact in f32, so that `a * b + c` is one rounding.)
class EmulatedTiles {
 public:
  template <int Tile>
  void zero() {
    std::memset(tiles_[Tile], 0, sizeof tiles_[Tile]);
  }
  template <int Tile>
  void load(const float* from) {
    std::memcpy(tiles_[Tile], from, sizeof tiles_[Tile]);
  }
  template <int C, int A, int B>
  void multiply() {
    for (int64_t m = 0; m < kLines; ++m) {
      float even[16] = {}, odd[16] = {};
      for (int64_t k = 0; k < 16; ++k) {
        const uint32_t a = bits(A, m, k);
        const float a_even = value(a << 16), a_odd = value(a & 0xFFFF0000u);
        for (int64_t n = 0; n < 16; ++n) {
          const uint32_t b = bits(B, k, n);
          even[n] = flush(a_even * value(b << 16) + even[n]);
          odd[n] = flush(a_odd * value(b & 0xFFFF0000u) + odd[n]);
        }
      }
      for (int64_t n = 0; n < 16; ++n) tiles_[C][m * 16 + n] = flush(tiles_[C][m * 16 + n] + flush(even[n] + odd[n]));
    }
  }
  template <int Tile>
  void store(float* to) {
    for (int64_t m = 0; m < kLines; ++m) std::memcpy(to + m * kPanel, tiles_[Tile] + m * 16, 64);
  }

 private:
  static float flush(float x) { return std::abs(x) < std::numeric_limits<float>::min() ? 0.0f : x; }
  static float value(uint32_t upper) { return flush(std::bit_cast<float>(upper)); }
  uint32_t bits(int tile, int64_t line, int64_t column) const {
    return std::bit_cast<uint32_t>(tiles_[tile][line * 16 + column]);
  }

  float tiles_[8][kTileFloats];
};

template <int kTiles, int kFirst, class Tiles>
inline void load_tiles(Tiles& tiles, const float* from) {
  tiles.template load<kFirst>(from);
  if constexpr (kTiles == 2) tiles.template load<kFirst + 1>(from + kTileFloats);
}

template <int kRows, int kColumns, class Tiles>
inline void multiply_tiles(Tiles& tiles) {
  tiles.template multiply<0, 4, 6>();
  if constexpr (kColumns == 2) tiles.template multiply<1, 4, 7>();
  if constexpr (kRows == 2) tiles.template multiply<2, 5, 6>();
  if constexpr (kRows == 2 && kColumns == 2) tiles.template multiply<3, 5, 7>();
}

// sums[kRows tiles, kColumns tiles] of two panels.
template <class T, int kRows, int kColumns, class Tiles>
void multiply_panels(Tiles& tiles, const float* a, const float* b, int64_t depths, float* sums) {
  tiles.template zero<0>();
  if constexpr (kColumns == 2) tiles.template zero<1>();
  if constexpr (kRows == 2) tiles.template zero<2>();
  if constexpr (kRows == 2 && kColumns == 2) tiles.template zero<3>();
  const auto load_a = [&](int part) { load_tiles<kRows, 4>(tiles, a + part * kPairFloats); };
  const auto load_b = [&](int part) { load_tiles<kColumns, 6>(tiles, b + part * kPairFloats); };
  const auto multiply = [&] { multiply_tiles<kRows, kColumns>(tiles); };
  for (; depths > 0; --depths, a += kParts<T> * kPairFloats, b += kParts<T> * kPairFloats) {
    if constexpr (kParts<T> == 1) {
      load_a(0), load_b(0), multiply();
    } else {  // one operand changes at a time
      load_a(2), load_b(0), multiply();
      load_a(1), multiply();
      load_b(1), multiply();
      load_a(0), multiply();
      load_b(2), multiply();
      load_b(0), multiply();
    }
  }
  tiles.template store<0>(sums);
  if constexpr (kColumns == 2) tiles.template store<1>(sums + kLines);
  if constexpr (kRows == 2) tiles.template store<2>(sums + kLines * kPanel);
  if constexpr (kRows == 2 && kColumns == 2) tiles.template store<3>(sums + kLines * kPanel + kLines);
}

// A result and what is done to it; c is f32 or bf16.
struct Target {
  void* c;
  int64_t stride, element;  // bytes of one
  SumsEnd end;
  void (*finish)(const FinishArgs&);
};

// One block of the product, its operands packed.
struct Block {
  int64_t rows, columns, depths;
  const float *a, *b;
  int64_t panel_floats;
  Target target;
};

// The sums of rows [i, i + kPanel) and columns [j, j + kPanel), and what is to become of them.
template <class T, class Tiles>
FinishArgs multiply_pair(const Block& block, Tiles& tiles, int64_t i, int64_t j, float* sums) {
  const int64_t rows = std::min(kPanel, block.rows - i), columns = std::min(kPanel, block.columns - j);
  const Target& target = block.target;
  char* c = static_cast<char*>(target.c) + (i * target.stride + j) * target.element;
  // A large c lies in memory: its lines come while the sums are made.
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t byte = 0; byte < kPanel * target.element; byte += 64) {
      __builtin_prefetch(c + r * target.stride * target.element + byte, 1);
    }
  }
  const bool tall = rows > kLines, wide = columns > kLines;
  const auto multiply = tall ? (wide ? multiply_panels<T, 2, 2, Tiles> : multiply_panels<T, 2, 1, Tiles>)
                             : (wide ? multiply_panels<T, 1, 2, Tiles> : multiply_panels<T, 1, 1, Tiles>);
  multiply(tiles, block.a + i / kPanel * block.panel_floats, block.b + j / kPanel * block.panel_floats, block.depths,
           sums);
  FinishArgs args{sums, rows, columns, c, target.stride, target.end};
  if (args.end.bias) args.end.bias += j;
  if (args.end.partial) args.end.partial += i * args.end.partial_stride + j;
  return args;
}

// Panels [i, i_end) of A pass by panels [j, j_end) of B, which stay in the L2 cache. A row of panels of c at a time
// touches few pages of memory.
struct Task {
  int64_t i, i_end, j, j_end;
};

template <class T, class Tiles>
void multiply_task(const Block& block, const Task& task) {
  Tiles tiles;
  alignas(64) float sums[2][kPanel * kPanel];
  FinishArgs before{};
  int turn = 0;
  for (int64_t i = task.i; i < task.i_end; ++i) {
    for (int64_t j = task.j; j < task.j_end; ++j, turn ^= 1) {
      const FinishArgs args = multiply_pair<T>(block, tiles, i * kPanel, j * kPanel, sums[turn]);
      // The tiles still multiply while the vector units finish the sums before.
      if (before.sums) block.target.finish(before);
      before = args;
    }
  }
  block.target.finish(before);
}

// Bounds of the panels of B in a task, and the tasks for each thread where there is as much to do.
constexpr int64_t kCachedFloats = 1 << 18;
constexpr int64_t kTasksPerThread = 3;

template <class T, class Tiles>
void multiply_block(int threads, const Block& block) {
  const int64_t down = ceil_div(block.rows, kPanel), across = ceil_div(block.columns, kPanel);
  const int64_t wanted = threads == 1 ? 1 : kTasksPerThread * threads;
  const int64_t most = std::max<int64_t>(1, kCachedFloats / block.panel_floats);
  const int64_t task_across = ceil_div(across, std::clamp(ceil_div(wanted, down), ceil_div(across, most), across));
  const int64_t tasks_across = ceil_div(across, task_across);
  const int64_t task_down = ceil_div(down, std::min(down, ceil_div(wanted, tasks_across)));
  const int64_t tasks_down = ceil_div(down, task_down);
  parallel_tasks(threads, tasks_across * tasks_down, [&](int64_t task, int) {
    const int64_t i = task % tasks_down * task_down, j = task / tasks_down * task_across;
    multiply_task<T, Tiles>(block, {i, std::min(i + task_down, down), j, std::min(j + task_across, across)});
  });
}

// The parts of an operand that are packed at a time.
constexpr int64_t kPackedFloats = 1 << 21;
constexpr int64_t kMostFloats = 768;  // of one row: a depth of 512 in f32, 1536 in bf16

constexpr int64_t kMostPartial = 2048;  // rows and columns of sums that wait in f32 for the rest of K

// Equal parts of n, none above `most`, in whole units.
int64_t equal_parts(int64_t n, int64_t most, int64_t unit) { return round_up(ceil_div(n, ceil_div(n, most)), unit); }

// The same part of every operand.
struct Part {
  int64_t i, rows, j, columns, k, depth;
};

View narrow(const View& view, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  View part = view;
  part.data = static_cast<char*>(view.data) + (row * view.stride(0) + column) * dtype_size(view.dtype);
  part.shape = {rows, columns};
  return part;
}

// That part by the plain product.
void plain_part(const ExecContext& ctx, const MatmulArgs& args, const Part& part) {
  const auto [i, rows, j, columns, k, depth] = part;
  MatmulArgs some = args;
  some.a = args.transpose_a ? narrow(args.a, k, depth, i, rows) : narrow(args.a, i, rows, k, depth);
  some.b = args.transpose_b ? narrow(args.b, j, columns, k, depth) : narrow(args.b, k, depth, j, columns);
  some.c = narrow(args.c, i, rows, j, columns);
  if (k > 0) some.bias = {}, some.accumulate = true;
  if (some.bias) {
    some.bias.data = static_cast<char*>(args.bias.data) + j * args.bias.stride(0) * dtype_size(args.bias.dtype);
    some.bias.shape = {columns};
  }
  gemm(ctx, some);
}

template <class T, class Tiles>
class AmxProduct {
 public:
  AmxProduct(const ExecContext& ctx, const MatmulArgs& args)
      : ctx_(ctx), args_(args), m_(args.c.dim(0)), n_(args.c.dim(1)), k_(args.a.dim(args.transpose_a ? 0 : 1)) {
    depth_ = equal_parts(k_, kMostFloats * 2 / kParts<T>, kDepth);
    row_floats_ = depth_ * kParts<T> / 2;
    const bool partial = depth_ < k_ && args.c.dtype == DType::bf16;
    const int64_t most = std::min(kPackedFloats / row_floats_ / kPanel * kPanel, partial ? kMostPartial : m_ + n_);
    rows_ = equal_parts(m_, most, kPanel), columns_ = equal_parts(n_, most, kPanel);
    const double work = static_cast<double>(m_) * static_cast<double>(n_) * static_cast<double>(k_);
    constexpr double kWorthSharing = 1 << 20;  // below this much work a second thread costs more than it brings
    threads_ = work > kWorthSharing ? ctx.threads : 1;
    packed_a_ = ctx.empty({rows_ * row_floats_}, DType::f32, MemoryKind::workspace);
    packed_b_ = ctx.empty({columns_ * row_floats_}, DType::f32, MemoryKind::workspace);
    bias_ = padded_bias(ctx, args.bias, n_);
    if (partial) partial_ = ctx.empty({rows_, columns_}, DType::f32, MemoryKind::workspace);
  }

  void run() {
    if (ctx_.arena->sparse()) return;
    const bool whole_k = depth_ >= k_;
    for (int64_t i = 0; i < m_; i += rows_) {
      for (int64_t j = 0; j < n_; j += columns_) {
        for (int64_t k = 0; k < k_; k += depth_) {
          const Part part{i, std::min(rows_, m_ - i), j, std::min(columns_, n_ - j), k, std::min(depth_, k_ - k)};
          pack(part, j == 0 || !whole_k);
          if (a_fits_ && b_fits_) {
            multiply(part);
          } else {
            plain_part(ctx_, args_, part);
          }
        }
      }
    }
  }

 private:
  void pack(const Part& part, bool pack_a) {
    const auto along = [](const View& v) { return Operand{v.data, v.stride(0), 1}; };
    const auto across = [](const View& v) { return Operand{v.data, 1, v.stride(0)}; };
    const Operand a = args_.transpose_a ? across(args_.a) : along(args_.a);
    const Operand b = args_.transpose_b ? along(args_.b) : across(args_.b);
    if (pack_a) a_fits_ = pack(a, part.i, part.rows, part, false, packed_a_);
    b_fits_ = pack(b, part.j, part.columns, part, true, packed_b_);
  }

  // False if a value rounds to infinity in bf16 or is not finite.
  bool pack(const Operand& from, int64_t first, int64_t rows, const Part& part, bool lines_of_k, const Tensor& to) {
    const auto pack = kParts<T> == 3 ? HWY_DYNAMIC_DISPATCH(pack_panels_f32) : HWY_DYNAMIC_DISPATCH(pack_panels_bf16);
    // Panels side by side share pages of memory; some tasks for each thread.
    const int64_t panels = ceil_div(rows, kPanel);
    const int64_t task_rows = kPanel * std::clamp<int64_t>(panels / (kTasksPerThread * threads_), 1, 8);
    std::atomic<bool> fits = true;
    parallel_tasks(threads_, ceil_div(rows, task_rows), [&](int64_t task, int) {
      const int64_t r = task * task_rows;
      constexpr int32_t kFirstToInfinity = 0x7F7F8000;  // of the bits that round so
      const int32_t largest = pack({from, first + r, std::min(task_rows, rows - r), part.k, part.depth, lines_of_k,
                                    to.data<float>() + r * row_floats_, kPanel * row_floats_});
      if (largest >= kFirstToInfinity) fits.store(false, std::memory_order_relaxed);
    });
    return fits;
  }

  // Blocks of k that are not the last of a bf16 result are summed in partial_.
  Target target(const Part& part) const {
    const bool first = part.k == 0, last = part.k + part.depth == k_;
    Target t{};
    t.end.alpha = args_.alpha;
    if (partial_ && !last) {
      t.c = partial_.template data<float>();
      t.stride = columns_, t.element = 4;
      t.end.add = !first;
      t.finish = HWY_DYNAMIC_DISPATCH(finish_f32);
      return t;
    }
    const bool is_f32 = args_.c.dtype == DType::f32;
    const View c = narrow(args_.c, part.i, part.rows, part.j, part.columns);
    t.c = c.data, t.stride = c.stride(0), t.element = dtype_size(c.dtype);
    if (partial_) t.end.partial = partial_.template data<float>(), t.end.partial_stride = columns_;
    if (bias_ && (partial_ || first)) t.end.bias = bias_.template data<float>() + part.j;
    t.end.add = args_.accumulate || (!partial_ && !first);
    t.finish = is_f32 ? HWY_DYNAMIC_DISPATCH(finish_f32) : HWY_DYNAMIC_DISPATCH(finish_bf16);
    return t;
  }

  void multiply(const Part& part) const {
    Block block{};
    block.rows = part.rows, block.columns = part.columns, block.depths = ceil_div(part.depth, kDepth);
    block.a = packed_a_.template data<float>(), block.b = packed_b_.template data<float>();
    block.panel_floats = kPanel * row_floats_;
    block.target = target(part);
    multiply_block<T, Tiles>(threads_, block);
  }

  const ExecContext& ctx_;
  const MatmulArgs& args_;
  int64_t m_, n_, k_;
  int64_t rows_, columns_, depth_;  // of a part
  int64_t row_floats_;              // of a packed row of A or column of B
  int threads_;
  Tensor packed_a_, packed_b_, bias_, partial_;
  bool a_fits_ = true, b_fits_ = true;  // no value of the packed operand rounds to infinity in bf16
};

template <class Tiles>
void amx_gemm_by(const ExecContext& ctx, const MatmulArgs& args) {
  if (args.a.dtype == DType::f32) {
    AmxProduct<float, Tiles>(ctx, args).run();
  } else {
    AmxProduct<Bf16, Tiles>(ctx, args).run();
  }
}

}  // namespace

bool has_amx() {
#ifdef __x86_64__
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned kBf16AndTiles = 1u << 22 | 1u << 24;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kBf16AndTiles) != kBf16AndTiles) return false;
    constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM: for all threads
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return has;
#else
  return false;
#endif
}

void amx_gemm(const ExecContext& ctx, const MatmulArgs& args, Tiles tiles) {
  if (tiles == Tiles::emulated) return amx_gemm_by<EmulatedTiles>(ctx, args);
#ifdef __x86_64__
  amx_gemm_by<ProcessorTiles>(ctx, args);
#else
  fail(ErrorCode::kUnavailable, "matmul: this processor has no tiles");
#endif
}

}  // namespace loam::cpu
#endif  // HWY_ONCE
