// Any bytes as a GGUF file: a header whose tensors lie inside the file, or Error{kBadFormat}.
#include <cstdlib>

#include "loam/base/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loam;
  try {
    const Gguf gguf = Gguf::parse({reinterpret_cast<const char*>(data), size}, "fuzz");
    for (const GgufTensor& tensor : gguf.tensors()) {
      if (tensor.offset < 0 || tensor.bytes < 0 || tensor.offset + tensor.bytes > static_cast<int64_t>(size))
        std::abort();
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadFormat) std::abort();
  }
  return 0;
}
