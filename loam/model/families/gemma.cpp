// Gemma 2 (Gemma Team 2024): norms of 1 + w before and after each part, soft-capped scores and logits, windows in every
// second layer, scaled embeddings. Gemma 3 (Gemma Team 2025), its text models: per-head QK-norm in the place of
// soft-caps, five layers with a window and a base of their own to one without.
#include <cmath>

#include "loam/base/utf8.h"
#include "loam/model/families/llama_like.h"

namespace loam {
namespace {

constexpr const char* kActivation = "hidden_activation";

ModelConfig read_common(const Json& json, Settings& s) {
  LlamaDefaults defaults;
  defaults.tied = true;
  defaults.head_dim = 256;
  if (!json.find("num_key_value_heads")) defaults.kv_heads = 4;
  defaults.activation_key = kActivation;
  defaults.activation = ActivationKind::gelu_tanh;
  ModelConfig c = read_llama_like(s, defaults);
  c.norm_scale = NormScale::one_plus_weight;
  c.norm_place = NormPlace::sandwich;
  c.attention_bias = c.attention_out_bias = s.flag("attention_bias", false);
  c.embedding_scale = std::sqrt(static_cast<double>(c.dim));
  const double scalar = s.number("query_pre_attn_scalar", 256);
  if (!(scalar > 0)) fail(ErrorCode::kBadFormat, "\"query_pre_attn_scalar\" is {}", scalar);
  c.attention_scale = 1 / std::sqrt(scalar);
  s.require("use_bidirectional_attention", false);
  s.ignore({"hidden_act", "cache_implementation"});  // hidden_activation counts
  return c;
}

Json write_common(const ModelConfig& c) {
  need_width_of_whole_heads(c);
  Json json = write_llama_like(c, kActivation);
  const double scale = c.attention_scale > 0 ? c.attention_scale : 1 / std::sqrt(static_cast<double>(c.head_dim));
  const double scalar = std::round(1 / (scale * scale));  // transformers takes nothing but a whole number
  if (!(scalar >= 1 && scalar < 1e6)) fail(ErrorCode::kInvalidArgument, "an attention scale of {}", scale);
  json["query_pre_attn_scalar"] = static_cast<int64_t>(scalar);
  json["attention_bias"] = c.attention_bias;
  json["sliding_window"] = c.window > 0 ? c.window : c.context_length;  // transformers needs one, used or not
  json["layer_types"] = layer_types(c);
  json["final_logit_softcapping"] = c.logit_softcap > 0 ? Json(c.logit_softcap) : Json();
  return json;
}

// Absent: the fallback; null: none.
double softcap(const Json& json, Settings& s, const char* key, double fallback) {
  return s.number(key, json.find(key) ? 0 : fallback);
}

std::vector<TensorRule> rules(const ModelConfig& c) {
  return llama_like_rules(
      c, {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"});
}

ModelConfig read_gemma2(const Json& json) {
  Settings s(json);
  ModelConfig c = read_common(json, s);
  c.attention_softcap = softcap(json, s, "attn_logit_softcapping", 50);
  c.logit_softcap = softcap(json, s, "final_logit_softcapping", 30);
  read_windows(s, c, read_window(json, s), [](int64_t layer) { return layer % 2 == 0; });
  read_rope(s, c);
  s.finish();
  return c;
}

Json write_gemma2(const ModelConfig& c) {
  Json json = write_common(c);
  json["attn_logit_softcapping"] = c.attention_softcap > 0 ? Json(c.attention_softcap) : Json();
  write_rope(json, c);
  return json;
}

// transformers 4: rope_theta and rope_scaling of the full layers, rope_local_base_freq of those with a window; 5:
// rope_parameters by kind of layer.
void read_gemma3_rope(Settings& s, ModelConfig& c) {
  c.window_rope_theta = s.number("rope_local_base_freq", 10000);
  const Json* parameters = s.value("rope_parameters");
  const Json* full = parameters ? parameters->find("full_attention") : nullptr;
  if (!full) return read_rope(s, c, {.theta = 1e6, .partial = {}});
  const double theta = s.number("rope_theta", 1e6);
  s.require("partial_rotary_factor", 1.0);
  if (const Json* scaling = s.value("rope_scaling")) {
    if (!scaling->is_object()) fail(ErrorCode::kBadFormat, "\"rope_scaling\": expected an object");
    for (const auto& [name, value] : scaling->as_object()) {  // transformers lets it override the other
      const Json* other = full->find(name);
      if (!other || *other != value) {
        fail(ErrorCode::kBadFormat,
             "\"rope_scaling\" and \"rope_parameters.full_attention\" do not say the same of \"{}\"",
             printable(name, false, 100));
      }
    }
  }
  for (const auto& [kind, value] : parameters->as_object()) {
    if (kind != "full_attention" && kind != "sliding_attention") {
      fail(ErrorCode::kBadFormat, "\"rope_parameters\": \"{}\" is not known beside kinds of layers",
           printable(kind, false, 100));
    }
  }
  const std::string key = "rope_parameters.full_attention";
  read_rope_object(key, *full, c);
  c.rope_scaling.truncate = true;  // transformers does not find "truncate" there
  Settings inner(*full);
  c.rope_theta = inner.number("rope_theta", theta);
  inner.require("partial_rotary_factor", 1.0);
  const Json* window = parameters->find("sliding_attention");
  if (!window || window->is_null()) return;
  ModelConfig local;
  read_rope_object("rope_parameters.sliding_attention", *window, local);
  if (local.rope_scaling.kind != RopeScalingKind::none) {
    fail(ErrorCode::kBadFormat, "\"rope_parameters.sliding_attention\": scaled positions are not supported there");
  }
  c.window_rope_theta = Settings(*window).number("rope_theta", c.window_rope_theta);
}

ModelConfig read_gemma3(const Json& json) {
  Settings s(json);
  ModelConfig c = read_common(json, s);
  c.qk_norm = QkNorm::head;
  c.logit_softcap = softcap(json, s, "final_logit_softcapping", 0);
  s.ignore({"attn_logit_softcapping"});  // which its attention does not look at
  const int64_t pattern = s.integer("sliding_window_pattern", s.integer("_sliding_window_pattern", 6));
  if (pattern < 1) fail(ErrorCode::kBadFormat, "\"sliding_window_pattern\" is {}", pattern);
  read_windows(s, c, read_window(json, s), [&](int64_t layer) { return (layer + 1) % pattern != 0; });
  read_gemma3_rope(s, c);
  if (c.window == 0) c.window_rope_theta = 0;
  s.finish();
  return c;
}

Json write_gemma3(const ModelConfig& c) {
  if (c.rope_scaling.kind == RopeScalingKind::yarn && !c.rope_scaling.truncate) {
    fail(ErrorCode::kInvalidArgument, "transformers always rounds the bounds of yarn in Gemma 3");
  }
  Json json = write_common(c);
  const Json full = rope_object(c);
  const double local = c.window_rope_theta > 0 ? c.window_rope_theta : c.rope_theta;
  json["rope_theta"] = full.at("rope_theta");
  json["rope_local_base_freq"] = local;
  json["rope_scaling"] = full.at("rope_type") == Json("default") ? Json() : full;
  Json window = Json::object();
  window["rope_type"] = "default";
  window["rope_theta"] = local;
  Json parameters = Json::object();
  parameters["full_attention"] = full;
  parameters["sliding_attention"] = window;
  json["rope_parameters"] = parameters;
  return json;
}

}  // namespace

const Family kGemma2Family{"gemma2",    "Gemma2ForCausalLM", "Gemma2ForSequenceClassification",
                           "model.",    "lm_head.weight",    {},
                           read_gemma2, write_gemma2,        rules};
const Family kGemma3Family{"gemma3_text", "Gemma3ForCausalLM", "Gemma3TextForSequenceClassification",
                           "model.",      "lm_head.weight",    {},
                           read_gemma3,   write_gemma3,        rules};

}  // namespace loam
