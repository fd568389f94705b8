// The model file of karpathy/llama2.c, version 0: seven int32 (dim, hidden_dim, n_layers, n_heads, n_kv_heads,
// vocab_size [negative: untied head], seq_len), then f32 tensors one after the other, layers stacked: embedding,
// attention norms, wq, wk, wv, wo, ffn norms, w1, w2, w3, final norm, two rotary tables (ignored), head if untied.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "loam/base/file.h"
#include "loam/tensor/tensor.h"

namespace loam {

struct Llama2cModel {
  int64_t dim, ffn_dim, layers, heads, kv_heads, vocab_size, context_length;
  bool tied;
  // Named as in the file's documentation above, one entry a layer: "token_embedding", "0.attention_norm", "0.wq", ...,
  // "final_norm", "head".
  std::vector<std::pair<std::string, Tensor>> tensors;
};

// Error{kBadFormat} if a header value is absurd or the size of the file does not agree.
Llama2cModel read_llama2c(const Path& path);

}  // namespace loam
