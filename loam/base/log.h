// Log lines on stderr. Results go to stdout; a log line never does.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace loam {

enum class LogLevel { kDebug, kInfo, kWarn, kError, kOff };

// "debug", "info", "warn", "error" or "off"; any other name is an Error.
LogLevel parse_log_level(std::string_view name);
void set_log_level(LogLevel level);
LogLevel log_level();

// Writes one line; control characters in it are escaped, but for line ends below kWarn. A progress bar on the same
// terminal is cleared before it and drawn again after it. Thread safety: lines of several threads are never mixed.
void log_line(LogLevel level, std::string_view message);

template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() <= LogLevel::kDebug) log_line(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() <= LogLevel::kInfo) log_line(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() <= LogLevel::kWarn) log_line(LogLevel::kWarn, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace loam
