// Llama: RMSNorm, rotary positions, grouped-query attention, gated feed-forward. Touvron et al. 2023.
//
// Files hold the rows of q and k in the order of RopePairs::half. A model that rotates neighbours (2k, 2k + 1) is
// written with those rows reordered, so that the pair stands at (k, k + D/2): scores are sums over pairs, hence equal.
#include <algorithm>
#include <optional>
#include <string_view>

#include "loam/model/families/family.h"
#include "loam/model/families/settings.h"

namespace loam {
namespace {

// Only the plain rotation: a "type" other than "default" stretches it, and so may whatever else stands beside it.
void check_plain_rope(const char* key, const Json& rope) {
  if (!rope.is_object()) fail(ErrorCode::kBadFormat, "\"{}\": expected an object", key);
  for (const char* name : {"rope_type", "type"}) {
    const Json* type = rope.find(name);
    if (!type || type->is_null() || *type == Json("default")) continue;
    fail(ErrorCode::kBadFormat, "\"{}\": scaled rotary positions ({}) are not supported", key,
         type->dump().substr(0, 60));
  }
  Settings inner(rope);
  inner.require("partial_rotary_factor", 1.0);
  inner.require("factor", 1.0);
  for (const auto& [name, value] : rope.as_object()) {
    constexpr std::string_view kPlain[] = {"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor"};
    if (value.is_null() || std::find(std::begin(kPlain), std::end(kPlain), name) != std::end(kPlain)) continue;
    fail(ErrorCode::kBadFormat, "\"{}\": \"{}\" is not supported", key, name.substr(0, 100));
  }
}

// transformers 4 has "rope_theta" and "rope_scaling"; 5 has both in "rope_parameters". Where several state the base
// they must agree.
double read_rope_theta(Settings& s) {
  std::optional<double> theta;
  std::string stated_by;
  const auto take = [&](Settings& settings, const std::string& name) {
    if (!settings.value("rope_theta")) return;
    const double stated = settings.number("rope_theta", 0);
    if (theta && *theta != stated) {
      fail(ErrorCode::kBadFormat, "\"{}\" is {}, but \"{}\" is {}", stated_by, *theta, name, stated);
    }
    theta = stated;
    stated_by = name;
  };
  take(s, "rope_theta");
  s.require("partial_rotary_factor", 1.0);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* rope = s.value(key);
    if (!rope) continue;
    check_plain_rope(key, *rope);
    Settings inner(*rope);
    take(inner, fmt::format("{}.rope_theta", key));
  }
  return theta.value_or(10000);
}

ModelConfig read(const Json& json) {
  Settings s(json);
  ModelConfig c;
  c.vocab_size = s.integer("vocab_size");
  c.context_length = s.integer("max_position_embeddings");
  c.layers = s.integer("num_hidden_layers");
  c.dim = s.integer("hidden_size");
  c.heads = s.integer("num_attention_heads");
  c.kv_heads = s.integer("num_key_value_heads", 0);
  c.head_dim = s.integer("head_dim", 0);
  c.ffn_dim = s.integer("intermediate_size");
  c.norm_eps = s.number("rms_norm_eps", 1e-6);
  c.activation = s.activation("hidden_act", ActivationKind::silu);
  c.attention_bias = c.attention_out_bias = s.flag("attention_bias", false);
  c.mlp_bias = s.flag("mlp_bias", false);
  c.rope_theta = read_rope_theta(s);
  c.tied_embeddings = s.flag("tie_word_embeddings", false);
  c.init_std = s.number("initializer_range", 0.02);
  s.finish();
  return c;
}

Json write(const ModelConfig& c) {
  Json json = Json::object();
  json["vocab_size"] = c.vocab_size;
  json["max_position_embeddings"] = c.context_length;
  json["num_hidden_layers"] = c.layers;
  json["hidden_size"] = c.dim;
  json["num_attention_heads"] = c.heads;
  json["num_key_value_heads"] = c.kv_heads;
  json["head_dim"] = c.head_dim;
  json["intermediate_size"] = c.ffn_dim;
  json["rms_norm_eps"] = c.norm_eps;
  json["hidden_act"] = activation_name(c.activation);
  json["attention_bias"] = c.attention_bias;
  json["mlp_bias"] = c.mlp_bias;
  json["rope_theta"] = c.rope_theta;
  json["rope_scaling"] = nullptr;
  json["rope_parameters"] = Json(Json::Object{{"rope_theta", c.rope_theta}, {"rope_type", "default"}});
  json["tie_word_embeddings"] = c.tied_embeddings;
  json["initializer_range"] = c.init_std;
  json["attention_dropout"] = 0.0;
  json["use_cache"] = true;
  return json;
}

bool fits(const ModelConfig& c) {
  return c.norm == NormKind::rms && c.gated && c.positions == PositionKind::rope && c.dim % c.heads == 0 &&
         c.attention_bias == c.attention_out_bias;
}

std::vector<TensorRule> rules(const ModelConfig& c) {
  std::vector<TensorRule> all{{"model.embed_tokens.weight", "embedding"}};
  const std::string layer = "model.layers.{}.", attention = layer + "self_attn.", mlp = layer + "mlp.";
  const auto projections = [&](const std::string& kind, const std::string& suffix, bool attention_part, bool mlp_part) {
    if (attention_part) {
      all.push_back({attention + "q_proj." + kind, "layers.{}.attention.qkv" + suffix, "q", false, true});
      all.push_back({attention + "k_proj." + kind, "layers.{}.attention.qkv" + suffix, "k", false, true});
      all.push_back({attention + "v_proj." + kind, "layers.{}.attention.qkv" + suffix, "v"});
      all.push_back({attention + "o_proj." + kind, "layers.{}.attention.out" + suffix});
    }
    if (mlp_part) {
      all.push_back({mlp + "gate_proj." + kind, "layers.{}.mlp.up" + suffix, "gate"});
      all.push_back({mlp + "up_proj." + kind, "layers.{}.mlp.up" + suffix, "up"});
      all.push_back({mlp + "down_proj." + kind, "layers.{}.mlp.down" + suffix});
    }
  };
  all.push_back({layer + "input_layernorm.weight", "layers.{}.attention_norm.weight"});
  all.push_back({layer + "post_attention_layernorm.weight", "layers.{}.mlp_norm.weight"});
  projections("weight", "", true, true);
  projections("bias", ".bias", c.attention_bias, c.mlp_bias);
  all.push_back({"model.norm.weight", "norm.weight"});
  if (!c.tied_embeddings) all.push_back({"lm_head.weight", "head"});
  return all;
}

}  // namespace

const Family kLlamaFamily{"llama", "LlamaForCausalLM", "model.", {".rotary_emb.inv_freq"}, read, write, fits, rules};

}  // namespace loam
