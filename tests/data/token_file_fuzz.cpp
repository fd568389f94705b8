// Any bytes as a file of token ids of every format: Error{kBadFormat}, or ids that can all be read.
#include "loam/base/error.h"
#include "loam/data/token_file.h"
#include "tests/harness/temp_dir.h"
#include "tests/harness/write_quickly.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loam;
  static const testing::TempDir directory;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  testing::write_quickly(directory / "x", bytes);
  for (const auto format : {TokenFileFormat::automatic, TokenFileFormat::bin_u16, TokenFileFormat::bin_u32,
                            TokenFileFormat::npy, TokenFileFormat::llmc}) {
    try {
      TokenFile file(directory / "x", format, 1000);
      std::vector<int32_t> ids(7);
      int64_t read = 0;
      while (const int64_t count = file.read(ids)) read += count;
      if (read != file.layout().tokens) std::abort();
      if (file.layout().offset + read * file.layout().token_bytes != static_cast<int64_t>(size)) std::abort();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kBadFormat) std::abort();
    }
  }
  return 0;
}
