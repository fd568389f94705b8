// Llama: RMSNorm, rotary positions, grouped-query attention, gated feed-forward block. Touvron et al. 2023; Llama 3.1's
// scaled positions. SmolLM 2 and many others say that they are Llama, too.
//
// Files hold the rows of q and k in the order of RopePairs::half. A model that rotates neighbours (2k, 2k + 1) is
// written with those rows reordered, so that the pair stands at (k, k + D/2): scores are sums over pairs, hence equal.
#include "loam/model/families/llama_like.h"

namespace loam {
namespace {

ModelConfig read(const Json& json) {
  Settings s(json);
  ModelConfig c = read_llama_like(s);
  c.attention_bias = c.attention_out_bias = s.flag("attention_bias", false);
  c.mlp_bias = s.flag("mlp_bias", false);
  read_rope(s, c);
  s.finish();
  return c;
}

Json write(const ModelConfig& c) {
  need_width_of_whole_heads(c);
  Json json = write_llama_like(c);
  json["attention_bias"] = c.attention_bias;
  json["mlp_bias"] = c.mlp_bias;
  write_rope(json, c);
  return json;
}

}  // namespace

const Family kLlamaFamily{"llama",
                          "LlamaForCausalLM",
                          "LlamaForSequenceClassification",
                          "model.",
                          "lm_head.weight",
                          {".rotary_emb.inv_freq"},
                          read,
                          write,
                          llama_rules};

}  // namespace loam
