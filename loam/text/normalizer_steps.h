// What each step of a normalizer does to a text.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "loam/text/normalizer.h"

namespace loam {

// The text that a step makes and, if wanted, the range of the step's input that each of its bytes comes from.
class NormalText {
 public:
  explicit NormalText(bool with_origins) : with_origins_(with_origins) {}

  // Bytes [begin, end) of the input, as they are: each comes from itself.
  void keep(std::string_view input, size_t begin, size_t end) {
    text.append(input, begin, end - begin);
    if (!with_origins_) return;
    for (size_t i = begin; i < end; ++i) origins.push_back({i, i + 1});
  }
  // Bytes that the whole range became.
  void put(std::string_view bytes, TextRange from) {
    text += bytes;
    if (with_origins_) origins.insert(origins.end(), bytes.size(), from);
  }

  std::string text;
  std::vector<TextRange> origins;

 private:
  bool with_origins_;
};

// A step made ready to run. Thread safety: const members may be called from any thread.
class NormalStep {
 public:
  virtual ~NormalStep() = default;
  virtual void run(std::string_view input, NormalText& output) const = 0;
};

// Errors as those of Normalizer's constructor.
std::unique_ptr<const NormalStep> make_step(const NormalizerStep& step);

}  // namespace loam
