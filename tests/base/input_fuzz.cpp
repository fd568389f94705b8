// Any bytes as a file: they are read to the end, plain or undone, or the reader says Error{kBadFormat}.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "loam/base/error.h"
#include "loam/base/file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loam;
  static const int fd = ::memfd_create("input", 0);
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  int64_t total = 0;
  try {
    const auto source = open_input("/proc/self/fd/" + std::to_string(fd));
    std::vector<char> buffer(1 << 16);
    while (const int64_t got = source->read(buffer)) {
      total += got;
      if (total > (64 << 20)) return 0;  // a small file may unpack to gigabytes: a stream is the reader's to stop
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadFormat) std::abort();
  }
  return 0;
}
