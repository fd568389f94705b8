#include "loam/infer/kv_cache.h"

#include <algorithm>

#include "loam/kernels/kernel_table.h"
#include "loam/ops/attention.h"

namespace loam {

KvCache::KvCache(const ExecContext& ctx, const Transformer& transformer, DType dtype, int64_t rows, int64_t capacity)
    : lengths_(static_cast<size_t>(rows), 0), capacity_(capacity) {
  for (int layer = 0; layer < transformer.layers(); ++layer) {
    const CacheSpec spec = transformer.cache(layer);
    const Shape shape{rows, capacity, spec.kv_heads, spec.head_dim};
    layers_.push_back({ctx.empty(shape, dtype, MemoryKind::cache), ctx.empty(shape, dtype, MemoryKind::cache)});
  }
}

void KvCache::begin(const ExecContext& ctx, int64_t first, int64_t count, int64_t length) {
  LOAM_CHECK(count > 0 && first >= 0 && first + count <= static_cast<int64_t>(lengths_.size()) && length > 0,
             "cache: rows [{}, {}) with {} tokens, of {} rows", first, first + count, length, lengths_.size());
  bool ragged = false;
  for (int64_t row = first; row < first + count; ++row) {
    LOAM_CHECK(this->length(row) + length <= capacity_, "cache: row {} would hold {} tokens, its capacity is {}", row,
               this->length(row) + length, capacity_);
    ragged |= this->length(row) != this->length(first);
  }
  LOAM_CHECK(!ragged || length == 1, "cache: rows of different lengths take one token at a time, not {}", length);

  std::vector<int32_t> positions, key_count;
  for (int64_t r = 0; r < count; ++r) {
    const int64_t known = this->length(first + r);
    key_count.push_back(static_cast<int32_t>(known + length));
    for (int64_t t = 0; t < length; ++t) positions.push_back(static_cast<int32_t>(known + t));
  }
  positions_ = Tensor::from<int32_t>(*ctx.arena, {count, length}, positions);
  key_count_ = Tensor::from<int32_t>(*ctx.arena, {count}, key_count);
  first_ = first;
  count_ = count;
  new_tokens_ = length;
  ragged_ = ragged;
}

void KvCache::end() {
  for (int64_t r = 0; r < count_; ++r) lengths_[static_cast<size_t>(first_ + r)] += new_tokens_;
  count_ = 0;
}

void KvCache::move(int64_t from, int64_t to) {
  const int64_t known = length(from);
  for (Layer& layer : layers_) {
    for (const Tensor& cache : {layer.k, layer.v}) {
      const Tensor source = cache.narrow(0, from, 1).narrow(1, 0, known),
                   target = cache.narrow(0, to, 1).narrow(1, 0, known);
      Tensor(target).copy_from(source);
    }
  }
  lengths_[static_cast<size_t>(to)] = known;
}

Var KvCache::attend(const Context& ctx, int layer, const Var& q, const Var& k, const Var& v,
                    const ops::AttentionOptions& options) {
  LOAM_CHECK(!ctx.tape, "cache: attention to remembered keys cannot be differentiated");
  const auto [B, T, K, D] = k.value.dims<4>();
  LOAM_CHECK(B == count_ && T == new_tokens_, "cache: begun for {} rows of {} tokens, got keys {}", count_, new_tokens_,
             k.shape().str());
  const Layer& memory = layers_[static_cast<size_t>(layer)];
  int64_t longest = 0;
  for (int64_t r = 0; r < B; ++r) {
    const int64_t known = length(first_ + r);
    longest = std::max(longest, known + T);
    const auto store = [&](const Tensor& cache, const Tensor& fresh) {
      ctx.kernels->copy(ctx, {.in = fresh.narrow(0, r, 1), .out = cache.narrow(0, first_ + r, 1).narrow(1, known, T)});
    };
    store(memory.k, k.value);
    store(memory.v, v.value);
  }
  const auto remembered = [&](const Tensor& cache) { return Var(cache.narrow(0, first_, B).narrow(1, 0, longest)); };
  ops::AttentionOptions masked = options;
  if (ragged_) masked.key_count = key_count_;
  return ops::attention(ctx, q, remembered(memory.k), remembered(memory.v), masked);
}

}  // namespace loam
