// GPT-2: LayerNorm, learned positions, biases everywhere. Radford et al. 2019. Its matrices are stored [in, out]
// ("Conv1D"), query, key and value as one.
#include "loam/model/families/family.h"
#include "loam/model/families/settings.h"

namespace loam {
namespace {

ModelConfig read(const Json& json) {
  Settings s(json);
  ModelConfig c;
  c.vocab_size = s.integer("vocab_size");
  c.context_length = s.integer("n_positions", 1024);
  c.layers = s.integer("n_layer");
  c.dim = s.integer("n_embd");
  c.heads = s.integer("n_head");
  c.ffn_dim = s.integer("n_inner", 0);
  c.norm = NormKind::layer;
  c.norm_eps = s.number("layer_norm_epsilon", 1e-5);
  c.activation = s.activation("activation_function", ActivationKind::gelu_tanh);
  c.gated = false;
  c.attention_bias = c.attention_out_bias = c.mlp_bias = c.norm_bias = true;
  c.positions = PositionKind::learned;
  c.tied_embeddings = s.flag("tie_word_embeddings", true);
  c.init_std = s.number("initializer_range", 0.02);
  s.require("scale_attn_weights", true);
  s.require("scale_attn_by_inverse_layer_idx", false);
  s.require("n_ctx", c.context_length);
  s.ignore({"reorder_and_upcast_attn", "resid_pdrop", "embd_pdrop", "attn_pdrop", "summary_type", "summary_use_proj",
            "n_special", "predict_special_tokens", "summary_activation", "summary_first_dropout",
            "summary_proj_to_labels"});
  s.finish();
  return c;
}

Json write(const ModelConfig& c) {
  Json json = Json::object();
  json["vocab_size"] = c.vocab_size;
  json["n_positions"] = c.context_length;
  json["n_ctx"] = c.context_length;
  json["n_layer"] = c.layers;
  json["n_embd"] = c.dim;
  json["n_head"] = c.heads;
  json["n_inner"] = c.ffn_dim;
  json["layer_norm_epsilon"] = c.norm_eps;
  json["activation_function"] = activation_name(c.activation);
  json["tie_word_embeddings"] = c.tied_embeddings;
  json["initializer_range"] = c.init_std;
  json["attn_pdrop"] = 0.0;
  json["embd_pdrop"] = 0.0;
  json["resid_pdrop"] = 0.0;
  json["use_cache"] = true;
  return json;
}

std::vector<TensorRule> rules(const ModelConfig& c) {
  std::vector<TensorRule> all{{"transformer.wte.weight", "embedding"}, {"transformer.wpe.weight", "positions"}};
  const std::string layer = "transformer.h.{}.";
  for (const auto& [file_name, param] :
       std::vector<std::pair<std::string, std::string>>{{"ln_1", "attention_norm"}, {"ln_2", "mlp_norm"}}) {
    all.push_back({layer + file_name + ".weight", "layers.{}." + param + ".weight"});
    all.push_back({layer + file_name + ".bias", "layers.{}." + param + ".bias"});
  }
  for (const auto& [file_name, param] :
       std::vector<std::pair<std::string, std::string>>{{"attn.c_attn", "attention.qkv"},
                                                        {"attn.c_proj", "attention.out"},
                                                        {"mlp.c_fc", "mlp.up"},
                                                        {"mlp.c_proj", "mlp.down"}}) {
    all.push_back({layer + file_name + ".weight", "layers.{}." + param, "", true});
    all.push_back({layer + file_name + ".bias", "layers.{}." + param + ".bias"});
  }
  all.push_back({"transformer.ln_f.weight", "norm.weight"});
  all.push_back({"transformer.ln_f.bias", "norm.bias"});
  if (!c.tied_embeddings) all.push_back({"lm_head.weight", "head"});
  return all;
}

}  // namespace

const Family kGpt2Family{"gpt2",
                         "GPT2LMHeadModel",
                         "GPT2ForSequenceClassification",
                         "transformer.",
                         "lm_head.weight",
                         {".attn.bias", ".attn.masked_bias"},
                         read,
                         write,
                         rules};

}  // namespace loam
