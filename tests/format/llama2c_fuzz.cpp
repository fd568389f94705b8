// Any bytes as a llama2.c model: Error{kBadFormat}, or tensors that lie one after the other in the file.
#include "loam/format/llama2c.h"
#include "tests/harness/fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loam;
  const testing::FuzzFile input(data, size);
  try {
    const Llama2cModel model = read_llama2c(input.path());
    float sum = 0;
    int64_t bytes = 0;
    for (const auto& [name, tensor] : model.tensors) {
      for (const float value : tensor.span<float>()) sum += value;
      bytes += tensor.bytes();
    }
    volatile float sink = sum;
    (void)sink;
    if (bytes > static_cast<int64_t>(size)) std::abort();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadFormat) std::abort();
  }
  return 0;
}
