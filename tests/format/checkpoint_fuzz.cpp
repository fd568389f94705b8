// Any bytes as the manifest of a checkpoint, or as its state: Error{kBadFormat}, or a checkpoint whose files are there.
#include "loam/format/checkpoint.h"
#include "tests/harness/temp_dir.h"
#include "tests/harness/write_quickly.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loam;
  static const testing::TempDir directory;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const bool is_manifest = data[0] % 2;
  testing::write_quickly(directory / "MANIFEST.json", is_manifest ? text : "{}");
  testing::write_quickly(directory / "state.json", is_manifest ? "{}" : text);
  try {
    if (is_manifest) {
      const VerifiedCheckpoint checkpoint(directory.path());
      if (checkpoint.path != directory.path()) std::abort();
    } else {
      read_checkpoint_state(directory.path());
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadFormat) std::abort();
  }
  return 0;
}
