#include "loam/model/families/family.h"

namespace loam {

const std::vector<const Family*>& families() {
  static const std::vector<const Family*> all{&kLlamaFamily, &kGpt2Family};
  return all;
}

namespace {

std::string known_names() {
  std::string names;
  for (const Family* family : families()) names += (names.empty() ? "" : ", ") + family->name;
  return names;
}

}  // namespace

const Family& family_named(const std::string& model_type) {
  for (const Family* family : families()) {
    if (family->name == model_type) return *family;
  }
  fail(ErrorCode::kNotFound, "model family \"{}\" is not known; there are {}", model_type.substr(0, 100),
       known_names());
}

const Family& family_for(const ModelConfig& config) {
  for (const Family* family : families()) {
    if (family->fits(config)) return *family;
  }
  fail(ErrorCode::kInvalidArgument, "no model family can hold this configuration ({} were tried): {}", known_names(),
       config_to_json(config).dump());
}

}  // namespace loam
