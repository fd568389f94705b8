#include "loam/train/run_summary.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "loam/base/error.h"

namespace loam {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxMetrics = int64_t{1} << 34;

// Whether a process trains there. The lock is asked for without waiting and given back at once.
bool is_locked(const Path& directory) {
  const int fd = ::open((directory / ".lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool locked = ::flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(fd);
  return locked;
}

std::vector<Json> read_records(const Path& path) {
  std::vector<Json> records;
  if (!fs::exists(path)) return records;
  const std::string text = read_file(path, kMaxMetrics);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    try {
      Json record = Json::parse(std::string_view(text).substr(begin, end - begin));
      record.at("step").as_int();
      record.at("kind").as_string();
      records.push_back(std::move(record));
    } catch (const Error&) {  // torn by a kill, or being written
    }
    begin = end + 1;
  }
  return records;
}

bool is_kind(const Json& record, const std::string& kind) { return record.at("kind").as_string() == kind; }

std::optional<double> number_of(const Json& record, const std::string& member) {
  const Json* value = record.find(member);
  return value && value->is_number() ? std::optional(value->as_double()) : std::nullopt;
}

std::string set_of(const Json& record) {
  const Json* set = record.find("set");
  return set && set->is_string() ? set->as_string() : "";
}

// Whether a record is one of the kind, and if that is "val", of the set that counts.
bool counts_as(const RunInfo& run, const Json& record, const std::string& kind) {
  return is_kind(record, kind) && (kind != "val" || set_of(record) == run.val_set);
}

void add_record(RunInfo& run, const Json& record) {
  run.step = std::max(run.step, record.at("step").as_int());
  if (const auto time = number_of(record, "time")) run.seconds = std::max(run.seconds, *time);
  if (is_kind(record, "start")) {
    if (const auto parameters = number_of(record, "parameters")) run.parameters = static_cast<int64_t>(*parameters);
  } else if (is_kind(record, "train")) {
    run.loss = number_of(record, "loss");
    run.tokens_per_second = number_of(record, "tokens_per_second");
    if (const auto tokens = number_of(record, "tokens")) run.tokens = static_cast<int64_t>(*tokens);
    for (const char* key : {"kwh", "energy_cost", "machine_cost"}) {
      if (const auto cost = number_of(record, key)) run.cost[key] = *cost;
    }
  } else if (counts_as(run, record, "val")) {
    run.val_loss = number_of(record, "loss");
    run.bits_per_byte = number_of(record, "bits_per_byte");
    if (run.val_loss) run.best_val_loss = std::min(run.best_val_loss.value_or(*run.val_loss), *run.val_loss);
  }
}

void flatten(const Json& json, const std::string& prefix, std::vector<std::pair<std::string, Json>>& out) {
  for (const auto& [key, value] : json.as_object()) {
    const std::string name = prefix.empty() ? key : prefix + "." + key;
    if (value.is_object()) {
      flatten(value, name, out);
    } else {
      out.emplace_back(name, value);
    }
  }
}

// The records that have a y of a plot, and what it is called there.
struct Source {
  std::string kind, member, set;
};
Source source_of(const RunInfo& run, const std::string& y) {
  if (y == "val") return {"val", "loss", run.val_set};
  if (y.starts_with("val/")) return {"val", "loss", y.substr(4)};
  if (y == "bits_per_byte") return {"val", y, run.val_set};
  return {"train", y, ""};
}

[[noreturn]] void fail_no_curve(const RunInfo& run, const std::string& y) {
  std::set<std::string> names;
  for (const Json& record : run.records) {
    for (const auto& [key, value] : record.as_object()) {
      if (!value.is_number() || key == "step" || key == "time") continue;
      if (is_kind(record, "train")) names.insert(key);
      if (is_kind(record, "val") && key != "targets")
        names.insert(key != "loss" ? key : set_of(record).empty() ? "val" : "val/" + set_of(record));
    }
  }
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  fail(ErrorCode::kInvalidArgument, "{}: its metrics have no \"{}\"; there are: {}", run.directory.string(), y,
       list.empty() ? "none yet" : list);
}

}  // namespace

bool is_run(const Path& directory) {
  try {
    const Json json = Json::parse(read_file(directory / "config.json", int64_t{1} << 24));
    return json.at("model").is_object() && json.at("optimizer").is_object() && json.at("steps").is_int();
  } catch (const Error&) {
    return false;
  }
}

RunInfo read_run(const Path& directory) {
  std::error_code ignored;
  if (!is_run(directory)) {
    fail(ErrorCode::kNotFound, "{}: {}", directory.string(),
         fs::exists(directory, ignored) ? "not the directory of a run" : "there is no such directory");
  }
  RunInfo run;
  run.directory = directory;
  run.config = Json::parse(read_file(directory / "config.json"));
  run.steps = run.config.at("steps").as_int();
  try {
    run.id = Json::parse(read_file(directory / "run.json", kMaxMetrics)).at("id").as_string();
  } catch (const Error&) {  // an older run
  }
  run.records = read_records(directory / "metrics.jsonl");
  const auto first =
      std::find_if(run.records.begin(), run.records.end(), [](const Json& r) { return is_kind(r, "val"); });
  if (first != run.records.end()) run.val_set = set_of(*first);
  for (const Json& record : run.records) add_record(run, record);
  const bool stopped = !run.records.empty() && is_kind(run.records.back(), "stopped");
  run.status = is_locked(directory)                                                ? "running"
               : stopped                                                           ? "stopped"
               : run.step >= run.steps && fs::exists(directory / "model", ignored) ? "finished"
                                                                                   : "interrupted";
  return run;
}

std::vector<Path> find_runs(const std::vector<std::string>& directories) {
  std::vector<Path> runs;
  for (const std::string& name : directories) {
    std::error_code error;
    if (!fs::is_directory(name, error)) fail(ErrorCode::kNotFound, "{}: there is no such directory", name);
    if (is_run(name)) {
      runs.emplace_back(name);
      continue;
    }
    std::vector<Path> below;
    for (const auto& entry : fs::directory_iterator(name, error)) {
      if (entry.is_directory(error) && is_run(entry.path())) below.push_back(entry.path());
    }
    std::sort(below.begin(), below.end());
    runs.insert(runs.end(), below.begin(), below.end());
  }
  return runs;
}

std::vector<std::pair<std::string, std::vector<Json>>> differing_settings(const std::vector<RunInfo>& runs) {
  std::vector<std::string> names;  // in the order of the first run that has them
  std::map<std::string, std::vector<Json>> values;
  for (size_t i = 0; i < runs.size(); ++i) {
    std::vector<std::pair<std::string, Json>> settings;
    flatten(runs[i].config, "", settings);
    for (auto& [name, value] : settings) {
      const auto [found, added] = values.try_emplace(name, runs.size());
      if (added) names.push_back(name);
      found->second[i] = std::move(value);
    }
  }
  std::vector<std::pair<std::string, std::vector<Json>>> differing;
  for (const std::string& name : names) {
    const std::vector<Json>& row = values.at(name);
    if (!std::all_of(row.begin(), row.end(), [&](const Json& v) { return v == row[0]; }))
      differing.emplace_back(name, row);
  }
  return differing;
}

std::optional<double> number_at(const RunInfo& run, const std::string& kind, int64_t step, const std::string& member) {
  for (const Json& record : run.records) {
    if (counts_as(run, record, kind) && record.at("step").as_int() == step) return number_of(record, member);
  }
  return std::nullopt;
}

std::optional<int64_t> last_common_step(const std::vector<RunInfo>& runs, const std::string& kind) {
  std::map<int64_t, size_t> seen;
  for (const RunInfo& run : runs) {
    std::set<int64_t> steps;
    for (const Json& record : run.records) {
      if (counts_as(run, record, kind)) steps.insert(record.at("step").as_int());
    }
    for (const int64_t step : steps) ++seen[step];
  }
  for (auto step = seen.rbegin(); step != seen.rend(); ++step) {
    if (step->second == runs.size()) return step->first;
  }
  return std::nullopt;
}

std::vector<std::pair<double, double>> curve_of(const RunInfo& run, PlotAxis x, const std::string& y, int64_t smooth) {
  const Source source = source_of(run, y);
  std::vector<std::pair<double, double>> points;
  double tokens_per_step = 0;
  bool known = false;
  for (const Json& record : run.records) {
    if (const auto tokens = number_of(record, "tokens_per_step")) tokens_per_step = *tokens;
    if (!is_kind(record, source.kind) || set_of(record) != source.set || !record.find(source.member)) continue;
    known = true;
    const auto value = number_of(record, source.member);
    if (!value) continue;  // not finite
    const double step = record.at("step").as_double();
    points.emplace_back(x == PlotAxis::step     ? step
                        : x == PlotAxis::tokens ? step * tokens_per_step
                                                : number_of(record, "time").value_or(std::nan("")),
                        *value);
  }
  if (!known) fail_no_curve(run, y);
  std::vector<std::pair<double, double>> smoothed;
  double sum = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    sum += points[i].second;
    if (i >= static_cast<size_t>(smooth)) sum -= points[i - static_cast<size_t>(smooth)].second;
    smoothed.emplace_back(points[i].first, sum / static_cast<double>(std::min(i + 1, static_cast<size_t>(smooth))));
  }
  return smoothed;
}

}  // namespace loam
