#include "loam/base/progress.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <mutex>

#include "loam/base/clock.h"
#include "loam/base/log.h"
#include "loam/base/status_line.h"

namespace loam {
namespace {

constexpr double kTerminalInterval = 0.1, kPipeInterval = 10.0;  // seconds between two drawings
constexpr int kBarWidth = 24;

std::string format_amount(double amount, const std::string& unit) {
  return unit == "bytes" ? format_bytes(amount) : format_count(amount) + " " + unit;
}

}  // namespace

struct Progress::State {
  std::string label, unit, note;
  int64_t total;
  std::atomic<int64_t> done = 0;
  std::atomic<double> next_drawing;  // in seconds of `watch`
  std::mutex mutex;                  // guards note and drawing
  Stopwatch watch;
  bool terminal = has_status_line(), finished = false;

  double interval() const { return terminal ? kTerminalInterval : kPipeInterval; }
  bool hidden() const { return log_level() > LogLevel::kInfo; }

  // "label [####----] 42% 1.2 M tokens, 3.4 k tokens/s, 1m 02s left, note"
  std::string text() const {
    const double seconds = std::max(watch.seconds(), 1e-9), count = static_cast<double>(done.load());
    const double rate = count / seconds;
    std::string line = label + ":";
    if (total > 0) {
      const double share = std::clamp(count / static_cast<double>(total), 0.0, 1.0);
      const int filled = static_cast<int>(share * kBarWidth);
      if (terminal) line += " [" + std::string(filled, '#') + std::string(kBarWidth - filled, '-') + "]";
      line += fmt::format(" {:3.0f}%", std::floor(100 * share));
    }
    line += fmt::format(" {}, {}/s", format_amount(count, unit), format_amount(rate, unit));
    if (total > 0 && count > 0) {
      line += fmt::format(", {} left", format_duration(std::max(0.0, static_cast<double>(total) - count) / rate));
    }
    return note.empty() ? line : line + ", " + note;
  }

  // REQUIRES: mutex is held.
  void draw() {
    next_drawing = watch.seconds() + interval();
    if (terminal) {
      set_status_line(text());
    } else {
      log_line(LogLevel::kInfo, text());
    }
  }
};

Progress::Progress(std::string label, int64_t total, std::string unit) : state_(std::make_unique<State>()) {
  state_->label = std::move(label);
  state_->total = total;
  state_->unit = std::move(unit);
  state_->next_drawing = state_->interval();
}

Progress::~Progress() {
  if (state_->terminal && !state_->finished && !state_->hidden()) set_status_line("");
}

void Progress::advance(int64_t count) {
  state_->done.fetch_add(count, std::memory_order_relaxed);
  if (state_->hidden() || state_->watch.seconds() < state_->next_drawing.load(std::memory_order_relaxed)) return;
  const std::unique_lock lock(state_->mutex, std::try_to_lock);
  if (lock && !state_->finished) state_->draw();  // else another thread is drawing
}

void Progress::note(std::string_view text) {
  const std::lock_guard lock(state_->mutex);
  state_->note = text;
}

void Progress::finish() {
  const std::lock_guard lock(state_->mutex);
  if (std::exchange(state_->finished, true) || state_->hidden()) return;
  if (state_->terminal) set_status_line("");
  const double seconds = std::max(state_->watch.seconds(), 1e-9), count = static_cast<double>(state_->done.load());
  log_line(LogLevel::kInfo, fmt::format("{}: {} in {} ({}/s){}", state_->label, format_amount(count, state_->unit),
                                        format_duration(seconds), format_amount(count / seconds, state_->unit),
                                        state_->note.empty() ? "" : ", " + state_->note));
}

namespace {

// Three significant digits with a prefix of the SI: 1.23, 12.3, 123. 999.6 k rounds to 1.00 M.
std::string with_prefix(double value, std::string_view separator) {
  constexpr std::array kPrefixes = {"", "k", "M", "G", "T", "P", "E"};
  size_t prefix = 0;
  while (std::abs(value) >= 999.5 && prefix + 1 < kPrefixes.size()) {
    value /= 1000;
    ++prefix;
  }
  const double size = std::abs(value);
  if (prefix == 0 && value == std::floor(value)) return fmt::format("{:.0f}{}", value, separator);
  const int digits = size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}{}", value, digits, separator.empty() ? " " : separator, kPrefixes[prefix]);
}

}  // namespace

std::string format_bytes(double bytes) { return with_prefix(bytes, " ") + "B"; }

std::string format_count(double count) {
  std::string text = with_prefix(count, "");
  while (text.ends_with(' ')) text.pop_back();
  return text;
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  if (seconds < 0.9995) return fmt::format("{:.0f} ms", seconds * 1000);
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(std::min(seconds, 1e15) + 0.5);
  const int64_t days = whole / 86400, hours = whole / 3600 % 24, minutes = whole / 60 % 60;
  if (days > 0) return fmt::format("{}d {:02}h", days, hours);
  if (hours > 0) return fmt::format("{}h {:02}m", hours, minutes);
  return fmt::format("{}m {:02}s", minutes, whole % 60);
}

}  // namespace loam
