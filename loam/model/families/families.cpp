#include "loam/base/log.h"
#include "loam/model/families/family.h"

namespace loam {

const std::vector<const Family*>& families() {
  static const std::vector<const Family*> all{&kLlamaFamily,  &kMistralFamily, &kQwen2Family, &kQwen3Family,
                                              &kGemma2Family, &kGemma3Family,  &kOlmo2Family, &kSmolLm3Family,
                                              &kPhi3Family,   &kGptNeoxFamily, &kGpt2Family,  &kLoamFamily};
  return all;
}

namespace {

std::string known_names() {
  std::string names;
  for (const Family* family : families()) names += (names.empty() ? "" : ", ") + family->name;
  return names;
}

// What a configuration file need not say: how weights began, what training drops, and the order of rotated rows, which
// is changed where it must be.
ModelConfig computed(ModelConfig c) {
  const ModelConfig defaults;
  c.dropout = c.attention_dropout = 0;
  c.init = defaults.init;
  c.init_std = defaults.init_std;
  c.embedding_init_std = defaults.embedding_init_std;
  c.scaled_residual_init = defaults.scaled_residual_init;
  c.zero_init_residual = c.zero_init_head = false;
  c.rope_pairs = defaults.rope_pairs;
  c.head = defaults.head;
  if (mup_width(c) == 1) c.mup_base_dim = 0;
  return c;
}

}  // namespace

const Family& family_named(const std::string& model_type) {
  for (const Family* family : families()) {
    if (family->name == model_type) return *family;
  }
  fail(ErrorCode::kNotFound, "model family \"{}\" is not known; there are {}", model_type.substr(0, 100),
       known_names());
}

bool can_hold(const Family& family, const ModelConfig& config) {
  if (config.head == HeadKind::scalar && config.head_bias && &family != &kLoamFamily) return false;
  try {
    const ModelConfig read = derive(family.read(family.write(config)));
    ModelConfig wanted = computed(config);
    if (config.head == HeadKind::scalar) wanted.tied_embeddings = read.tied_embeddings;
    return config_to_json(computed(read)) == config_to_json(wanted);
  } catch (const Error&) {
    return false;
  }
}

const Family& family_for(const ModelConfig& config) {
  for (const Family* family : families()) {
    if (can_hold(*family, config)) return *family;
  }
  fail(ErrorCode::kInvalidArgument, "no model family can hold this configuration ({} were tried): {}", known_names(),
       config_to_json(config).dump());
}

std::string classifier_architecture(const Family& family) {
  const std::string& name = family.architecture;
  for (const std::string suffix : {"ForCausalLM", "LMHeadModel"}) {
    if (name.ends_with(suffix)) return name.substr(0, name.size() - suffix.size()) + "ForSequenceClassification";
  }
  return name;
}

}  // namespace loam
