// Any bytes as JSONL, and as text with a separator: documents or Error{kBadFormat}.
#include "loam/base/error.h"
#include "loam/base/log.h"
#include "loam/data/document.h"
#include "tests/harness/temp_dir.h"
#include "tests/harness/write_quickly.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loam;
  static const testing::TempDir directory;
  set_log_level(LogLevel::kOff);
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const char* name : {"x.jsonl", "x.txt"}) {
    const Path path = directory / name;
    testing::write_quickly(path, bytes);
    try {
      DocumentReader reader({path}, {.text_key = "text", .separator = "--", .max_bad_share = 1});
      Document document;
      while (reader.next(document)) {
        if (document.id.empty() && name[2] == 't') std::abort();
      }
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kBadFormat) std::abort();
    }
  }
  return 0;
}
