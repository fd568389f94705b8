#include <cmath>
#include <limits>

#include "loam/base/parallel_for.h"
#include "loam/kernels/attention.h"
#include "loam/kernels/cpu/register.h"
#include "loam/kernels/cpu/simd.h"
#include "loam/kernels/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "loam/kernels/cpu/attention_fwd.cpp"
#include <hwy/foreach_target.h>

#include "loam/kernels/cpu/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace loam::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr float kLn2 = 0.693147180559945309f;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Floats that a thread needs: packed keys, values, queries, sums of the output, scores of kMr rows.
int64_t forward_workspace(int64_t width) {
  const int64_t padded = padded_width(width);
  return kTile * width + kTile * padded + kTile * width + kTile * padded + kMr * kTile;
}

// Takes the scores s[0:kTile] of one row, of which `range` is seen and `panels` was computed, into its running maximum
// and sum, and turns them into exp(s - maximum), 0 where not seen. Returns the factor by which earlier sums shrink.
HWY_INLINE float online_softmax(float* s, KeyRange range, KeyRange panels, float& maximum, float& sum) {
  const FloatTag d;
  std::fill(s + panels.begin, s + std::clamp(range.begin, panels.begin, panels.end), -kInfinity);
  std::fill(s + std::clamp(std::max(range.begin, range.end), panels.begin, panels.end), s + panels.end, -kInfinity);
  FloatVec most0 = hn::Set(d, maximum), most1 = most0;
  for (int64_t j = panels.begin; j < panels.end; j += kNr) {
    most0 = hn::Max(most0, hn::LoadU(d, s + j));
    most1 = hn::Max(most1, hn::LoadU(d, s + j + kLanes));
  }
  const float before = maximum;
  maximum = hn::GetLane(hn::MaxOfLanes(d, hn::Max(most0, most1)));
  const FloatVec base = hn::Set(d, maximum == -kInfinity ? 0.0f : maximum);
  FloatVec sum0 = hn::Zero(d), sum1 = sum0;
  for (int64_t j = panels.begin; j < panels.end; j += kNr) {
    const FloatVec p0 = exp2_softmax(hn::Sub(hn::LoadU(d, s + j), base));
    const FloatVec p1 = exp2_softmax(hn::Sub(hn::LoadU(d, s + j + kLanes), base));
    hn::StoreU(p0, d, s + j);
    hn::StoreU(p1, d, s + j + kLanes);
    sum0 = hn::Add(sum0, p0);
    sum1 = hn::Add(sum1, p1);
  }
  const float shrink = before == maximum ? 1.0f : before == -kInfinity ? 0.0f : std::exp2(before - maximum);
  sum = sum * shrink + hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  return shrink;
}

// Rows [first_row, first_row + rows) of one key/value head.
template <class T>
class ForwardRows {
 public:
  ForwardRows(const ExecContext& ctx, const AttentionFwdArgs& args, int64_t b, int64_t kv, int64_t first_row,
              int64_t rows, float* memory)
      : ctx_(ctx),
        args_(args),
        shape_(attention_shape(args.q, args.k)),
        b_(b),
        kv_(kv),
        first_row_(first_row),
        rows_(rows),
        padded_(padded_width(shape_.D)) {
    keys_ = memory;
    values_ = keys_ + kTile * shape_.D;
    queries_ = values_ + kTile * padded_;
    out_ = queries_ + kTile * shape_.D;
    scores_ = out_ + kTile * padded_;
  }

  void run() {
    const HeadRows<const T> q(args_.q, shape_, b_, kv_);
    for (int64_t r = 0; r < rows_; ++r) {
      copy_row(q(first_row_ + r), shape_.D, shape_.D, queries_ + r * shape_.D);
      ranges_[r] = visible_keys(shape_, args_.mask, b_, (first_row_ + r) % shape_.T);
      maximum_[r] = -kInfinity;
      sum_[r] = 0;
    }
    std::fill(out_, out_ + rows_ * padded_, 0.0f);
    const KeyRange all = join(ranges_, rows_);
    const int64_t first = all.begin / kTile * kTile;
    if (reads_in_place()) {
      if constexpr (HWY_TARGET != HWY_SCALAR) {
        for (int64_t tile = first; tile < all.end; tile += kTile) visit_few(tile);
      }
    } else {
      for (int64_t tile = first; tile < all.end; tile += kTile) visit(tile);
    }
    write();
  }

 private:
  void visit(int64_t tile) {
    const View &k = args_.k, &v = args_.v;
    const int64_t keys = std::min(kTile, shape_.S - tile);
    const T* key = static_cast<const T*>(k.data) + b_ * k.stride(0) + tile * k.stride(1) + kv_ * k.stride(2);
    const T* value = static_cast<const T*>(v.data) + b_ * v.stride(0) + tile * v.stride(1) + kv_ * v.stride(2);
    pack_keys(key, k.stride(1), keys, shape_.D, keys_);
    bool finite = true;
    for (int64_t j = 0; j < keys; ++j) {
      finite = copy_row(value + j * v.stride(1), shape_.D, padded_, values_ + j * padded_) && finite;
    }
    for (int64_t g = 0; g < rows_; g += kMr) visit_group(g, std::min(kMr, rows_ - g), tile, keys, finite);
  }

  // Few rows (decode): keys and values are read where they lie, once for up to four rows.
  bool reads_in_place() const {
    constexpr int64_t kFewRows = 8;
    return HWY_TARGET != HWY_SCALAR && rows_ <= kFewRows && shape_.D % kLanes == 0;
  }
  void visit_few(int64_t tile) {
    int64_t g = 0;
    for (; g + 4 <= rows_; g += 4) visit_in_place<4>(g, tile);
    for (; g + 2 <= rows_; g += 2) visit_in_place<2>(g, tile);
    if (g < rows_) visit_in_place<1>(g, tile);
  }

  template <int R>
  void visit_in_place(int64_t g, int64_t tile) {
    const View &k = args_.k, &v = args_.v;
    const int64_t keys = std::min(kTile, shape_.S - tile);
    const KeyRange seen = clip(join(ranges_ + g, R), tile, keys);
    if (seen.empty()) return;
    const KeyRange panels{seen.begin / kNr * kNr, (seen.end + kNr - 1) / kNr * kNr};
    const T* key = static_cast<const T*>(k.data) + b_ * k.stride(0) + tile * k.stride(1) + kv_ * k.stride(2);
    score_keys<R>(shape_.D, {queries_ + g * shape_.D, shape_.D}, key + panels.begin * k.stride(1), k.stride(1),
                  seen.end - panels.begin, score_factor(args_.logits), scores_ + panels.begin);
    bool same = true;
    for (int64_t r = 0; r < R; ++r) {
      const KeyRange range = clip(ranges_[g + r], tile, keys);
      same = same && range.begin == seen.begin && range.end == seen.end;
      shrink_row(out_ + (g + r) * padded_, weigh(g + r, scores_ + r * kTile, tile, range, panels));
    }
    const T* value = static_cast<const T*>(v.data) + b_ * v.stride(0) + tile * v.stride(1) + kv_ * v.stride(2);
    const auto add = [&](auto rows, int64_t r, KeyRange range) {
      add_values<decltype(rows)::value>(scores_ + r * kTile + range.begin, value + range.begin * v.stride(1),
                                        v.stride(1), range.end - range.begin, shape_.D, out_ + (g + r) * padded_,
                                        padded_);
    };
    if (same) return add(std::integral_constant<int, R>(), 0, seen);
    // What a row does not see, NaN perhaps, has no part in its sum.
    for (int64_t r = 0; r < R; ++r) add(std::integral_constant<int, 1>(), r, clip(ranges_[g + r], tile, keys));
  }

  // The scores of row r on the tile's keys become its weights. Returns the factor by which earlier sums shrink.
  float weigh(int64_t r, float* s, int64_t tile, KeyRange range, KeyRange panels) {
    const int64_t row = first_row_ + r, t = row % shape_.T, h = kv_ * shape_.group() + row / shape_.T;
    if (!is_plain(args_.logits)) {
      finish_scores(args_.logits, slope_of(args_.logits, h), query_position(shape_, args_.mask, b_, t) - tile,
                    panels.begin, panels.end, s, nullptr);
    }
    const float shrink = online_softmax(s, range, panels, maximum_[r], sum_[r]);
    if (args_.dropout.probability > 0 && !range.empty()) {
      drop_weights(ctx_, args_.dropout, shape_, b_, h, t, tile + range.begin, range.end - range.begin, s + range.begin);
    }
    return shrink;
  }

  void shrink_row(float* row, float shrink) const {
    if (shrink == 1.0f) return;
    const FloatTag d;
    for (int64_t j = 0; j < padded_; j += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, row + j), hn::Set(d, shrink)), d, row + j);
    }
  }

  void visit_group(int64_t g, int64_t rows, int64_t tile, int64_t keys, bool finite) {
    const KeyRange seen = clip(join(ranges_ + g, rows), tile, keys);
    if (seen.empty()) return;
    score_panels(rows, shape_.D, {queries_ + g * shape_.D, shape_.D}, keys_, seen, score_factor(args_.logits), scores_);
    const KeyRange panels{seen.begin / kNr * kNr, (seen.end + kNr - 1) / kNr * kNr};
    float* out = out_ + g * padded_;
    for (int64_t r = 0; r < rows; ++r) {
      const KeyRange range = clip(ranges_[g + r], tile, keys);
      shrink_row(out + r * padded_, weigh(g + r, scores_ + r * kTile, tile, range, panels));
    }
    const TileOperand p{scores_ + seen.begin, kTile}, v{values_ + seen.begin * padded_, padded_};
    if (finite) return add_product<Layout::rows>(rows, seen.end - seen.begin, p, v, out, padded_, 1);
    add_product_seen<Layout::rows>(rows, seen.end - seen.begin, p, v, out, padded_, 1, [&](int64_t r, int64_t i) {
      const KeyRange range = clip(ranges_[g + r], tile, keys);
      return i + seen.begin >= range.begin && i + seen.begin < range.end;
    });
  }

  void write() {
    const HeadRows<T> out(args_.out, shape_, b_, kv_);
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t row = first_row_ + r;
      const bool nothing = ranges_[r].empty();
      finish_row(out_ + r * padded_, shape_.D, nothing ? 0.0f : 1.0f / sum_[r], false, out(row));
      write_statistic(args_.lse, row, nothing ? -kInfinity : maximum_[r] * kLn2 + std::log(sum_[r]));
      write_statistic(args_.max_logit, row, nothing ? -kInfinity : maximum_[r] * kLn2);
    }
  }

  void write_statistic(const View& to, int64_t row, float value) const {
    if (!to) return;
    const int64_t h = kv_ * shape_.group() + row / shape_.T;
    to.ptr<float>()[b_ * to.stride(0) + h * to.stride(1) + row % shape_.T * to.stride(2)] = value;
  }

  const ExecContext& ctx_;
  const AttentionFwdArgs& args_;
  const AttentionShape shape_;
  const int64_t b_, kv_, first_row_, rows_, padded_;
  float *keys_, *values_, *queries_, *out_, *scores_;
  KeyRange ranges_[kTile];
  float maximum_[kTile], sum_[kTile];
};

void forward(const ExecContext& ctx, const AttentionFwdArgs& args, int64_t b, int64_t kv, int64_t row, int64_t rows,
             float* memory) {
  visit_float(args.q.dtype, "attention_fwd",
              [&](auto type) { ForwardRows<decltype(type)>(ctx, args, b, kv, row, rows, memory).run(); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace loam::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace loam {
namespace cpu {
namespace {
HWY_EXPORT(forward_workspace);
HWY_EXPORT(forward);

// One task is up to kTile rows of one key/value head. With few heads and rows (decode) tasks get smaller, so that each
// thread has one.
void attention_fwd(const ExecContext& ctx, const AttentionFwdArgs& args) {
  const AttentionShape shape = attention_shape(args.q, args.k);
  const int64_t heads = shape.B * shape.K, rows = shape.rows();
  if (heads == 0 || rows == 0) return;
  const int64_t wanted = std::max<int64_t>(1, (ctx.threads + heads - 1) / heads);
  const int64_t block = std::clamp<int64_t>((rows + wanted - 1) / wanted, 1, kTile);
  const int64_t blocks = (rows + block - 1) / block;
  const int threads = static_cast<int>(std::min<int64_t>(ctx.threads, heads * blocks));
  const Tensor workspace =
      ctx.empty({threads, HWY_DYNAMIC_DISPATCH(forward_workspace)(shape.D)}, DType::f32, MemoryKind::workspace);
  if (ctx.arena->sparse()) return;
  parallel_tasks(threads, heads * blocks, [&](int64_t task, int thread) {
    // The last rows see the most keys: they go first.
    const int64_t head = task / blocks, row = (blocks - 1 - task % blocks) * block;
    HWY_DYNAMIC_DISPATCH(forward)
    (ctx, args, head / shape.K, head % shape.K, row, std::min(block, rows - row),
     workspace.data<float>() + thread * workspace.dim(1));
  });
}

}  // namespace
}  // namespace cpu

void register_attention_fwd_kernels(KernelTable& table) { table.attention_fwd.function = cpu::attention_fwd; }

}  // namespace loam
#endif  // HWY_ONCE
