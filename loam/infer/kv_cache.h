// The memory of attention between calls, one contiguous block a layer.
// Legend: R rows (sequences), S capacity in tokens, T tokens of this call, K kv heads, D head dim.
#pragma once

#include <cstdint>
#include <vector>

#include "loam/model/transformer.h"

namespace loam {

// Thread safety: one thread at a time.
class KvCache : public SequenceContext {
 public:
  // Memory: 2 L R S K D elements of the model's dtype. Error{kOutOfMemory} as the arena says.
  KvCache(const ExecContext& ctx, const Transformer& transformer, DType dtype, int64_t rows, int64_t capacity);

  // The next forward pass works on rows [first, first + count), T new tokens each. With T > 1 these rows must be of
  // equal length. Error{kInvalidArgument} if a row would outgrow the capacity; nothing has changed then. A pass that
  // failed is simply begun again: the new tokens count only after end().
  void begin(const ExecContext& ctx, int64_t first, int64_t count, int64_t length);
  void end();  // the new tokens now count as remembered

  int64_t length(int64_t row) const { return lengths_[static_cast<size_t>(row)]; }
  int64_t capacity() const { return capacity_; }
  void clear(int64_t row) { lengths_[static_cast<size_t>(row)] = 0; }
  void move(int64_t from, int64_t to);  // row `to` becomes a copy of row `from`

  const Tensor& positions() const override { return positions_; }
  Var attend(const Context& ctx, int layer, const Var& q, const Var& k, const Var& v,
             const ops::AttentionOptions& options) override;

 private:
  struct Layer {
    Tensor k, v;  // [R,S,K,D]
  };
  std::vector<Layer> layers_;
  std::vector<int64_t> lengths_;
  int64_t capacity_;
  int64_t first_ = 0, count_ = 0, new_tokens_ = 0;
  bool ragged_ = false;
  Tensor positions_, key_count_;
};

}  // namespace loam
