// What is in a file or directory that loam reads.
#pragma once

#include <string>

#include "loam/base/file.h"
#include "loam/base/json.h"

namespace loam {

// Facts about what `name` is: {"kind": "...", ...}. A MODEL, a run, a checkpoint, a data directory or one of its token
// sets, a tokenizer, a safetensors or GGUF file. "problem" says why a MODEL cannot be loaded. Error{kNotFound}, or
// {kBadFormat} if it is none of these or is damaged.
Json inspect(const std::string& name);
Json inspect_gguf(const Path& path);  // of a GGUF file

}  // namespace loam
