// The tokenizer's part of a MODEL directory.
#pragma once

#include <cstdint>

#include "loam/base/file.h"
#include "loam/model/model_files.h"

namespace loam {

// Copies tokenizer.json of `data` into `model` as it is, and writes beside it the tokenizer_config.json with which
// transformers' AutoTokenizer gives the same ids and knows the same special tokens. Returns the token that belongs in
// front of every text: the one that tokenizer.json puts there, else the model's. Without a tokenizer.json: a warning.
int32_t write_model_tokenizer(const Path& data, const Path& directory, const Model& model);

}  // namespace loam
