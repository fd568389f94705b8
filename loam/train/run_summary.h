// What the directories of runs say: for tables, comparisons and plots of several runs. Reading disturbs no run that is
// going on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "loam/base/file.h"
#include "loam/base/json.h"

namespace loam {

// A run directory as it lies there. Numbers that it does not tell are missing.
struct RunInfo {
  Path directory;
  std::string id;      // "" before there were ids
  std::string status;  // "running" (a process holds its lock), "finished", "stopped" (by an error), "interrupted"
  int64_t step = 0, steps = 0;                // done, and of the configuration
  std::optional<int64_t> parameters, tokens;  // tokens: seen so far
  std::string val_set;                        // the validation set that counts: the first of several, by name
  // Of the last lines; best_val: the lowest.
  std::optional<double> loss, val_loss, best_val_loss, bits_per_byte, tokens_per_second;
  double seconds = 0;          // of training, all its processes together
  Json cost = Json::object();  // as in `train` lines
  Json config;
  std::vector<Json> records;  // metrics.jsonl: damaged lines are left out
};

// Whether a directory is one of `loam train`, by its config.json.
bool is_run(const Path& directory);
// Error{kNotFound} if it is no run.
RunInfo read_run(const Path& directory);
// The runs among `directories` and right below those that are none, in the order of the arguments and of their names.
// Error{kNotFound} for a directory that is not there.
std::vector<Path> find_runs(const std::vector<std::string>& directories);

// The settings in which the configurations differ: name with dots, and the value of each run (null: it has no such
// setting).
std::vector<std::pair<std::string, std::vector<Json>>> differing_settings(const std::vector<RunInfo>& runs);
// The number `member` of the record of `kind` at `step`.
std::optional<double> number_at(const RunInfo& run, const std::string& kind, int64_t step, const std::string& member);
// The last step at which all runs have a record of `kind`.
std::optional<int64_t> last_common_step(const std::vector<RunInfo>& runs, const std::string& kind);

enum class PlotAxis { step, tokens, time };
// The curve of a number of the `train` lines ("loss", "lr", "grad_norm", ...), or of `val` ("val": its loss, "val/NAME"
// that of one of several sets, "bits_per_byte"). `smooth`: each point is the mean of up to so many, itself the last.
// Error{kInvalidArgument} that lists the numbers there are.
std::vector<std::pair<double, double>> curve_of(const RunInfo& run, PlotAxis x, const std::string& y, int64_t smooth);

}  // namespace loam
