// The vocabulary in the metadata of a GGUF file, version 3 (ggml's docs/gguf.md), for tests that compare with ids of
// other programs.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "loam/base/error.h"

namespace loam::testing {

struct GgufVocab {
  std::vector<std::string> tokens, merges;  // in GPT-2's alphabet
};

class GgufReader {
 public:
  explicit GgufReader(std::string_view bytes) : rest_(bytes) {}

  GgufVocab read() {
    if (take(4) != "GGUF" || number<uint32_t>() != 3) fail(ErrorCode::kBadFormat, "GGUF: no file of version 3");
    number<uint64_t>();  // tensors
    const uint64_t keys = number<uint64_t>();
    GgufVocab vocab;
    for (uint64_t i = 0; i < keys; ++i) {
      const std::string_view key = text();
      const uint32_t type = number<uint32_t>();
      if (key == "tokenizer.ggml.tokens") {
        vocab.tokens = texts();
      } else if (key == "tokenizer.ggml.merges") {
        vocab.merges = texts();
      } else {
        skip(type);
      }
    }
    return vocab;
  }

 private:
  static constexpr uint32_t kString = 8, kArray = 9;

  std::string_view take(uint64_t count) {
    if (count > rest_.size()) fail(ErrorCode::kBadFormat, "GGUF: cut short");
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string_view text() { return take(number<uint64_t>()); }
  std::vector<std::string> texts() {
    if (number<uint32_t>() != kString) fail(ErrorCode::kBadFormat, "GGUF: expected strings");
    std::vector<std::string> all;
    for (uint64_t n = number<uint64_t>(); n > 0; --n) all.emplace_back(text());
    return all;
  }
  void skip(uint32_t type) {
    constexpr uint64_t kSizes[13] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type > 12) fail(ErrorCode::kBadFormat, "GGUF: type {}", type);
    if (type == kString) {
      text();
    } else if (type == kArray) {
      const uint32_t element = number<uint32_t>();
      for (uint64_t n = number<uint64_t>(); n > 0; --n) skip(element);
    } else {
      take(kSizes[type]);
    }
  }

  std::string_view rest_;
};

}  // namespace loam::testing
