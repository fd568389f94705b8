// What reading and writing tokenizers in GGUF files share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace loam::gguf_vocab {

// tokenizer.ggml.token_type
enum TokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

inline std::string key(std::string_view name) { return "tokenizer.ggml." + std::string(name); }

// Stands, as an unused token, for an id that no token has: the file has one for every row of the embedding.
inline std::string filler(int64_t id) { return fmt::format("[PAD{}]", id); }

// Does llama.cpp leave a piece that is a token whole, under this tokenizer.ggml.pre?
bool ignores_merges(std::string_view pre);

}  // namespace loam::gguf_vocab
