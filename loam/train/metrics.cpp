#include "loam/train/metrics.h"

#include <cstdio>
#include <set>

#include "loam/base/error.h"
#include "loam/base/log.h"
#include "loam/base/plot.h"

namespace loam {

struct MetricsLog::State {
  Path directory, path;
  std::FILE* file = nullptr;
  std::set<std::pair<std::string, int64_t>> seen;  // kind and step of every record
  PlotSeries train{"training", {}}, val{"validation", {}};

  void remember(const Json& record) {
    const std::string& kind = record.at("kind").as_string();
    const int64_t step = record.at("step").as_int();
    seen.emplace(kind, step);
    const Json* loss = record.find("loss");
    if (!loss || !loss->is_number()) return;
    if (kind == "train") train.points.emplace_back(step, loss->as_double());
    if (kind == "val") val.points.emplace_back(step, loss->as_double());
  }

  // The lines of an earlier life that stay, each with its newline. Fills `seen` and the series from them.
  std::string kept_lines(const std::string& text, int64_t resume_step) {
    std::string kept;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = text.find('\n', begin);
      if (end == text.npos) break;  // torn by a kill
      const std::string_view line(text.data() + begin, end - begin);
      begin = end + 1;
      try {
        const Json record = Json::parse(line, path.string());
        if (record.at("step").as_int() > resume_step) continue;
        remember(record);
        kept.append(line).push_back('\n');
      } catch (const Error& error) {
        log_warn("{}: dropping a damaged line ({})", path.string(), error.what());
      }
    }
    return kept;
  }
};

MetricsLog::MetricsLog(const Path& run_directory, int64_t resume_step) : state_(std::make_unique<State>()) {
  state_->directory = run_directory;
  state_->path = run_directory / "metrics.jsonl";
  if (std::filesystem::exists(state_->path)) {
    const std::string text = read_file(state_->path);
    const std::string kept = state_->kept_lines(text, resume_step);
    if (kept != text) write_file_atomic(state_->path, kept);
  }
  state_->file = std::fopen(state_->path.c_str(), "abe");
  if (!state_->file) fail(ErrorCode::kIo, "{}: cannot open for writing", state_->path.string());
}

MetricsLog::~MetricsLog() {
  if (state_->file) std::fclose(state_->file);
}

void MetricsLog::write(const Json& record) {
  const std::string line = record.dump() + "\n";
  // A whole line at once and flushed: a kill tears at most the last one.
  if (std::fwrite(line.data(), 1, line.size(), state_->file) != line.size() || std::fflush(state_->file) != 0) {
    fail(ErrorCode::kIo, "{}: cannot write", state_->path.string());
  }
  state_->remember(record);
}

bool MetricsLog::has(const std::string& kind, int64_t step) const { return state_->seen.contains({kind, step}); }

void MetricsLog::plot() const {
  if (state_->train.points.empty() && state_->val.points.empty()) return;
  if (!gnuplot_available()) {
    static bool said = false;
    if (!std::exchange(said, true)) log_warn("gnuplot is not installed: loss.png is not drawn");
    return;
  }
  Plot plot{state_->directory.filename().string(), "step", "loss (nats a token)", {state_->train}};
  if (!state_->val.points.empty()) plot.series.push_back(state_->val);
  try {
    write_plot(plot, state_->directory / "loss.png");
  } catch (const Error& error) {
    log_warn("loss.png is not drawn: {}", error.what());  // the next one may be
  }
}

}  // namespace loam
