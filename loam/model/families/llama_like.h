// What most families share with Llama: the names of sizes in config.json, and of tensors.
#pragma once

#include "loam/model/families/family.h"
#include "loam/model/families/rope_settings.h"

namespace loam {

// Values of keys that are absent, where families differ.
struct LlamaDefaults {
  double norm_eps = 1e-6;
  bool tied = false;
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t head_dim = 0;  // 0: width / heads
  const char* activation_key = "hidden_act";
  ActivationKind activation = ActivationKind::silu;
};

// Sizes, norm, activation, tying; not biases, positions, windows.
ModelConfig read_llama_like(Settings& s, const LlamaDefaults& defaults = {});
Json write_llama_like(const ModelConfig& c, const char* activation_key = "hidden_act");
// Of families for which transformers demands it, though head_dim is stated.
void need_width_of_whole_heads(const ModelConfig& c);

// File names of a layer's norms, each "" where the family has none.
struct LayerNorms {
  std::string attention = "input_layernorm", attention_post, mlp = "post_attention_layernorm", mlp_post;
};
std::vector<TensorRule> llama_like_rules(const ModelConfig& c, const LayerNorms& norms);
std::vector<TensorRule> llama_rules(const ModelConfig& c);  // with Llama's norms

}  // namespace loam
