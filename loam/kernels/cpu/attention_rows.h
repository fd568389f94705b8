// What the two directions of attention share: which rows belong to one key/value head, and which keys each of them
// sees. Legend as in attention.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "loam/kernels/attention.h"
#include "loam/kernels/dropout.h"

namespace loam::cpu {

// Tiles are kTile rows by kTile keys, at absolute key positions, so that a row meets the same tiles in training,
// prefill and decode. A multiple of the register tile's height and width for every instruction set.
inline constexpr int64_t kTile = 96;
inline constexpr int64_t kMostWidth = 256;  // of a head

// The keys [begin, end) that a row sees; empty if begin >= end.
struct KeyRange {
  int64_t begin = 0, end = 0;
  bool empty() const { return begin >= end; }
};

struct AttentionShape {
  int64_t B = 0, T = 0, S = 0, H = 0, K = 0, D = 0;
  int64_t group() const { return H / K; }  // query heads of one key/value head
  int64_t rows() const {
    return group() * T;
  }  // rows of one key/value head of one batch element: head by head, then by position
};

inline AttentionShape attention_shape(const View& q, const View& k) {
  const auto [B, T, H, D] = q.dims<4>();
  return {B, T, k.dim(1), H, k.dim(2), D};
}

// Of query t among the keys.
inline int64_t query_position(const AttentionShape& shape, const AttentionMask& mask, int64_t b, int64_t t) {
  const int64_t keys = mask.key_count ? mask.key_count.ptr<int32_t>()[b * mask.key_count.stride(0)] : shape.S;
  return t + keys - shape.T;
}

inline KeyRange visible_keys(const AttentionShape& shape, const AttentionMask& mask, int64_t b, int64_t t) {
  KeyRange range{0, shape.S};
  if (mask.first_key) {
    const int64_t first = mask.first_key.ptr<int32_t>()[b * mask.first_key.stride(0) + t * mask.first_key.stride(1)];
    range.begin = std::max<int64_t>(0, first);
  }
  if (mask.key_count) {
    range.end = std::min<int64_t>(range.end, mask.key_count.ptr<int32_t>()[b * mask.key_count.stride(0)]);
  }
  const int64_t position = query_position(shape, mask, b, t);
  if (mask.causal) range.end = std::min(range.end, position + 1);
  if (mask.window > 0) range.begin = std::max(range.begin, position - mask.window + 1);
  return range;
}

inline float slope_of(const AttentionLogits& logits, int64_t head) {
  return logits.slopes ? logits.slopes.ptr<float>()[head * logits.slopes.stride(0)] : 0.0f;
}

// Multiplies the weights p[0:keys] of query (b, h, i) on keys from `first` on by dropout's mask.
inline void drop_weights(const ExecContext& ctx, const AttentionDropout& dropout, const AttentionShape& shape,
                         int64_t b, int64_t h, int64_t i, int64_t first, int64_t keys, float* p) {
  const PhiloxStream stream = dropout_stream(ctx, dropout.site, b);
  const uint32_t bound = dropout_bound(dropout.probability);
  const float kept = 1 / (1 - dropout.probability);
  // Four keys share a block of random numbers; a query's keys begin at a whole one.
  const uint64_t query = static_cast<uint64_t>(h * shape.T + i) << 24;
  for (int64_t j = 0; j < keys;) {
    const int64_t key = first + j;
    const auto block = stream.block(query + static_cast<uint64_t>(key / 4));
    for (int64_t k = key % 4; k < 4 && j < keys; ++k, ++j) p[j] *= block[static_cast<size_t>(k)] < bound ? 0 : kept;
  }
}

// The union of ranges, as one range; empty ones do not count.
inline KeyRange join(const KeyRange* ranges, int64_t count) {
  KeyRange all;
  for (int64_t i = 0; i < count; ++i) {
    if (ranges[i].empty()) continue;
    all = all.empty() ? ranges[i] : KeyRange{std::min(all.begin, ranges[i].begin), std::max(all.end, ranges[i].end)};
  }
  return all;
}

// The part of a range that lies in the tile of `keys` keys at `tile`, relative to it.
inline KeyRange clip(const KeyRange& range, int64_t tile, int64_t keys) {
  return {std::clamp<int64_t>(range.begin - tile, 0, keys), std::clamp<int64_t>(range.end - tile, 0, keys)};
}

// Finds rows of a [B,T,H,D] view: row r of key/value head `kv`.
template <class T>
class HeadRows {
 public:
  HeadRows(const View& view, const AttentionShape& shape, int64_t b, int64_t kv)
      : data_(static_cast<T*>(view.data) + b * view.stride(0) + kv * shape.group() * view.stride(2)),
        length_(shape.T),
        t_stride_(view.stride(1)),
        h_stride_(view.stride(2)) {}
  T* operator()(int64_t r) const { return data_ + r % length_ * t_stride_ + r / length_ * h_stride_; }

 private:
  T* data_;
  int64_t length_, t_stride_, h_stride_;
};

}  // namespace loam::cpu
