#include "loam/model/families/llama_like.h"

namespace loam {

ModelConfig read_llama_like(Settings& s, const LlamaDefaults& defaults) {
  ModelConfig c;
  c.vocab_size = s.integer("vocab_size");
  c.context_length = s.integer("max_position_embeddings");
  c.layers = s.layers("num_hidden_layers");
  c.dim = s.integer("hidden_size");
  c.heads = s.integer("num_attention_heads");
  c.kv_heads = s.integer("num_key_value_heads", defaults.kv_heads);
  c.head_dim = s.integer("head_dim", defaults.head_dim);
  c.ffn_dim = s.integer("intermediate_size");
  c.norm_eps = s.number("rms_norm_eps", defaults.norm_eps);
  c.activation = s.activation(defaults.activation_key, defaults.activation);
  c.tied_embeddings = s.flag("tie_word_embeddings", defaults.tied);
  c.init_std = s.number("initializer_range", 0.02);
  return c;
}

Json write_llama_like(const ModelConfig& c, const char* activation_key) {
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
  json[activation_key] = activation_name(c.activation);
  json["tie_word_embeddings"] = c.tied_embeddings;
  json["initializer_range"] = c.init_std;
  json["attention_dropout"] = 0.0;
  json["use_cache"] = true;
  json["pad_token_id"] = nullptr;  // else some families have one of their own, beyond a small vocabulary
  return json;
}

void need_width_of_whole_heads(const ModelConfig& c) {
  LOAM_CHECK(c.dim % c.heads == 0, "a width of {} is no multiple of {} heads", c.dim, c.heads);
}

std::vector<TensorRule> llama_like_rules(const ModelConfig& c, const LayerNorms& norms) {
  std::vector<TensorRule> all{{"model.embed_tokens.weight", "embedding"}};
  const std::string layer = "model.layers.{}.", attention = layer + "self_attn.", mlp = layer + "mlp.";
  const auto projections = [&](const std::string& kind, const std::string& suffix, bool qkv, bool out, bool mlp_part) {
    if (qkv) {
      const std::string param = "layers.{}.attention.qkv" + suffix;
      all.push_back({attention + "q_proj." + kind, param, "q", false, RowOrder::rotary});
      all.push_back({attention + "k_proj." + kind, param, "k", false, RowOrder::rotary});
      all.push_back({attention + "v_proj." + kind, param, "v"});
    }
    if (out) all.push_back({attention + "o_proj." + kind, "layers.{}.attention.out" + suffix});
    if (mlp_part) {
      all.push_back({mlp + "gate_proj." + kind, "layers.{}.mlp.up" + suffix, "gate"});
      all.push_back({mlp + "up_proj." + kind, "layers.{}.mlp.up" + suffix, "up"});
      all.push_back({mlp + "down_proj." + kind, "layers.{}.mlp.down" + suffix});
    }
  };
  const std::pair<const std::string&, const char*> layer_norms[] = {{norms.attention, "attention_norm"},
                                                                    {norms.attention_post, "attention_post_norm"},
                                                                    {norms.mlp, "mlp_norm"},
                                                                    {norms.mlp_post, "mlp_post_norm"}};
  for (const auto& [file_name, param] : layer_norms) {
    if (!file_name.empty()) all.push_back({layer + file_name + ".weight", fmt::format("layers.{{}}.{}.weight", param)});
  }
  if (c.qk_norm != QkNorm::none) {
    all.push_back({attention + "q_norm.weight", "layers.{}.attention.q_norm.weight", "", false, RowOrder::rotary});
    all.push_back({attention + "k_norm.weight", "layers.{}.attention.k_norm.weight", "", false, RowOrder::rotary});
  }
  projections("weight", "", true, true, true);
  projections("bias", ".bias", c.attention_bias, c.attention_out_bias, c.mlp_bias);
  all.push_back({"model.norm.weight", "norm.weight"});
  if (!c.tied_embeddings) all.push_back({"lm_head.weight", "head"});
  return all;
}

std::vector<TensorRule> llama_rules(const ModelConfig& c) { return llama_like_rules(c, {}); }

}  // namespace loam
