// SmolLM 3 (Hugging Face 2025): Llama with layers that have no positions, every fourth one.
#include "loam/base/utf8.h"
#include "loam/model/families/llama_like.h"

namespace loam {
namespace {

// "no_rope_layers": 1 where positions are rotated, 0 where there are none.
void read_layer_positions(Settings& s, ModelConfig& c) {
  const int64_t interval = s.integer("no_rope_layer_interval", 4);
  if (interval < 1) fail(ErrorCode::kBadFormat, "\"no_rope_layer_interval\" is {}", interval);
  const Json* rotated = s.value("no_rope_layers");
  if (!rotated) {
    for (int64_t layer = 1; layer <= c.layers; ++layer) {
      c.layer_positions.push_back(layer % interval == 0 ? PositionKind::none : PositionKind::rope);
    }
    return;
  }
  if (!rotated->is_array() || static_cast<int64_t>(rotated->as_array().size()) != c.layers) {
    fail(ErrorCode::kBadFormat, "\"no_rope_layers\": expected a list of {} numbers", c.layers);
  }
  for (const Json& one : rotated->as_array()) {
    if (one != Json(int64_t{0}) && one != Json(int64_t{1})) {
      fail(ErrorCode::kBadFormat, "\"no_rope_layers\": {} is neither 0 nor 1", printable(one.dump(), false, 60));
    }
    c.layer_positions.push_back(one == Json(int64_t{0}) ? PositionKind::none : PositionKind::rope);
  }
}

ModelConfig read(const Json& json) {
  Settings s(json);
  LlamaDefaults defaults;
  defaults.tied = true;
  if (!json.find("num_key_value_heads")) defaults.kv_heads = 4;
  ModelConfig c = read_llama_like(s, defaults);
  c.attention_bias = c.attention_out_bias = s.flag("attention_bias", false);
  c.mlp_bias = s.flag("mlp_bias", false);
  read_layer_positions(s, c);
  const int64_t window = s.flag("use_sliding_window", false) ? read_window(json, s, 0) : 0;
  s.ignore({"sliding_window"});  // unless it is used
  read_windows(s, c, window,
               [&](int64_t layer) { return c.layer_positions[static_cast<size_t>(layer)] == PositionKind::none; });
  s.ignore({"max_window_layers"});
  read_rope(s, c, {.theta = 2e6, .partial = {}});
  s.finish();
  return c;
}

Json write(const ModelConfig& c) {
  Json json = write_llama_like(c);
  json["attention_bias"] = c.attention_bias;
  json["mlp_bias"] = c.mlp_bias;
  Json rotated = Json::array();
  for (int64_t layer = 0; layer < c.layers; ++layer) {
    rotated.push_back(int64_t{layer_position(c, layer) == PositionKind::rope});
  }
  json["no_rope_layers"] = rotated;
  json["use_sliding_window"] = c.window > 0;
  json["sliding_window"] = c.window > 0 ? Json(c.window) : Json();
  json["layer_types"] = layer_types(c);
  write_rope(json, c);
  return json;
}

}  // namespace

const Family kSmolLm3Family{
    "smollm3", "SmolLM3ForCausalLM", "SmolLM3ForSequenceClassification", "model.", "lm_head.weight", {}, read,
    write,     llama_rules};

}  // namespace loam
