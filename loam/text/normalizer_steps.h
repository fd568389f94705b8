// What each step of a normalizer does to a text.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "loam/base/error.h"
#include "loam/text/normalizer.h"

namespace loam {

// The text that a step makes and, if wanted, the range of the step's input that each of its bytes comes from.
class NormalText {
 public:
  // put() fails with Error{kInvalidArgument} where the text would be longer than `limit` bytes.
  NormalText(bool with_origins, size_t limit) : with_origins_(with_origins), limit_(limit) {}

  // Bytes [begin, end) of the input, as they are: each comes from itself.
  void keep(std::string_view input, size_t begin, size_t end) {
    text.append(input, begin, end - begin);
    if (!with_origins_) return;
    for (size_t i = begin; i < end; ++i) origins.push_back({i, i + 1});
  }
  // Bytes that the whole range became.
  void put(std::string_view bytes, TextRange from) {
    LOAM_CHECK(bytes.size() + text.size() <= limit_, "a normalizer makes more than {} bytes of its text", limit_);
    text += bytes;
    if (with_origins_) origins.insert(origins.end(), bytes.size(), from);
  }

  std::string text;
  std::vector<TextRange> origins;

 private:
  bool with_origins_;
  size_t limit_;
};

// A step made ready to run. Thread safety: const members may be called from any thread.
class NormalStep {
 public:
  virtual ~NormalStep() = default;
  virtual void run(std::string_view input, NormalText& output) const = 0;
};
using NormalSteps = std::vector<std::unique_ptr<const NormalStep>>;

// Appends what runs `step`: more than one for BERT's. Errors as those of Normalizer's constructor.
void append_steps(const NormalizerStep& step, NormalSteps& steps);

// What a step leaves of the place before an ASCII space or line end where a text is cut: true if its results on both
// sides of a place are those of the whole.
class CutPlace {
 public:
  bool survives(const NormalizerStep& step);

 private:
  struct Visitor;
  void right_becomes(std::string_view text);
  void spaces_become_plain(std::u32string_view dropped, std::u32string_view kept);

  bool after_solid_ = true;  // no white space ends the left side
  // What may begin the right side: characters that no Unicode form changes or joins to others; "" where it may be
  // anything.
  std::u32string right_ = U" \n\r";
};

}  // namespace loam
