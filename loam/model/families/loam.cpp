// loam's own form, for configurations that no other family holds: config.json has them as they are under "model",
// tensors have the parameters' names.
#include "loam/model/families/family.h"
#include "loam/model/families/settings.h"
#include "loam/model/transformer.h"

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
  ParamStore store;
  const Transformer declared(store, c);
  std::vector<TensorRule> all;
  for (int32_t i = 0; i < store.size(); ++i) all.push_back({store.name(i), store.name(i)});
  return all;
}

}  // namespace

const Family kLoamFamily{"loam", "LoamForCausalLM", "LoamForSequenceClassification", "", "head", {}, read, write,
                         rules};

}  // namespace loam
