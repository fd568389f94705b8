// loam's own form, for configurations that no other family holds: config.json has them as they are under "model",
// tensors have the parameters' names.
#include "loam/model/families/family.h"
#include "loam/model/families/settings.h"

namespace loam {
namespace {

ModelConfig read(const Json& json) {
  Settings s(json);
  const Json* model = s.value("model");
  if (!model) fail(ErrorCode::kBadFormat, "\"model\" is missing");
  ModelConfig c;
  config_from_json(c, *model);
  s.finish();
  return c;
}

Json write(const ModelConfig& c) {
  Json json = Json::object();
  json["model"] = config_to_json(c);
  return json;
}

std::vector<TensorRule> rules(const ModelConfig& c) {
  std::vector<TensorRule> all;
  const auto add = [&](const std::string& name) { all.push_back({name, name}); };
  const auto add_if = [&](bool wanted, const std::string& name) {
    if (wanted) add(name);
  };
  const auto add_norm = [&](const std::string& name) {
    add_if(c.norm_scale != NormScale::none, name + ".weight");
    add_if(c.norm_bias, name + ".bias");
  };
  const bool before = c.norm_place == NormPlace::pre || c.norm_place == NormPlace::sandwich;
  const bool after = c.norm_place != NormPlace::pre && c.norm_place != NormPlace::none;
  const std::string layer = "layers.{}.", attention = layer + "attention.", mlp = layer + "mlp.";

  add("embedding");
  add_if(c.positions == PositionKind::learned, "positions");
  add_if(!c.tied_embeddings, "head");
  add_if(c.head_bias, "head.bias");
  if (before) add_norm(layer + "attention_norm");
  if (after) add_norm(layer + "attention_post_norm");
  if (before && c.block != BlockForm::parallel_one_norm) add_norm(layer + "mlp_norm");
  if (after) add_norm(layer + "mlp_post_norm");
  add(attention + "qkv");
  add_if(c.attention_bias, attention + "qkv.bias");
  add(attention + "out");
  add_if(c.attention_out_bias, attention + "out.bias");
  if (c.qk_norm != QkNorm::none) add_norm(attention + "q_norm");
  if (c.qk_norm != QkNorm::none) add_norm(attention + "k_norm");
  add(mlp + "up");
  add_if(c.mlp_bias, mlp + "up.bias");
  add(mlp + "down");
  add_if(c.mlp_bias, mlp + "down.bias");
  if (c.final_norm) add_norm("norm");
  return all;
}

}  // namespace

const Family kLoamFamily{"loam", "LoamForCausalLM", "LoamForSequenceClassification", "", "head", {}, read, write,
                         rules};

}  // namespace loam
