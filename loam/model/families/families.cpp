#include "loam/model/families/family.h"

#include <cmath>

#include "loam/base/utf8.h"
#include "loam/config/rope_scaling.h"

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

ModelConfig computed(ModelConfig c) {
  const ModelConfig defaults;
  c.dropout = c.attention_dropout = 0;
  c.init = defaults.init;
  c.init_std = defaults.init_std;
  c.embedding_init_std = defaults.embedding_init_std;
  c.scaled_residual_init = defaults.scaled_residual_init;
  c.zero_init_residual = c.zero_init_head = false;
  if (mup_width(c) == 1) c.mup_base_dim = 0;
  if (c.attention_scale == 0) c.attention_scale = 1 / std::sqrt(static_cast<double>(c.head_dim));
  bool rotates = false;
  for (int64_t layer = 0; layer < c.layers; ++layer) rotates |= layer_position(c, layer) == PositionKind::rope;
  if (!rotates) {
    c.rope_theta = defaults.rope_theta;
    c.window_rope_theta = 0;
    c.rope_dim = 0;
    c.rope_scaling = {};
  } else if (c.rope_scaling.kind == RopeScalingKind::ntk) {
    c.rope_theta = ntk_theta(c.rope_theta, c.rope_dim, c.rope_scaling.factor);
    c.rope_scaling = {};
  }
  return c;
}

}  // namespace

const Family& family_named(const std::string& model_type) {
  for (const Family* family : families()) {
    if (family->name == model_type) return *family;
  }
  fail(ErrorCode::kNotFound, "model family \"{}\" is not known; there are {}", printable(model_type, false, 100),
       known_names());
}

bool computes_the_same(const ModelConfig& a, const ModelConfig& b) {
  return config_to_json(computed(a)) == config_to_json(computed(b));
}

bool can_hold(const Family& family, const ModelConfig& config) {
  const auto changes = changes_as(family, config);
  return changes && changes->empty();
}

std::optional<std::vector<std::string>> changes_as(const Family& family, const ModelConfig& config) {
  if (config.head == HeadKind::scalar && config.head_bias && &family != &kLoamFamily) return std::nullopt;
  try {
    ModelConfig read = derive(family.read(family.write(config)));
    read.rope_pairs = config.rope_pairs;
    read.head = config.head;  // said by the architecture's name
    if (config.head == HeadKind::scalar) read.tied_embeddings = config.tied_embeddings;
    return config_diff(config_to_json(computed(config)), config_to_json(computed(read)));
  } catch (const Error&) {
    return std::nullopt;
  }
}

const Family& family_for(const ModelConfig& config) {
  for (const Family* family : families()) {
    if (can_hold(*family, config)) return *family;
  }
  fail(ErrorCode::kInvalidArgument, "no model family can hold this configuration ({} were tried): {}", known_names(),
       config_to_json(config).dump());
}

}  // namespace loam
