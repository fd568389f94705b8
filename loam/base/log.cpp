#include "loam/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "loam/base/error.h"
#include "loam/base/status_line.h"
#include "loam/base/suggest.h"
#include "loam/base/utf8.h"

namespace loam {
namespace {

constexpr std::array kLevelNames = {"debug", "info", "warn", "error", "off"};

std::atomic<LogLevel> current_level = LogLevel::kInfo;

// stderr: one mutex for log lines and the status line, so that neither cuts the other in two.
struct Terminal {
  std::mutex mutex;
  std::string status;
  spdlog::logger logger{"loam", std::make_shared<spdlog::sinks::stderr_color_sink_st>()};

  Terminal() {
    logger.set_level(spdlog::level::trace);
    logger.set_pattern("%H:%M:%S %^%l%$ %v");
  }
};

// Never destroyed: other objects with static lifetime may still log.
Terminal& terminal() {
  static Terminal& instance = *new Terminal;
  return instance;
}

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    default:
      return spdlog::level::err;
  }
}

void print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

// The first `columns` characters of UTF-8 text, whatever each one's width.
std::string_view cut_to_columns(std::string_view text, int columns) {
  size_t end = 0;
  for (; end < text.size(); ++end) {
    const bool starts_character = (static_cast<unsigned char>(text[end]) & 0xC0) != 0x80;
    if (starts_character && columns-- == 0) break;
  }
  return text.substr(0, end);
}

constexpr std::string_view kClearLine = "\r\033[K";

}  // namespace

LogLevel parse_log_level(std::string_view name) {
  for (size_t i = 0; i < kLevelNames.size(); ++i) {
    if (name == kLevelNames[i]) return static_cast<LogLevel>(i);
  }
  const std::string near = nearest_name(name, {kLevelNames.begin(), kLevelNames.end()});
  fail(ErrorCode::kInvalidArgument, "log level: '{}' is none of debug, info, warn, error, off{}", name,
       near.empty() ? "" : "; did you mean '" + near + "'?");
}

void set_log_level(LogLevel level) { current_level.store(level, std::memory_order_relaxed); }
LogLevel log_level() { return current_level.load(std::memory_order_relaxed); }

void log_line(LogLevel level, std::string_view message) {
  if (level < log_level() || level == LogLevel::kOff) return;
  // Names and texts from files may be in it: no warning may look like two lines, or command the terminal.
  const std::string shown = printable(message, level < LogLevel::kWarn);
  Terminal& out = terminal();
  const std::lock_guard lock(out.mutex);
  if (!out.status.empty()) print(kClearLine);
  out.logger.log(spdlog_level(level), spdlog::string_view_t(shown.data(), shown.size()));
  print(out.status);
}

bool has_status_line() {
  const char* kind = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && kind != nullptr && std::string_view(kind) != "dumb";
}

void set_status_line(std::string_view text) {
  Terminal& out = terminal();
  const std::lock_guard lock(out.mutex);
  winsize size = {};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  if (!out.status.empty() || !text.empty()) print(kClearLine);
  out.status = cut_to_columns(text, known ? size.ws_col - 1 : 79);
  print(out.status);
}

}  // namespace loam
