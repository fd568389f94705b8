// Any bytes as model.safetensors.index.json beside one shard: Error{kBadFormat, kNotFound, kIo}, or tensors of that
// shard.
#include "loam/format/safetensors.h"
#include "tests/harness/temp_dir.h"
#include "tests/harness/write_quickly.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loam;
  static const testing::TempDir directory;
  static const bool written = [] {
    const auto arena = Arena::create(Device{});
    const Tensor w = Tensor::zeros(*arena, {2}, DType::f32);
    write_safetensors(directory / "a", {{"w", w}, {"v", w}});
    return true;
  }();
  if (!written) return 0;
  testing::write_quickly(directory / "model.safetensors.index.json", {reinterpret_cast<const char*>(data), size});
  try {
    const SafetensorsModel model(directory.path());
    for (const std::string& name : model.names()) {
      if (model.tensor(name).shape() != Shape{2}) std::abort();
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadFormat && error.code() != ErrorCode::kNotFound &&
        error.code() != ErrorCode::kIo) {
      std::abort();
    }
  }
  return 0;
}
