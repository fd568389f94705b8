#include <limits>

#include "loam/base/parallel_for.h"
#include "loam/kernels/attention.h"
#include "loam/kernels/cpu/register.h"
#include "loam/kernels/cpu/simd.h"
#include "loam/kernels/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "loam/kernels/cpu/attention_bwd.cpp"
#include <hwy/foreach_target.h>

#include "loam/kernels/cpu/attention-inl.h"

#ifndef LOAM_KERNELS_CPU_ATTENTION_BWD_ONCE_
#define LOAM_KERNELS_CPU_ATTENTION_BWD_ONCE_
namespace loam::cpu {
namespace {
// Of one row, kept over all tiles: the keys it sees, its log-sum-exp, and out . d_out.
struct RowState {
  KeyRange range;
  float lse, out_dot;
};
// What one task makes of a head: of rows [row, row_end) and keys [key, key_end), in whole tiles.
struct BackwardPart {
  int64_t row, row_end, key, key_end;
  bool d_q, d_kv;
};
}  // namespace
}  // namespace loam::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace loam::cpu {
namespace HWY_NAMESPACE {
namespace {

// Floats that a thread needs: the sums of d_q for all rows of a head; a tile of keys and values, packed and plain, with
// their gradients; a tile of queries and d_out; probabilities and their gradients.
int64_t backward_workspace(int64_t width, int64_t rows) {
  const int64_t padded = padded_width(width);
  constexpr int64_t kStateFloats = sizeof(RowState) / sizeof(float);
  return rows * (padded + kStateFloats) + 2 * kTile * width + 5 * kTile * padded + 2 * kTile * kTile;
}

// One key/value head of one batch element, or a part of it: tiles of keys outside, tiles of rows inside. A gradient's
// sums run in the same order whatever the part.
template <class T>
class BackwardHead {
 public:
  BackwardHead(const ExecContext& ctx, const AttentionBwdArgs& args, int64_t b, int64_t kv, const BackwardPart& part,
               float* memory)
      : ctx_(ctx),
        args_(args),
        part_(part),
        shape_(attention_shape(args.q, args.k)),
        b_(b),
        kv_(kv),
        rows_(shape_.rows()),
        padded_(padded_width(shape_.D)) {
    const auto take = [&](int64_t floats) {
      float* start = memory;
      memory += floats;
      return start;
    };
    rows_state_ = reinterpret_cast<RowState*>(take(rows_ * static_cast<int64_t>(sizeof(RowState) / sizeof(float))));
    d_q_ = take(rows_ * padded_);
    packed_keys_ = take(kTile * shape_.D);
    packed_values_ = take(kTile * shape_.D);
    keys_ = take(kTile * padded_);
    d_k_ = take(kTile * padded_);
    d_v_ = take(kTile * padded_);
    queries_ = take(kTile * padded_);
    d_out_ = take(kTile * padded_);
    p_ = take(kTile * kTile);
    d_s_ = take(kTile * kTile);
  }

  void run() {
    prepare_rows();
    if (part_.d_q) std::fill(d_q_, d_q_ + rows_ * padded_, 0.0f);
    for (int64_t tile = part_.key; tile < part_.key_end; tile += kTile) visit_keys(tile);
    if (!part_.d_q) return;
    const HeadRows<T> d_q(args_.d_q, shape_, b_, kv_);
    for (int64_t r = part_.row; r < part_.row_end; ++r) {
      finish_row(d_q_ + r * padded_, shape_.D, 1.0f, args_.accumulate_q, d_q(r));
    }
  }

 private:
  void prepare_rows() {
    const HeadRows<const T> out(args_.out, shape_, b_, kv_), d_out(args_.d_out, shape_, b_, kv_);
    const View& lse = args_.lse;
    for (int64_t r = 0; r < rows_; ++r) {
      RowState& row = rows_state_[r];
      const int64_t h = kv_ * shape_.group() + r / shape_.T, t = r % shape_.T;
      row.range = visible_keys(shape_, args_.mask, b_, t);
      row.lse = lse.ptr<float>()[b_ * lse.stride(0) + h * lse.stride(1) + t * lse.stride(2)];
      row.out_dot = dot_rows(out(r), d_out(r), shape_.D);
    }
  }

  static float dot_rows(const T* a, const T* b, int64_t width) {
    const FloatTag d;
    FloatVec sum = hn::Zero(d);
    int64_t i = 0;
    for (; i + kLanes <= width; i += kLanes) sum = hn::MulAdd(load_f32(d, a + i), load_f32(d, b + i), sum);
    float total = hn::GetLane(hn::SumOfLanes(d, sum));
    for (; i < width; ++i) total += static_cast<float>(a[i]) * static_cast<float>(b[i]);
    return total;
  }

  KeyRange joined(int64_t row, int64_t rows) const {
    KeyRange ranges[kTile];
    for (int64_t r = 0; r < rows; ++r) ranges[r] = rows_state_[row + r].range;
    return join(ranges, rows);
  }

  T* at(const View& view, int64_t key) const {
    return static_cast<T*>(view.data) + b_ * view.stride(0) + key * view.stride(1) + kv_ * view.stride(2);
  }

  void visit_keys(int64_t tile) {
    const View &k = args_.k, &v = args_.v;
    const int64_t keys = std::min(kTile, shape_.S - tile);
    std::fill(d_k_, d_k_ + keys * padded_, 0.0f);
    std::fill(d_v_, d_v_ + keys * padded_, 0.0f);
    bool packed = false, finite = true;
    for (int64_t row = part_.row; row < part_.row_end; row += kTile) {
      const int64_t rows = std::min(kTile, part_.row_end - row);
      const KeyRange seen = clip(joined(row, rows), tile, keys);
      if (seen.empty()) continue;
      if (!packed) {
        packed = true;
        pack_keys(at(k, tile), k.stride(1), keys, shape_.D, packed_keys_);
        pack_keys(at(v, tile), v.stride(1), keys, shape_.D, packed_values_);
        for (int64_t j = 0; j < keys; ++j) {
          finite = copy_row<T>(at(k, tile + j), shape_.D, padded_, keys_ + j * padded_) && finite;
        }
      }
      visit_rows(row, rows, tile, keys, finite);
    }
    for (int64_t j = 0; part_.d_kv && j < keys; ++j) {
      finish_row(d_k_ + j * padded_, shape_.D, 1.0f, args_.accumulate_k, at(args_.d_k, tile + j));
      finish_row(d_v_ + j * padded_, shape_.D, 1.0f, args_.accumulate_v, at(args_.d_v, tile + j));
    }
  }

  void visit_rows(int64_t row, int64_t rows, int64_t tile, int64_t keys, bool finite) {
    const HeadRows<const T> q(args_.q, shape_, b_, kv_), d_out(args_.d_out, shape_, b_, kv_);
    bool rows_finite = true;
    for (int64_t r = 0; r < rows; ++r) {
      rows_finite = copy_row(q(row + r), shape_.D, padded_, queries_ + r * padded_) && rows_finite;
      rows_finite = copy_row(d_out(row + r), shape_.D, padded_, d_out_ + r * padded_) && rows_finite;
    }
    for (int64_t g = 0; g < rows; g += kMr) {
      const int64_t some = std::min(kMr, rows - g);
      seen_[g / kMr] = clip(joined(row + g, some), tile, keys);
      score_group(row + g, g, some, tile, keys);
      if (part_.d_q) add_d_q(row + g, g, some, tile, finite);
    }
    for (int64_t j = 0; part_.d_kv && j < keys; j += kMr)
      add_d_kv(row, rows, j, std::min(kMr, keys - j), tile, rows_finite);
  }

  // p and d_s of rows [g, g + rows) of the tile, 0 where a key is not seen.
  void score_group(int64_t row, int64_t g, int64_t rows, int64_t tile, int64_t keys) {
    const FloatTag d;
    const KeyRange seen = seen_[g / kMr];
    float *p = p_ + g * kTile, *d_s = d_s_ + g * kTile;
    std::fill(p, p + rows * kTile, 0.0f);
    if (!seen.empty()) {
      score_panels(rows, shape_.D, {queries_ + g * padded_, padded_}, packed_keys_, seen, score_factor(args_.logits),
                   p);
      score_panels(rows, shape_.D, {d_out_ + g * padded_, padded_}, packed_values_, seen, 1.0f, d_s);
    }
    const int64_t first = seen.begin / kNr * kNr, last = seen.empty() ? first : (seen.end + kNr - 1) / kNr * kNr;
    const bool plain = is_plain(args_.logits), capped = args_.logits.softcap > 0, drops = args_.dropout.probability > 0;
    HWY_ALIGN float cap_slope[kTile], kept[kTile];
    for (int64_t r = 0; r < rows; ++r, p += kTile, d_s += kTile) {
      const RowState& state = rows_state_[row + r];
      const KeyRange range = clip(state.range, tile, keys);
      const int64_t t = (row + r) % shape_.T, h = kv_ * shape_.group() + (row + r) / shape_.T;
      if (!plain) {
        finish_scores(args_.logits, slope_of(args_.logits, h), query_position(shape_, args_.mask, b_, t) - tile, first,
                      last, p, cap_slope);
      }
      if (drops) {
        std::fill(kept, kept + kTile, 1.0f);
        drop_weights(ctx_, args_.dropout, shape_, b_, h, t, tile, keys, kept);
      }
      const FloatVec lse = hn::Set(d, state.lse * kLog2e), dot = hn::Set(d, state.out_dot),
                     scale = hn::Set(d, args_.logits.scale);
      const auto differentiate = [&](auto special) HWY_ATTR __attribute__((always_inline)) {
        for (int64_t j = first; j < last; j += kLanes) {
          FloatVec pj = exp2_softmax(hn::Sub(hn::LoadU(d, p + j), lse)), dp = hn::LoadU(d, d_s + j);
          if (special && drops) dp = hn::Mul(dp, hn::LoadU(d, kept + j));
          FloatVec ds = hn::Mul(hn::Mul(pj, scale), hn::Sub(dp, dot));
          if (special && capped) ds = hn::Mul(ds, hn::LoadU(d, cap_slope + j));
          if (special && drops) pj = hn::Mul(pj, hn::LoadU(d, kept + j));
          hn::StoreU(pj, d, p + j);
          hn::StoreU(ds, d, d_s + j);
        }
      };
      drops || capped ? differentiate(std::true_type()) : differentiate(std::false_type());
      clear_outside(range, p);
      std::fill(d_s, d_s + first, 0.0f);
      std::fill(d_s + last, d_s + kTile, 0.0f);
      clear_outside(range, d_s);
    }
  }

  static void clear_outside(KeyRange range, float* row) {
    if (range.empty()) range = {kTile, kTile};
    std::fill(row, row + range.begin, 0.0f);
    std::fill(row + range.end, row + kTile, 0.0f);
  }

  bool sees(int64_t row, int64_t key) const {
    const KeyRange& range = rows_state_[row].range;
    return key >= range.begin && key < range.end;
  }

  void add_d_q(int64_t row, int64_t g, int64_t rows, int64_t tile, bool finite) {
    const KeyRange seen = seen_[g / kMr];
    if (seen.empty()) return;
    const TileOperand d_s{d_s_ + g * kTile + seen.begin, kTile}, k{keys_ + seen.begin * padded_, padded_};
    float* d_q = d_q_ + row * padded_;
    const int64_t depth = seen.end - seen.begin;
    if (finite) return add_product<Layout::rows>(rows, depth, d_s, k, d_q, padded_, 1);
    add_product_seen<Layout::rows>(rows, depth, d_s, k, d_q, padded_, 1,
                                   [&](int64_t r, int64_t i) { return sees(row + r, tile + seen.begin + i); });
  }

  // d_v += p^T d_out and d_k += d_s^T q for keys [j, j + count) of the tile, over the rows that may see one of them.
  void add_d_kv(int64_t row, int64_t rows, int64_t j, int64_t count, int64_t tile, bool finite) {
    int64_t begin = rows, end = 0;
    for (int64_t g = 0; g < rows; g += kMr) {
      const KeyRange seen = seen_[g / kMr];
      if (seen.empty() || seen.begin >= j + count || seen.end <= j) continue;
      begin = std::min(begin, g);
      end = std::min(rows, g + kMr);
    }
    if (begin >= end) return;
    const auto add = [&](const float* a, const float* b, float* c) {
      const TileOperand left{a + begin * kTile + j, kTile}, right{b + begin * padded_, padded_};
      float* to = c + j * padded_;
      if (finite) return add_product<Layout::columns>(count, end - begin, left, right, to, padded_, 1);
      add_product_seen<Layout::columns>(count, end - begin, left, right, to, padded_, 1,
                                        [&](int64_t key, int64_t r) { return sees(row + begin + r, tile + j + key); });
    };
    add(p_, d_out_, d_v_);
    add(d_s_, queries_, d_k_);
  }

  const ExecContext& ctx_;
  const AttentionBwdArgs& args_;
  const BackwardPart part_;
  const AttentionShape shape_;
  const int64_t b_, kv_, rows_, padded_;
  RowState* rows_state_;
  float *d_q_, *packed_keys_, *packed_values_, *keys_, *d_k_, *d_v_, *queries_, *d_out_, *p_, *d_s_;
  KeyRange seen_[kTile];  // of each group of kMr rows, clipped to the tile
};

void backward(const ExecContext& ctx, const AttentionBwdArgs& args, int64_t b, int64_t kv, const BackwardPart& part,
              float* memory) {
  visit_float(args.q.dtype, "attention_bwd",
              [&](auto type) { BackwardHead<decltype(type)>(ctx, args, b, kv, part, memory).run(); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace loam::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace loam {
namespace cpu {
namespace {
HWY_EXPORT(backward_workspace);
HWY_EXPORT(backward);

// Part `index` of a head that is cut by tiles: first each tile of keys with its d_k and d_v, then each tile of rows
// with its d_q.
BackwardPart tile_part(const AttentionShape& shape, int64_t key_tiles, int64_t index) {
  const int64_t rows = shape.rows(), begin = (index < key_tiles ? index : index - key_tiles) * kTile;
  if (index < key_tiles) return {0, rows, begin, std::min(begin + kTile, shape.S), false, true};
  return {begin, std::min(begin + kTile, rows), 0, shape.S, true, false};
}

// One task is one key/value head. With more threads than heads a head is cut by tiles: that computes the probabilities
// twice, seven products instead of five, and gives the same bits. Workspace: for each thread, f32 sums of d_q for the
// rows of one head, T x H/K x D, and tiles of a fixed size.
void attention_bwd(const ExecContext& ctx, const AttentionBwdArgs& args) {
  const AttentionShape shape = attention_shape(args.q, args.k);
  const int64_t heads = shape.B * shape.K;
  if (heads == 0) return;
  const int64_t key_tiles = (shape.S + kTile - 1) / kTile, row_tiles = (shape.rows() + kTile - 1) / kTile;
  const int64_t parts = 7 * heads <= 5 * ctx.threads ? std::max<int64_t>(1, key_tiles + row_tiles) : 1;
  const int threads = static_cast<int>(std::min<int64_t>(ctx.threads, heads * parts));
  const int64_t floats = HWY_DYNAMIC_DISPATCH(backward_workspace)(shape.D, shape.rows());
  const Tensor workspace = ctx.empty({threads, (floats + 15) / 16 * 16}, DType::f32, MemoryKind::workspace);
  if (ctx.arena->sparse()) return;
  parallel_tasks(threads, heads * parts, [&](int64_t task, int thread) {
    const int64_t head = task / parts;
    const BackwardPart part =
        parts == 1 ? BackwardPart{0, shape.rows(), 0, shape.S, true, true} : tile_part(shape, key_tiles, task % parts);
    HWY_DYNAMIC_DISPATCH(backward)
    (ctx, args, head / shape.K, head % shape.K, part, workspace.data<float>() + thread * workspace.dim(1));
  });
}

}  // namespace
}  // namespace cpu

void register_attention_bwd_kernels(KernelTable& table) { table.attention_bwd.function = cpu::attention_bwd; }

}  // namespace loam
#endif  // HWY_ONCE
