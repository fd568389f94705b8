// OLMo 2 (OLMo Team 2024): norms on what attention and the feed-forward block give, in the place of those before them,
// and QK-norm over all heads.
#include "loam/model/families/llama_like.h"

namespace loam {
namespace {

ModelConfig read(const Json& json) {
  Settings s(json);
  LlamaDefaults defaults;
  defaults.norm_eps = 1e-5;
  ModelConfig c = read_llama_like(s, defaults);
  c.norm_place = NormPlace::output;
  c.qk_norm = QkNorm::full;
  c.attention_bias = c.attention_out_bias = s.flag("attention_bias", false);
  read_rope(s, c);
  s.finish();
  return c;
}

Json write(const ModelConfig& c) {
  Json json = write_llama_like(c);
  json["attention_bias"] = c.attention_bias;
  write_rope(json, c);
  return json;
}

std::vector<TensorRule> rules(const ModelConfig& c) {
  return llama_like_rules(c, {"", "post_attention_layernorm", "", "post_feedforward_layernorm"});
}

}  // namespace

const Family kOlmo2Family{
    "olmo2", "Olmo2ForCausalLM", "Olmo2ForSequenceClassification", "model.", "lm_head.weight", {}, read, write, rules};

}  // namespace loam
