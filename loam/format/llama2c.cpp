// Legend: C width, F ffn, L layers, V vocab, H heads, K kv heads, D head dim, T context.
#include "loam/format/llama2c.h"

#include <array>
#include <bit>
#include <cstring>
#include <memory>

#include "loam/base/mmap.h"

namespace loam {
namespace {

static_assert(std::endian::native == std::endian::little, "the data is used as it lies in the file");

constexpr int64_t kHeaderBytes = 7 * sizeof(int32_t);
constexpr int32_t kMaxSize = 1 << 24;  // of vocabulary, widths and context: keeps every product below within int64
constexpr int32_t kMaxLayers = 1 << 10;

Llama2cModel read_header(const Path& path, const MappedFile& map) {
  const auto check = [&](bool ok, const char* what, int64_t value) {
    if (!ok) fail(ErrorCode::kBadFormat, "{}: not a llama2.c model: {} is {}", path.string(), what, value);
  };
  check(map.size() >= kHeaderBytes, "the size of the file", map.size());
  std::array<int32_t, 7> header;
  std::memcpy(header.data(), map.bytes().data(), kHeaderBytes);
  const auto [dim, ffn_dim, layers, heads, kv_heads, vocab_size, context_length] = header;
  check(dim > 0 && dim <= kMaxSize, "dim", dim);
  check(ffn_dim > 0 && ffn_dim <= kMaxSize, "hidden_dim", ffn_dim);
  check(layers > 0 && layers <= kMaxLayers, "n_layers", layers);
  check(heads > 0 && dim % heads == 0 && dim / heads % 2 == 0, "n_heads", heads);
  check(kv_heads > 0 && heads % kv_heads == 0, "n_kv_heads", kv_heads);
  check(vocab_size != 0 && vocab_size >= -kMaxSize && vocab_size <= kMaxSize, "vocab_size", vocab_size);
  check(context_length > 0 && context_length <= kMaxSize, "seq_len", context_length);

  const bool tied = vocab_size > 0;
  return {dim, ffn_dim, layers, heads, kv_heads, tied ? vocab_size : -int64_t{vocab_size}, context_length, tied, {}};
}

// A tensor of the file; `per_layer` stands for one such tensor in each layer, one after the other.
struct Part {
  const char* name;
  bool per_layer;
  Shape shape;
};

std::vector<Part> parts_of(const Llama2cModel& m) {
  const int64_t C = m.dim, F = m.ffn_dim, D = C / m.heads, KD = m.kv_heads * D;
  std::vector<Part> parts = {
      {"token_embedding", false, {m.vocab_size, C}},
      {"attention_norm", true, {C}},
      {"wq", true, {C, C}},
      {"wk", true, {KD, C}},
      {"wv", true, {KD, C}},
      {"wo", true, {C, C}},
      {"ffn_norm", true, {C}},
      {"w1", true, {F, C}},
      {"w2", true, {C, F}},
      {"w3", true, {F, C}},
      {"final_norm", false, {C}},
      {nullptr, false, {2, m.context_length, D / 2}},  // the rotary tables
  };
  if (!m.tied) parts.push_back({"head", false, {m.vocab_size, C}});
  return parts;
}

}  // namespace

Llama2cModel read_llama2c(const Path& path) {
  const auto map = std::make_shared<MappedFile>(path);
  Llama2cModel model = read_header(path, *map);
  const std::vector<Part> parts = parts_of(model);

  // At most 2^10 layers of matrices of 2^48 values: a double has room to spare, and is exact far beyond any real file.
  double expected = 0;
  for (const Part& part : parts) {
    expected += static_cast<double>(part.shape.product()) * (part.per_layer ? static_cast<double>(model.layers) : 1.0);
  }
  expected = expected * sizeof(float) + static_cast<double>(kHeaderBytes);
  if (static_cast<double>(map->size()) != expected) {
    fail(ErrorCode::kBadFormat, "{}: not a llama2.c model: {} bytes, but its header makes {:.0f}", path.string(),
         map->size(), expected);
  }

  auto* data = reinterpret_cast<float*>(const_cast<std::byte*>(map->bytes().data()) + kHeaderBytes);
  for (const Part& part : parts) {
    const int64_t count = part.per_layer ? model.layers : 1;
    for (int64_t layer = 0; layer < count; ++layer, data += part.shape.product()) {
      if (part.name == nullptr) continue;
      const std::string name = part.per_layer ? fmt::format("{}.{}", layer, part.name) : part.name;
      model.tensors.emplace_back(name, Tensor::wrap(map, data, part.shape, DType::f32, Device{}));
    }
  }
  return model;
}

}  // namespace loam
