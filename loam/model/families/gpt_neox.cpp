// GPT-NeoX and Pythia: LayerNorm, attention and feed-forward block side by side, a part of each head rotated, biases.
// Black et al. 2022; Biderman et al. 2023.
#include <algorithm>

#include "loam/model/families/family.h"
#include "loam/model/families/rope_settings.h"

namespace loam {
namespace {

ModelConfig read(const Json& json) {
  Settings s(json);
  ModelConfig c;
  c.vocab_size = s.integer("vocab_size");
  c.context_length = s.integer("max_position_embeddings");
  c.layers = s.layers("num_hidden_layers");
  c.dim = s.integer("hidden_size");
  c.heads = s.integer("num_attention_heads");
  c.ffn_dim = s.integer("intermediate_size");
  c.norm = NormKind::layer;
  c.norm_bias = true;
  c.norm_eps = s.number("layer_norm_eps", 1e-5);
  c.block = s.flag("use_parallel_residual", true) ? BlockForm::parallel : BlockForm::serial;
  c.activation = s.activation("hidden_act", ActivationKind::gelu);
  c.gated = false;
  c.mlp_bias = true;
  c.attention_bias = c.attention_out_bias = s.flag("attention_bias", true);
  c.tied_embeddings = s.flag("tie_word_embeddings", false);
  c.init_std = s.number("initializer_range", 0.02);
  // Names of its own; what others are called transformers passes over.
  const double theta = s.number("rotary_emb_base", 10000), partial = s.number("rotary_pct", 0.25);
  s.require("head_dim", c.dim / std::max<int64_t>(c.heads, 1));  // which transformers would take for rotations alone
  s.require("rope_theta", theta);
  s.require("partial_rotary_factor", partial);
  read_rope(s, c, {.theta = theta, .partial = partial});
  s.ignore({"hidden_dropout", "classifier_dropout"});
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
  json["intermediate_size"] = c.ffn_dim;
  json["layer_norm_eps"] = c.norm_eps;
  json["use_parallel_residual"] = c.block == BlockForm::parallel;
  json["hidden_act"] = activation_name(c.activation);
  json["attention_bias"] = c.attention_bias;
  json["tie_word_embeddings"] = c.tied_embeddings;
  json["initializer_range"] = c.init_std;
  json["attention_dropout"] = 0.0;
  json["hidden_dropout"] = 0.0;
  json["use_cache"] = true;
  Json rope = rope_object(c);
  const double partial = static_cast<double>(c.rope_dim) / static_cast<double>(c.head_dim);
  rope["partial_rotary_factor"] = partial;
  json["rotary_emb_base"] = rope.at("rope_theta");
  json["rotary_pct"] = partial;
  json["rope_scaling"] = rope.at("rope_type") == Json("default") ? Json() : rope;
  json["rope_parameters"] = rope;
  return json;
}

std::vector<TensorRule> rules(const ModelConfig& c) {
  std::vector<TensorRule> all{{"gpt_neox.embed_in.weight", "embedding"}};
  const std::string layer = "gpt_neox.layers.{}.";
  for (const auto& [file_name, param] :
       {std::pair{"input_layernorm", "attention_norm"}, std::pair{"post_attention_layernorm", "mlp_norm"}}) {
    for (const char* kind : {".weight", ".bias"}) {
      all.push_back({layer + file_name + kind, fmt::format("layers.{{}}.{}{}", param, kind)});
    }
  }
  const auto projection = [&](const std::string& file_name, const std::string& param, bool bias, RowOrder order) {
    all.push_back({layer + file_name + ".weight", "layers.{}." + param, "", false, order});
    if (bias) all.push_back({layer + file_name + ".bias", "layers.{}." + param + ".bias", "", false, order});
  };
  projection("attention.query_key_value", "attention.qkv", c.attention_bias, RowOrder::heads);
  projection("attention.dense", "attention.out", c.attention_out_bias, RowOrder::plain);
  projection("mlp.dense_h_to_4h", "mlp.up", true, RowOrder::plain);
  projection("mlp.dense_4h_to_h", "mlp.down", true, RowOrder::plain);
  all.push_back({"gpt_neox.final_layer_norm.weight", "norm.weight"});
  all.push_back({"gpt_neox.final_layer_norm.bias", "norm.bias"});
  if (!c.tied_embeddings) all.push_back({"embed_out.weight", "head"});
  return all;
}

}  // namespace

const Family kGptNeoxFamily{"gpt_neox",
                            "GPTNeoXForCausalLM",
                            "GPTNeoXForSequenceClassification",
                            "gpt_neox.",
                            "embed_out.weight",
                            {".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"},
                            read,
                            write,
                            rules};

}  // namespace loam
