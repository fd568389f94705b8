// Any bytes as config.json and, after a NUL, as generation_config.json of a MODEL directory without tensors: an Error,
// and no memory taken for what they claim.
#include "loam/base/log.h"
#include "loam/model/model_files.h"
#include "tests/harness/temp_dir.h"
#include "tests/harness/write_quickly.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loam;
  static const testing::TempDir directory;
  static const ExecResources exec = make_exec_resources(Device{}, 1);
  set_log_level(LogLevel::kOff);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(text.find('\0'), text.size());
  testing::write_quickly(directory / "config.json", text.substr(0, end));
  testing::write_quickly(directory / "generation_config.json", end < text.size() ? text.substr(end + 1) : "{}");
  try {
    load_model(exec.context, directory.path(), DType::f32);
    std::abort();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadFormat && error.code() != ErrorCode::kNotFound) std::abort();
  }
  if (exec.arena->stats().total_peak != 0) std::abort();
  return 0;
}
