#include "loam/text/normalizer_steps.h"

#include <utility>

#include "loam/base/error.h"

namespace loam {
namespace {

class PrependStep final : public NormalStep {
 public:
  explicit PrependStep(std::string text) : text_(std::move(text)) {}

  void run(std::string_view input, NormalText& output) const override {
    if (!input.empty()) output.put(text_, {0, 0});
    output.keep(input, 0, input.size());
  }

 private:
  std::string text_;
};

class ReplaceStep final : public NormalStep {
 public:
  explicit ReplaceStep(normal::Replace step) : step_(std::move(step)) {}

  void run(std::string_view input, NormalText& output) const override {
    size_t kept = 0;
    for (size_t at = 0; (at = input.find(step_.pattern, kept)) != std::string_view::npos;) {
      output.keep(input, kept, at);
      kept = at + step_.pattern.size();
      output.put(step_.content, {at, kept});
    }
    output.keep(input, kept, input.size());
  }

 private:
  normal::Replace step_;
};

}  // namespace

std::unique_ptr<const NormalStep> make_step(const NormalizerStep& step) {
  if (const auto* prepend = std::get_if<normal::Prepend>(&step)) return std::make_unique<PrependStep>(prepend->text);
  if (const auto* replace = std::get_if<normal::Replace>(&step);
      replace && !replace->regex && !replace->pattern.empty()) {
    return std::make_unique<ReplaceStep>(*replace);
  }
  fail(ErrorCode::kUnavailable, "a normalizer of this kind");
}

}  // namespace loam
