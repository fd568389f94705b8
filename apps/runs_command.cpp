// `loam runs ls` and `loam runs compare`: what was trained, in a table; and runs side by side.
#include <memory>

#include "apps/commands.h"
#include "apps/options.h"
#include "loam/base/log.h"
#include "loam/base/progress.h"
#include "loam/base/utf8.h"
#include "loam/train/run_summary.h"

namespace loam {
namespace {

using Table = std::vector<std::vector<std::string>>;

// Columns as wide as their widest entry.
void print_table(const Table& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i)
      line += i + 1 < row.size() ? fmt::format("{:<{}}  ", row[i], widths[i]) : row[i];
    print(line);
  }
}

std::string shown(const std::optional<double>& value, const char* format = "{:.4f}") {
  return value ? fmt::format(fmt::runtime(format), *value) : "-";
}
std::string counted(const std::optional<double>& value) { return value ? format_count(*value) : "-"; }
std::optional<double> as_double(const std::optional<int64_t>& value) {
  return value ? std::optional(static_cast<double>(*value)) : std::nullopt;
}
Json or_null(const std::optional<int64_t>& value) { return value ? Json(*value) : Json(); }

std::string name_of(const RunInfo& run) {
  const Path name = run.directory.filename().empty() ? run.directory.parent_path() : run.directory;
  return printable(name.filename().string());
}

Json describe(const RunInfo& run) {
  Json json = Json::Object{{"name", name_of(run)},
                           {"directory", run.directory.string()},
                           {"id", run.id.empty() ? Json() : Json(run.id)},
                           {"status", run.status},
                           {"step", run.step},
                           {"steps", run.steps},
                           {"loss", run.loss},
                           {"val_loss", run.val_loss},
                           {"best_val_loss", run.best_val_loss},
                           {"bits_per_byte", run.bits_per_byte},
                           {"tokens", or_null(run.tokens)},
                           {"tokens_per_second", run.tokens_per_second},
                           {"seconds", run.seconds},
                           {"parameters", or_null(run.parameters)}};
  for (const auto& [key, value] : run.cost.as_object()) json[key] = value;
  return json;
}

int list_runs(std::vector<std::string> directories, const CommonFlags& flags) {
  if (directories.empty()) directories = {"runs"};
  const std::vector<Path> found = find_runs(directories);
  Table table{{"NAME", "ID", "STATUS", "STEP", "LOSS", "BEST VAL", "TOKENS", "TOK/S", "TIME", "PARAMS"}};
  for (const Path& path : found) {
    RunInfo run;
    try {
      run = read_run(path);
    } catch (const Error& error) {
      log_warn("{}: left out: {}", printable(path.string()), error.what());
      continue;
    }
    if (flags.json) print(describe(run).dump());
    table.push_back({name_of(run), run.id.empty() ? "-" : printable(run.id), run.status,
                     fmt::format("{}/{}", run.step, run.steps), shown(run.loss), shown(run.best_val_loss),
                     counted(as_double(run.tokens)), counted(run.tokens_per_second), format_duration(run.seconds),
                     counted(as_double(run.parameters))});
  }
  if (flags.json) return 0;
  if (found.empty()) {
    print("no runs");
  } else {
    print_table(table);
  }
  return 0;
}

int compare(const std::vector<std::string>& names, const CommonFlags& flags) {
  if (names.size() < 2) throw UsageError("name at least two runs");
  std::vector<RunInfo> runs;
  for (const std::string& name : names) runs.push_back(read_run(name));
  Json settings = Json::object(), report = Json::Object{{"runs", Json::array()}};
  Table table{{"setting"}};
  for (size_t i = 0; i < runs.size(); ++i) {
    report["runs"].push_back(describe(runs[i]));
    table[0].push_back(printable(names[i]));
  }
  for (const auto& [setting, values] : differing_settings(runs)) {
    settings[setting] = Json(values);
    table.push_back({printable(setting)});
    for (const Json& value : values) table.back().push_back(value.is_null() ? "-" : printable(value.dump()));
  }
  report["settings"] = settings;
  const auto add = [&](const std::string& what, auto text_of) {
    table.push_back({what});
    for (const RunInfo& run : runs) table.back().push_back(text_of(run));
  };
  table.push_back({});
  add("status", [](const RunInfo& run) { return run.status; });
  add("step", [](const RunInfo& run) { return fmt::format("{}/{}", run.step, run.steps); });
  add("parameters", [](const RunInfo& run) { return counted(as_double(run.parameters)); });
  add("loss", [](const RunInfo& run) { return shown(run.loss); });
  add("best val", [](const RunInfo& run) { return shown(run.best_val_loss); });
  for (const auto& [kind, label] : {std::pair("train", "loss"), std::pair("val", "val")}) {
    const std::optional<int64_t> step = last_common_step(runs, kind);
    Json losses = Json::array();
    for (const RunInfo& run : runs) losses.push_back(step ? Json(number_at(run, kind, *step, "loss")) : Json());
    report[fmt::format("{}_at_equal_step", label)] = Json::Object{{"step", or_null(step)}, {"loss", losses}};
    if (!step) continue;
    add(fmt::format("{} at step {}", label, *step),
        [&, k = kind, at = *step](const RunInfo& run) { return shown(number_at(run, k, at, "loss")); });
  }
  add("tokens/s", [](const RunInfo& run) { return counted(run.tokens_per_second); });
  add("time", [](const RunInfo& run) { return format_duration(run.seconds); });
  if (flags.json) {
    print(report.dump());
  } else {
    print_table(table);
  }
  return 0;
}

}  // namespace

void add_runs_commands(Command& program) {
  Command group = program.add_group("runs", "What was trained");
  auto directories = std::make_shared<std::vector<std::string>>();
  Command c = group.add_command("ls", "A table of runs: how far each is, its losses, speed and time", "loam runs ls",
                                [directories](const CommonFlags& flags) { return list_runs(*directories, flags); });
  c.add_option("DIR", *directories, "runs, and directories that hold runs; default: runs");

  auto names = std::make_shared<std::vector<std::string>>();
  c = group.add_command("compare", "Runs side by side: the settings that differ, losses at equal steps, speed",
                        "loam runs compare runs/first runs/second",
                        [names](const CommonFlags& flags) { return compare(*names, flags); });
  c.add_option("RUN", *names, "directories of runs").required();
}

}  // namespace loam
