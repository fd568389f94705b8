// Qwen 2 and 2.5 (Yang et al. 2024): Llama with biases on q, k and v, and windows in the upper layers where they are
// switched on. Qwen 3 (Yang et al. 2025): per-head QK-norm, biases only by choice.
#include "loam/model/families/llama_like.h"

namespace loam {
namespace {

void read_qwen_windows(const Json& json, Settings& s, ModelConfig& c) {
  const bool used = s.flag("use_sliding_window", false);
  const int64_t window = used ? read_window(json, s) : 0, first = s.integer("max_window_layers", 28);
  s.ignore({"sliding_window"});  // unless it is used
  read_windows(s, c, window, [&](int64_t layer) { return layer >= first; });
}

void write_qwen_windows(Json& json, const ModelConfig& c) {
  json["use_sliding_window"] = c.window > 0;
  json["sliding_window"] = c.window > 0 ? Json(c.window) : Json();
  json["layer_types"] = layer_types(c);
}

ModelConfig read_qwen2(const Json& json) {
  Settings s(json);
  LlamaDefaults defaults;
  if (!json.find("num_key_value_heads")) defaults.kv_heads = 32;
  ModelConfig c = read_llama_like(s, defaults);
  c.attention_bias = true;
  read_qwen_windows(json, s, c);
  read_rope(s, c);
  s.finish();
  return c;
}

Json write_qwen2(const ModelConfig& c) {
  Json json = write_llama_like(c);
  write_qwen_windows(json, c);
  write_rope(json, c);
  return json;
}

ModelConfig read_qwen3(const Json& json) {
  Settings s(json);
  LlamaDefaults defaults;
  defaults.head_dim = 128;
  if (!json.find("num_key_value_heads")) defaults.kv_heads = 32;
  ModelConfig c = read_llama_like(s, defaults);
  c.attention_bias = c.attention_out_bias = s.flag("attention_bias", false);
  c.qk_norm = QkNorm::head;
  read_qwen_windows(json, s, c);
  read_rope(s, c);
  s.finish();
  return c;
}

Json write_qwen3(const ModelConfig& c) {
  Json json = write_qwen2(c);
  json["attention_bias"] = c.attention_bias;
  return json;
}

}  // namespace

const Family kQwen2Family{"qwen2",    "Qwen2ForCausalLM", "Qwen2ForSequenceClassification",
                          "model.",   "lm_head.weight",   {".rotary_emb.inv_freq"},
                          read_qwen2, write_qwen2,        llama_rules};
const Family kQwen3Family{"qwen3",    "Qwen3ForCausalLM", "Qwen3ForSequenceClassification",
                          "model.",   "lm_head.weight",   {},
                          read_qwen3, write_qwen3,        llama_rules};

}  // namespace loam
