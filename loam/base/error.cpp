#include "loam/base/error.h"

namespace loam {

const char* error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kBadFormat:
      return "bad format";
    case ErrorCode::kNotFound:
      return "not found";
    case ErrorCode::kAlreadyExists:
      return "already exists";
    case ErrorCode::kIo:
      return "input/output";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kOutOfMemory:
      return "out of memory";
    case ErrorCode::kInterrupted:
      return "interrupted";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "unknown";
}

}  // namespace loam
