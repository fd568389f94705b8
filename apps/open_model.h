// From names on the command line to models and tokenizers.
#pragma once

#include <optional>
#include <string>

#include "loam/base/json.h"
#include "loam/kernels/exec_context.h"
#include "loam/model/model_files.h"
#include "loam/text/tokenizer.h"

namespace loam {

// A MODEL: a directory in Hugging Face form, "hf:org/name" from the local Hugging Face cache, or a llama2.c .bin file.
// Error that says what would be accepted for anything else.
Model open_model(const ExecContext& ctx, const std::string& name, DType dtype);

// A TOKENIZER as given by `name`, or, if that is empty, the one that belongs to the MODEL `model`.
// A llama2.c tokenizer.bin is recognised by its name; `vocab_size` is what the model says, -1 if unknown.
Tokenizer open_tokenizer(const std::string& name, const std::string& model, int64_t vocab_size);

// "hf:org/name" becomes the snapshot directory of the local cache ($HF_HUB_CACHE, $HF_HOME/hub or
// ~/.cache/huggingface/hub); any other name is itself.
Path resolve_model(const std::string& name);

// "model directory", "training run", "training checkpoint", "data directory", "token set" or "tokenizer"; "" for any
// other directory.
std::string kind_of_directory(const Path& directory);

// Facts about a tokenizer: kind, sizes, special ids, fingerprint.
Json describe_tokenizer(const Tokenizer& tokenizer);

// The TOKENIZER `name` for the MODEL `model_name`, as open_tokenizer(), and checked.
Tokenizer open_tokenizer_for(const Model& model, const std::string& model_name, const std::string& name);
// Error unless every id of the tokenizer `name` ("": the one beside the model) has a row in the model's embedding. A
// warning if it is another one than the model records or, without a record, than the one that lies beside it.
void check_tokenizer(const Tokenizer& tokenizer, const std::string& name, const Model& model,
                     const std::string& model_name);
// The same of a model with `vocab_size` rows that records the fingerprint `recorded`, or "".
void check_tokenizer(const Tokenizer& tokenizer, const std::string& name, int64_t vocab_size,
                     const std::string& recorded, const std::string& model_name);

}  // namespace loam
