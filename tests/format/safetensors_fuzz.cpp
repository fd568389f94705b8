// Any bytes as a safetensors file: Error{kBadFormat}, or tensors of which every byte can be read.
#include "loam/format/safetensors.h"
#include "tests/harness/fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loam;
  const testing::FuzzFile input(data, size);
  try {
    const SafetensorsFile file(input.path());
    unsigned sum = 0;
    for (const std::string& name : file.names()) {
      const Tensor tensor = file.tensor(name);
      const auto* bytes = static_cast<const uint8_t*>(tensor.view().data);
      for (int64_t i = 0; i < tensor.bytes(); ++i) sum += bytes[i];
    }
    volatile unsigned sink = sum;
    (void)sink;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadFormat) std::abort();
  }
  return 0;
}
