// Mistral: Llama without biases, with a window in every layer. Jiang et al. 2023.
#include "loam/model/families/llama_like.h"

namespace loam {
namespace {

ModelConfig read(const Json& json) {
  Settings s(json);
  LlamaDefaults defaults;
  if (!json.find("num_key_value_heads")) defaults.kv_heads = 8;
  ModelConfig c = read_llama_like(s, defaults);
  c.window = read_window(json, s);
  read_rope(s, c);
  s.finish();
  return c;
}

Json write(const ModelConfig& c) {
  Json json = write_llama_like(c);
  json["sliding_window"] = c.window > 0 ? Json(c.window) : Json();
  write_rope(json, c);
  return json;
}

}  // namespace

const Family kMistralFamily{"mistral",
                            "MistralForCausalLM",
                            "MistralForSequenceClassification",
                            "model.",
                            "lm_head.weight",
                            {".rotary_emb.inv_freq"},
                            read,
                            write,
                            llama_rules};

}  // namespace loam
