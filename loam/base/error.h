// The one error type of the project, and the checks that throw it.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace loam {

enum class ErrorCode {
  kInvalidArgument,  // a value or shape that the caller could have checked
  kBadFormat,        // a file or message from outside that does not hold what its format says
  kNotFound,
  kAlreadyExists,
  kIo,           // the operating system refused: disk full, permission, broken pipe
  kUnavailable,  // not built in, or the machine lacks it
  kOutOfMemory,
  kInterrupted,  // the user asked to stop
  kInternal,     // a broken invariant: a fault of loam itself
};

// "invalid argument", "bad format", ...
const char* error_code_name(ErrorCode code);

// Thrown for every failure; the message names the op or file, and the shapes or the offset.
// Caught at `main`, at a request, at the Python boundary and at a thread's edge.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace loam

// Throws Error{kInvalidArgument} with a formatted message unless `condition` holds.
#define LOAM_CHECK(condition, ...)                                    \
  do {                                                                \
    if (!(condition)) [[unlikely]]                                    \
      ::loam::fail(::loam::ErrorCode::kInvalidArgument, __VA_ARGS__); \
  } while (false)

// LOAM_CHECK in debug builds only: for hot loops.
#ifdef LOAM_DEBUG
#define LOAM_DCHECK(condition, ...) LOAM_CHECK(condition, __VA_ARGS__)
#else
#define LOAM_DCHECK(condition, ...) \
  do {                              \
  } while (false)
#endif
