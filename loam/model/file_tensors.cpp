#include "loam/model/file_tensors.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "loam/base/utf8.h"

namespace loam {
namespace {

constexpr const char* kScalarHead = "score.weight";  // of every family's ForSequenceClassification

std::string with_layer(const std::string& pattern, int64_t layer) {
  const size_t at = pattern.find("{}");
  return at == std::string::npos ? pattern : pattern.substr(0, at) + std::to_string(layer) + pattern.substr(at + 2);
}

std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8, kLongest = 100;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i)
    text += (i ? ", " : "") + printable(names[i], false, kLongest);
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
  return text;
}

}  // namespace

std::vector<TensorRule> rules_of_layers(const Family& family, const ModelConfig& config) {
  std::vector<TensorRule> rules = family.rules(config);
  if (config.head == HeadKind::scalar && &family != &kLoamFamily) {
    for (TensorRule& rule : rules) {
      if (rule.param == "head") rule.file_name = kScalarHead;
    }
  }
  const auto is_layered = [](const TensorRule& rule) { return rule.file_name.find("{}") != std::string::npos; };
  const auto first = std::find_if(rules.begin(), rules.end(), is_layered);
  const auto last = std::find_if_not(first, rules.end(), is_layered);
  std::vector<TensorRule> all(rules.begin(), first);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    for (auto rule = first; rule != last; ++rule) {
      all.push_back(*rule);
      all.back().file_name = with_layer(rule->file_name, layer);
      all.back().param = with_layer(rule->param, layer);
    }
  }
  all.insert(all.end(), last, rules.end());
  return all;
}

FileTensors::FileTensors(const Path& directory, const Family& family)
    : directory_(directory), files_(directory), family_(family) {
  const std::vector<std::string> names = files_.names();
  bare_ = std::none_of(names.begin(), names.end(), [&](const std::string& n) { return n.starts_with(family.prefix); });
}

std::string FileTensors::real_name(const std::string& name) const {
  return bare_ && name.starts_with(family_.prefix) ? name.substr(family_.prefix.size()) : name;
}

void FileTensors::check(const std::vector<std::pair<std::string, Shape>>& expected, bool tied) const {
  std::vector<std::string> missing, left_over;
  std::set<std::string> wanted;
  for (const auto& [name, shape] : expected) {
    wanted.insert(real_name(name));
    if (!contains(name)) missing.push_back(real_name(name));
  }
  for (const std::string& name : files_.names()) {
    const bool ignored = std::any_of(family_.ignored_suffixes.begin(), family_.ignored_suffixes.end(),
                                     [&](const std::string& suffix) { return name.ends_with(suffix); });
    if (!ignored && !wanted.contains(name) && !(tied && name == family_.head)) left_over.push_back(name);
  }
  if (!missing.empty() || !left_over.empty()) {
    std::string what;
    if (!missing.empty()) what = fmt::format("{} tensors are missing: {}", missing.size(), listed(missing));
    if (!left_over.empty()) {
      what +=
          fmt::format("{}{} tensors belong nowhere: {}", what.empty() ? "" : "; ", left_over.size(), listed(left_over));
    }
    fail(ErrorCode::kBadFormat, "{}: {}", directory_.string(), what);
  }
  for (const auto& [name, shape] : expected) check_one(name, shape);
}

void FileTensors::check_one(const std::string& name, const Shape& shape) const {
  const Tensor t = tensor(name);
  if (t.shape() != shape) {
    fail(ErrorCode::kBadFormat, "{}: {} has shape {}, the configuration makes {}", directory_.string(), name,
         t.shape().str(), shape.str());
  }
  if (!is_float(t.dtype())) {
    fail(ErrorCode::kBadFormat, "{}: {} has dtype {}, not a float type", directory_.string(), name,
         dtype_name(t.dtype()));
  }
}

void FileTensors::check_tied_head(const std::string& embedding) const {
  if (!contains(family_.head)) return;
  const Tensor head = tensor(family_.head), table = tensor(embedding);
  const bool equal = head.shape() == table.shape() && head.dtype() == table.dtype() &&
                     std::memcmp(head.view().data, table.view().data, static_cast<size_t>(head.bytes())) == 0;
  if (!equal) {
    fail(ErrorCode::kBadFormat, "{}: the configuration ties the head to the embedding, but {} differs from {}",
         directory_.string(), family_.head, embedding);
  }
}

}  // namespace loam
