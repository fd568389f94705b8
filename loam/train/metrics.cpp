#include "loam/train/metrics.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>

#include "loam/base/error.h"
#include "loam/base/log.h"
#include "loam/base/plot.h"
#include "loam/train/tensorboard.h"

namespace loam {
namespace {

// The numbers that TensorBoard gets.
struct TaggedNumber {
  std::string_view kind, member;
  const char* tag;
};
constexpr TaggedNumber kTagged[] = {
    {"train", "loss", "train/loss"},
    {"train", "lr", "train/lr"},
    {"train", "grad_norm", "train/grad_norm"},
    {"train", "loss_scale", "train/loss_scale"},
    {"train", "tokens_per_second", "speed/tokens_per_second"},
    {"train", "mfu", "speed/mfu"},
    {"val", "loss", "val/loss"},
    {"val", "bits_per_byte", "val/bits_per_byte"},
};

// The validation set that a record is about; empty for none, and where there is only one without a name.
std::string set_of(const Json& record) {
  const Json* set = record.find("set");
  return set && set->is_string() ? set->as_string() : "";
}

}  // namespace

Scalars scalars_of(const Json& record) {
  Scalars scalars;
  const std::string set = set_of(record);
  for (const TaggedNumber& t : kTagged) {
    const Json* number = record.at("kind").as_string() == t.kind ? record.find(t.member) : nullptr;
    if (!number || !number->is_number()) continue;
    scalars.emplace_back(set.empty() ? t.tag : fmt::format("{}/{}/{}", t.kind, set, t.member), number->as_double());
  }
  if (record.at("kind").as_string() != "layers") return scalars;
  for (const Json& layer : record.at("layers").as_array()) {
    for (const auto& [member, value] : layer.as_object()) {
      if (value.is_number())
        scalars.emplace_back(fmt::format("{}/{}", member, layer.at("name").as_string()), value.as_double());
    }
  }
  return scalars;
}

struct MetricsLog::State {
  Path directory, path;
  std::FILE* file = nullptr;
  std::unique_ptr<TensorboardWriter> tensorboard;
  std::set<std::pair<std::string, int64_t>> seen;  // kind and step of every record
  PlotSeries train{"training", {}};
  std::vector<std::pair<std::string, PlotSeries>> val;  // by set, in the order in which they came
  int64_t written = 0;                                  // records in the file
  int64_t damaged = 0;                                  // lines that were none
  std::string first_damage;
  std::map<std::string, int64_t> counts;  // by kind

  ~State() {
    if (file) std::fclose(file);
  }

  void remember(const Json& record) {
    const std::string& kind = record.at("kind").as_string();
    const int64_t step = record.at("step").as_int();
    const std::string set = set_of(record);
    seen.emplace(set.empty() ? kind : kind + "/" + set, step);
    ++counts[kind];
    const Json* loss = record.find("loss");
    if (!loss || !loss->is_number()) return;
    if (kind == "train") train.points.emplace_back(step, loss->as_double());
    if (kind == "val") series_of(set).points.emplace_back(step, loss->as_double());
  }

  PlotSeries& series_of(const std::string& set) {
    for (auto& [name, series] : val) {
      if (name == set) return series;
    }
    val.push_back({set, {set.empty() ? "validation" : "validation, " + set, {}}});
    return val.back().second;
  }

  // The records of an earlier life that stay, and in `kept` their lines. Fills `seen`, the series and `damage` from
  // them.
  std::vector<Json> kept_records(const std::string& text, int64_t resume_step, std::string& kept) {
    std::vector<Json> records;
    int64_t number = 0;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      const std::string_view line(text.data() + begin, end - begin);
      begin = end + 1;
      ++number;
      try {
        const Json record = Json::parse(line, "JSON");
        if (record.at("step").as_int() > resume_step) continue;
        remember(record);
        records.push_back(record);
        kept.append(line).push_back('\n');
      } catch (const Error& error) {
        if (end == text.size()) break;  // torn by a kill
        if (damaged++ == 0) first_damage = fmt::format("line {}: {}", number, error.what());
      }
    }
    written = static_cast<int64_t>(records.size());
    return records;
  }

  // What of an earlier life is not there any more.
  void report_losses(bool was_there, int64_t resume_step, int64_t expected) const {
    if (damaged > 0)
      log_warn("{}: {} damaged lines are dropped, the first is {}", path.string(), damaged, first_damage);
    if (!was_there && expected > 0) {
      log_warn("{}: missing: what the run said of its first {} steps is lost", path.string(), resume_step);
    } else if (written + damaged < expected) {
      log_warn("{}: {} of {} records up to step {} are missing: the file was cut or changed", path.string(),
               expected - written - damaged, expected, resume_step);
    }
  }

  void add_to_tensorboard(const Json& record) {
    const Scalars scalars = scalars_of(record);
    if (scalars.empty()) return;
    tensorboard->add(record.at("step").as_int(), scalars);
    tensorboard->flush();
  }
};

MetricsLog::MetricsLog(const Path& run_directory, int64_t resume_step, int64_t expected)
    : state_(std::make_unique<State>()) {
  state_->directory = run_directory;
  state_->path = run_directory / "metrics.jsonl";
  std::vector<Json> records;
  const bool was_there = std::filesystem::exists(state_->path);
  if (was_there) {
    const std::string text = read_file(state_->path);
    std::string kept;
    records = state_->kept_records(text, resume_step, kept);
    if (kept != text) write_file_atomic(state_->path, kept);
  }
  state_->report_losses(was_there, resume_step, expected);
  state_->file = std::fopen(state_->path.c_str(), "abe");
  if (!state_->file) fail(ErrorCode::kIo, "{}: cannot open: {}", state_->path.string(), std::strerror(errno));
  sync_directory(run_directory);
  // A kill may have come between the two files: what they say of the step to go on from is said again.
  state_->tensorboard = std::make_unique<TensorboardWriter>(run_directory, resume_step);
  for (const Json& record : records) {
    if (!state_->tensorboard->continues() || record.at("step").as_int() == resume_step) {
      state_->add_to_tensorboard(record);
    }
  }
}

MetricsLog::~MetricsLog() = default;
MetricsLog& MetricsLog::operator=(MetricsLog&&) noexcept = default;

void MetricsLog::drop_after(int64_t step) {
  sync();
  const Path directory = state_->directory;
  state_.reset();
  *this = MetricsLog(directory, step);
}

void MetricsLog::write(const Json& record) {
  const std::string line = record.dump() + "\n";
  // A whole line at once and flushed: a kill tears at most the last one.
  if (std::fwrite(line.data(), 1, line.size(), state_->file) != line.size() || std::fflush(state_->file) != 0) {
    fail(ErrorCode::kIo, "{}: cannot write: {}", state_->path.string(), std::strerror(errno));
  }
  ++state_->written;
  state_->remember(record);
  state_->add_to_tensorboard(record);
}

int64_t MetricsLog::size() const { return state_->written; }

int64_t MetricsLog::count(const std::string& kind) const {
  const auto found = state_->counts.find(kind);
  return found == state_->counts.end() ? 0 : found->second;
}

const std::vector<std::pair<double, double>>& MetricsLog::validations() const {
  static const std::vector<std::pair<double, double>> none;
  return state_->val.empty() ? none : state_->val[0].second.points;
}

void MetricsLog::sync() {
  if (::fsync(::fileno(state_->file)) != 0) {
    fail(ErrorCode::kIo, "{}: cannot sync: {}", state_->path.string(), std::strerror(errno));
  }
}

bool MetricsLog::has(const std::string& kind, int64_t step) const { return state_->seen.contains({kind, step}); }

bool MetricsLog::has(const Path& run_directory, const std::string& kind, int64_t step) {
  State state;
  state.path = run_directory / "metrics.jsonl";
  if (!std::filesystem::exists(state.path)) return false;
  std::string kept;
  state.kept_records(read_file(state.path), step, kept);
  return state.seen.contains({kind, step});
}

void MetricsLog::plot() const {
  if (state_->train.points.empty() && state_->val.empty()) return;
  if (!gnuplot_available()) {
    static bool said = false;
    if (!std::exchange(said, true)) log_warn("gnuplot is not installed: loss.png is not drawn");
    return;
  }
  Plot plot{state_->directory.filename().string(), "step", "loss (nats a token)", {state_->train}};
  for (const auto& [set, series] : state_->val) plot.series.push_back(series);
  try {
    write_plot(plot, state_->directory / "loss.png");
  } catch (const Error& error) {
    log_warn("loss.png is not drawn: {}", error.what());  // the next one may be
  }
}

}  // namespace loam
