// config.json and generation_config.json of a MODEL directory.
#pragma once

#include <cstdint>
#include <vector>

#include "loam/base/file.h"
#include "loam/config/model_config.h"
#include "loam/model/families/family.h"

namespace loam {

struct ModelFileConfig {
  const Family* family;
  ModelConfig config;            // derived
  int32_t bos_id = -1;           // -1: not stated
  std::vector<int32_t> eos_ids;  // inside the vocabulary, like bos_id
};

// What generation_config.json says of bos_token_id and eos_token_id goes before what config.json says; ids beyond the
// vocabulary are ignored with a warning. Error{kNotFound, kIo}, or {kBadFormat} that names the file and the key.
ModelFileConfig read_model_config(const Path& directory);

}  // namespace loam
