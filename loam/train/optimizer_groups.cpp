#include "loam/train/optimizer_groups.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "loam/base/suggest.h"
#include "loam/model/transformer.h"

namespace loam {
namespace {

// * stands for any number of characters, ? for one.
bool matches(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = pattern.npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p, ++n;
    } else if (star != pattern.npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == pattern.npos;
}

bool matches(const OptimizerGroupConfig& group, const ParamSpec& spec) {
  return group.match == param_class(spec) || matches(group.match, spec.name);
}

// The last entry of `groups` that matches counts; -1: none does.
int64_t entry_of(const ParamSpec& spec, const std::vector<OptimizerGroupConfig>& groups) {
  auto entry = static_cast<int64_t>(groups.size()) - 1;
  while (entry >= 0 && !matches(groups[static_cast<size_t>(entry)], spec)) --entry;
  return entry;
}

[[noreturn]] void fail_unmatched(const ParamStore& store, const OptimizerConfig& config, size_t entry) {
  std::vector<std::string> names{"embedding", "head", "matrix", "vector"};
  for (int32_t i = 0; i < store.size(); ++i) names.push_back(store.spec(i).name);
  const std::string& match = config.groups[entry].match;
  const std::string near = nearest_name(match, names);
  std::string advice = near.empty() || near == match ? "" : fmt::format("; the nearest name is \"{}\"", near);
  if (match == "head") advice = ": the embedding is its head, too (model.tied_embeddings)";
  fail(ErrorCode::kInvalidArgument, "optimizer.groups[{}].match \"{}\" names no parameter of the model{}", entry, match,
       advice);
}

// Of a derived configuration, an entry of `groups` that counts for these parameters.
void check_entry(const OptimizerConfig& config, size_t entry, const std::vector<ParamSettings>& params) {
  const OptimizerGroupConfig& group = config.groups[entry];
  const std::string name = fmt::format("optimizer.groups[{}]", entry);
  LOAM_CHECK(!params.empty(), "{} (\"{}\") has no effect: entries behind it match all of its parameters", name,
             group.match);
  const OptimizerKind kind = group.kind.value_or(config.kind);
  const auto is_orthogonal = [](const ParamSettings& p) { return p.orthogonal; };
  LOAM_CHECK(group.kind != OptimizerKind::muon || std::any_of(params.begin(), params.end(), is_orthogonal),
             "{}.kind muon has no effect: Muon trains matrices of the layers and \"{}\" matches none; adamw is what "
             "trains all else",
             name, group.match);
  const bool all_orthogonal = std::all_of(params.begin(), params.end(), is_orthogonal);
  OptimizerGroupConfig bare;
  bare.kind = group.kind;
  const RuleSettings usual = rule_settings(config, bare);
  const auto check = [&](const char* key, const std::optional<double>& value, double filled_in, bool has_use) {
    if (!value || (has_use && !all_orthogonal) || (group.kind && *value == filled_in)) return;
    fail(ErrorCode::kInvalidArgument, "{}.{} has no effect: {} has no use for it", name, key,
         all_orthogonal ? "Muon, which trains all that the entry matches," : config_detail::to_json(kind).as_string());
  };
  check("beta1", group.beta1, usual.beta1, has_betas(kind));
  check("beta2", group.beta2, usual.beta2, has_betas(kind));
  check("eps", group.eps, usual.eps, has_eps(kind));
}

// The matrices of a parameter that begins at `begin`: its slices are matrices of their own.
void add_matrices(const ParamSpec& spec, int64_t begin, std::vector<OptimMatrix>& matrices) {
  const int64_t cols = spec.shape[1];
  if (spec.slices.empty()) matrices.push_back({begin, spec.shape[0], cols});
  for (const RowSlice& slice : spec.slices) matrices.push_back({begin + slice.begin * cols, slice.rows, cols});
}

// Maximal update parametrisation makes Adam's rates of hidden matrices smaller with their width. The steps of Muon have
// by themselves the spectral norm that it asks for; those scaled to the size of Adam's are longer by the width's root.
double width_scale(const ParamSpec& spec, const OptimizerConfig& config, bool orthogonal) {
  if (!orthogonal) return spec.lr_scale;
  return config.muon_scale == MuonScale::original ? 1 : std::sqrt(spec.lr_scale);
}

}  // namespace

const char* param_class(const ParamSpec& spec) {
  switch (spec.kind) {
    case ParamKind::embedding:
      return "embedding";
    case ParamKind::matrix:
      return spec.layer < 0 ? "head" : "matrix";
    case ParamKind::vector:
      return "vector";
  }
  fail(ErrorCode::kInternal, "a parameter of no kind");
}

std::vector<ParamSettings> param_settings(const ParamStore& store, const OptimizerConfig& config) {
  std::vector<ParamSettings> all;
  for (int32_t i = 0; i < store.size(); ++i) {
    const ParamSpec& spec = store.spec(i);
    const int64_t entry = entry_of(spec, config.groups);
    const OptimizerGroupConfig own = entry < 0 ? OptimizerGroupConfig{} : config.groups[static_cast<size_t>(entry)];
    const RuleSettings rule = rule_settings(config, own);
    const bool is_hidden_matrix = spec.kind == ParamKind::matrix && spec.layer >= 0 && spec.shape.rank() == 2;
    const bool orthogonal = rule.kind == OptimizerKind::muon && is_hidden_matrix;
    const double decay = spec.kind == ParamKind::vector ? config.weight_decay_vectors : config.weight_decay;
    all.push_back(
        {width_scale(spec, config, orthogonal) * own.lr_scale, own.weight_decay.value_or(decay), orthogonal, rule});
  }
  for (size_t g = 0; g < config.groups.size(); ++g) {
    bool found = false;
    for (int32_t i = 0; i < store.size(); ++i) found |= matches(config.groups[g], store.spec(i));
    if (!found) fail_unmatched(store, config, g);
  }
  return all;
}

void check_optimizer_groups(const TrainConfig& config) {
  if (config.optimizer.groups.empty()) return;
  ParamStore store;
  const Transformer transformer(store, config.model);
  const std::vector<ParamSettings> settings = param_settings(store, config.optimizer);
  std::vector<std::vector<ParamSettings>> by_entry(config.optimizer.groups.size());
  for (int32_t i = 0; i < store.size(); ++i) {
    const int64_t entry = entry_of(store.spec(i), config.optimizer.groups);
    if (entry >= 0) by_entry[static_cast<size_t>(entry)].push_back(settings[static_cast<size_t>(i)]);
  }
  for (size_t entry = 0; entry < by_entry.size(); ++entry) check_entry(config.optimizer, entry, by_entry[entry]);
}

std::string other_kind(const OptimizerConfig& before, const TrainConfig& config) {
  if (before.groups.empty() && config.optimizer.groups.empty()) return "";
  ParamStore store;
  const Transformer transformer(store, config.model);
  const std::vector<ParamSettings> old = param_settings(store, before), now = param_settings(store, config.optimizer);
  for (int32_t i = 0; i < store.size(); ++i) {
    const OptimizerKind was = old[static_cast<size_t>(i)].rule.kind, is = now[static_cast<size_t>(i)].rule.kind;
    if (was == is) continue;
    return fmt::format("{} was trained with {}, whose state {} cannot go on from", store.spec(i).name,
                       config_detail::to_json(was).as_string(), config_detail::to_json(is).as_string());
  }
  return "";
}

OptimizerGroups optimizer_groups(ParamStore& store, const OptimizerConfig& config) {
  const std::vector<ParamSettings> settings = param_settings(store, config);
  OptimizerGroups out;
  out.places.resize(settings.size());
  for (const ParamGroup& group : store.groups()) {
    if (!group.gradient) continue;
    const auto offset = [&](size_t k) {
      return k < group.params.size() ? store.offset_in_group(group.params[k]) : group.weight.numel();
    };
    const auto settings_of = [&](size_t k) { return settings[static_cast<size_t>(group.params[k])]; };
    for (size_t first = 0, end = 0; first < group.params.size(); first = end) {
      const ParamSettings shared = settings_of(first);
      const int64_t begin = offset(first);
      OptimGroup run;
      run.name = fmt::format("group.{}", out.groups.size());
      for (end = first; end < group.params.size() && settings_of(end) == shared; ++end) {
        out.places[static_cast<size_t>(group.params[end])] = {static_cast<int32_t>(out.groups.size()),
                                                              offset(end) - begin};
        if (shared.orthogonal) add_matrices(store.spec(group.params[end]), offset(end) - begin, run.matrices);
      }
      run.weight = group.weight.narrow(0, begin, offset(end) - begin);
      run.gradient = group.gradient.narrow(0, begin, offset(end) - begin);
      run.weight_decay = shared.weight_decay;
      run.lr_scale = shared.lr_scale;
      run.rule = shared.rule;
      out.groups.push_back(std::move(run));
    }
  }
  return out;
}

}  // namespace loam
