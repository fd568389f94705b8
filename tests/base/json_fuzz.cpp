// Any bytes: parse() gives a value or Error{kBadFormat}; a value that was read is written as JSON that reads back
// equal.
#include <cstdint>
#include <cstdlib>

#include "loam/base/error.h"
#include "loam/base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loam;
  Json value;
  try {
    value = Json::parse({reinterpret_cast<const char*>(data), size});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadFormat) std::abort();
    return 0;
  }
  if (!(Json::parse(value.dump()) == value) || !(Json::parse(value.dump(1)) == value)) std::abort();
  return 0;
}
