#include "loam/text/normalizer.h"

#include <fmt/format.h>

#include <utility>

#include "loam/base/error.h"
#include "loam/base/hash.h"
#include "loam/base/utf8.h"
#include "loam/text/byte_alphabet.h"
#include "loam/text/normalizer_steps.h"

namespace loam {
namespace {

constexpr size_t kMostSteps = 64;
constexpr size_t kMostGrowth = 64, kFreeBytes = 1 << 20;

size_t most_bytes(std::string_view text) { return kFreeBytes + kMostGrowth * text.size(); }

// Where a range of a step's input was in the text before. `before` says it of each byte of that input.
TextRange traced(TextRange range, const std::vector<TextRange>& before) {
  const auto [begin, end] = range;
  if (begin < end) return {before[begin].begin, before[end - 1].end};
  if (before.empty()) return {};
  if (begin == 0) return {before[0].begin, before[0].begin};
  const size_t left = before[begin - 1].end;
  // Between two bytes of one range there is no place: the range is taken.
  if (begin < before.size() && before[begin].begin < left) return {before[begin].begin, left};
  return {left, left};
}

// Between quotes, so that no two texts look the same.
std::string in_quotes(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return '"' + printable(escaped) + '"';
}

struct Describer {
  std::string operator()(const normal::UnicodeForm& step) const {
    return fmt::format("NF{}{}", step.compatible ? "K" : "", step.composed ? "C" : "D");
  }
  std::string operator()(const normal::Lowercase&) const { return "lower case"; }
  std::string operator()(const normal::StripAccents&) const { return "no marks"; }
  std::string operator()(const normal::Strip& step) const {
    return fmt::format("strip{}{}", step.left ? " left" : "", step.right ? " right" : "");
  }
  std::string operator()(const normal::Replace& step) const {
    return fmt::format("replace {}{} by {}", step.regex ? "regex " : "", in_quotes(step.pattern),
                       in_quotes(step.content));
  }
  std::string operator()(const normal::Prepend& step) const { return "prepend " + in_quotes(step.text); }
  std::string operator()(const normal::Bert& step) const {
    return fmt::format("bert{}{}{}{}", step.clean_text ? " clean" : "", step.chinese_chars ? " ideographs" : "",
                       step.strip_accents ? " no accents" : "", step.lowercase ? " lower case" : "");
  }
  std::string operator()(const normal::Nmt&) const { return "nmt"; }
  std::string operator()(const normal::Precompiled& step) const {
    std::string kept;
    for (const std::string& text : step.kept) kept += " " + to_byte_alphabet(text);
    return fmt::format("table {}{}{}", hash_hex(step.table), step.longest_match ? " longest match" : "", kept);
  }
};

}  // namespace

struct Normalizer::State {
  std::vector<NormalizerStep> steps;
  NormalSteps ready;
  std::string description;
  bool cuts_before_spaces = true;
};

Normalizer::Normalizer(std::vector<NormalizerStep> steps) {
  LOAM_CHECK(steps.size() <= kMostSteps, "a normalizer of {} steps, more than {}", steps.size(), kMostSteps);
  if (steps.empty()) return;
  auto state = std::make_shared<State>();
  CutPlace cut;
  for (const NormalizerStep& step : steps) {
    append_steps(step, state->ready);
    if (!state->description.empty()) state->description += ", ";
    state->description += std::visit(Describer{}, step);
    state->cuts_before_spaces = state->cuts_before_spaces && cut.survives(step);
  }
  state->steps = std::move(steps);
  state_ = std::move(state);
}

const std::vector<NormalizerStep>& Normalizer::steps() const {
  static const std::vector<NormalizerStep> none;
  return state_ ? state_->steps : none;
}

std::string Normalizer::description() const { return state_ ? state_->description : ""; }

bool Normalizer::cuts_before_spaces() const { return !state_ || state_->cuts_before_spaces; }

std::string Normalizer::apply(std::string_view text) const {
  std::string result(text);
  if (!state_) return result;
  for (const auto& step : state_->ready) {
    NormalText output(false, most_bytes(text));
    output.text.reserve(result.size());
    step->run(result, output);
    result = std::move(output.text);
  }
  return result;
}

std::string Normalizer::apply(std::string_view text, std::vector<TextRange>& origins) const {
  NormalText result(true, most_bytes(text));
  result.keep(text, 0, text.size());
  if (state_) {
    for (const auto& step : state_->ready) {
      NormalText output(true, most_bytes(text));
      step->run(result.text, output);
      for (TextRange& range : output.origins) range = traced(range, result.origins);
      result = std::move(output);
    }
  }
  origins = std::move(result.origins);
  return std::move(result.text);
}

}  // namespace loam
