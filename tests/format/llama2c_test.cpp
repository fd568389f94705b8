#include "loam/format/llama2c.h"

#include <gtest/gtest.h>

#include <array>
#include <climits>
#include <map>

#include "loam/base/json.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/shared.h"
#include "tests/harness/temp_dir.h"

namespace loam {
namespace {

using testing::TempDir;
using Header = std::array<int32_t, 7>;  // dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len

constexpr Header kSmall = {4, 6, 2, 2, 1, 3, 5};
// By hand, in floats: embedding 3*4; two layers of norms 2*4, wq and wo 2*16, wk and wv 2*(2*4), w1 w2 w3 3*24; final
// norm 4; rotary tables 2 * 5 * 1.
constexpr int64_t kSmallFloats = 12 + 2 * (8 + 32 + 16 + 72) + 4 + 10;

std::string file_bytes(const Header& header, int64_t floats) {
  std::string bytes(reinterpret_cast<const char*>(header.data()), sizeof(header));
  for (int64_t i = 0; i < floats; ++i) {
    const auto value = static_cast<float>(i);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return bytes;
}

Llama2cModel read(const std::string& bytes) {
  const TempDir directory;
  write_file_atomic(directory / "m.bin", bytes);
  return read_llama2c(directory / "m.bin");
}

// In llama2.c each kind of tensor is stacked over the layers.
TEST(Llama2c, PlacesEachTensorOfTheFile) {
  const Llama2cModel model = read(file_bytes(kSmall, kSmallFloats));
  std::map<std::string, Tensor> tensors(model.tensors.begin(), model.tensors.end());
  EXPECT_EQ(tensors.size(), 1 + 2 * 9 + 1u);
  const std::map<std::string, std::pair<float, Shape>> expected = {
      {"token_embedding", {0, {3, 4}}}, {"0.attention_norm", {12, {4}}}, {"1.attention_norm", {16, {4}}},
      {"0.wq", {20, {4, 4}}},           {"1.wq", {36, {4, 4}}},          {"0.wk", {52, {2, 4}}},
      {"1.wk", {60, {2, 4}}},           {"0.wv", {68, {2, 4}}},          {"1.wv", {76, {2, 4}}},
      {"0.wo", {84, {4, 4}}},           {"1.wo", {100, {4, 4}}},         {"0.ffn_norm", {116, {4}}},
      {"1.ffn_norm", {120, {4}}},       {"0.w1", {124, {6, 4}}},         {"1.w1", {148, {6, 4}}},
      {"0.w2", {172, {4, 6}}},          {"1.w2", {196, {4, 6}}},         {"0.w3", {220, {6, 4}}},
      {"1.w3", {244, {6, 4}}},          {"final_norm", {268, {4}}},
  };
  for (const auto& [name, value] : expected) {
    ASSERT_TRUE(tensors.contains(name)) << name;
    EXPECT_EQ(tensors[name].span<float>()[0], value.first) << name;
    EXPECT_EQ(tensors[name].shape(), value.second) << name;
  }
  EXPECT_TRUE(model.tied);
  EXPECT_EQ(model.vocab_size, 3);
  EXPECT_EQ(model.context_length, 5);
}

TEST(Llama2c, NegativeVocabularyMeansAHeadOfItsOwn) {
  Header header = kSmall;
  header[5] = -3;
  const Llama2cModel model = read(file_bytes(header, kSmallFloats + 12));
  EXPECT_FALSE(model.tied);
  EXPECT_EQ(model.vocab_size, 3);
  EXPECT_EQ(model.tensors.back().first, "head");
  EXPECT_EQ(model.tensors.back().second.span<float>()[0], static_cast<float>(kSmallFloats));
  EXPECT_LOAM_ERROR(read(file_bytes(header, kSmallFloats)), ErrorCode::kBadFormat, "its header makes");
}

TEST(Llama2c, RefusesAbsurdHeaders) {
  const char* names[] = {"dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "seq_len"};
  for (size_t field = 0; field < 7; ++field) {
    for (const int32_t value : {0, INT_MIN, INT_MAX, -1}) {
      if (field == 5 && value == -1) continue;  // a vocabulary of one id, untied: the size of the file differs
      Header header = kSmall;
      header[field] = value;
      EXPECT_LOAM_ERROR(read(file_bytes(header, kSmallFloats)), ErrorCode::kBadFormat, names[field]);
    }
  }
  EXPECT_LOAM_ERROR(read(file_bytes({6, 6, 2, 2, 1, 3, 5}, 10)), ErrorCode::kBadFormat, "n_heads");      // head of 3
  EXPECT_LOAM_ERROR(read(file_bytes({12, 6, 2, 3, 2, 3, 5}, 10)), ErrorCode::kBadFormat, "n_kv_heads");  // 3 by 2
  EXPECT_LOAM_ERROR(read(file_bytes({1 << 24, 1 << 24, 1 << 10, 1, 1, 1 << 24, 1 << 24}, 10)), ErrorCode::kBadFormat,
                    "its header makes");
}

TEST(Llama2c, SizeMustAgreeToTheByte) {
  const std::string good = file_bytes(kSmall, kSmallFloats);
  EXPECT_NO_THROW(read(good));
  EXPECT_LOAM_ERROR(read(good + '\0'), ErrorCode::kBadFormat, "bytes, but its header makes");
  EXPECT_LOAM_ERROR(read(good.substr(0, good.size() - 1)), ErrorCode::kBadFormat, "bytes, but its header makes");
  EXPECT_LOAM_ERROR(read(good.substr(0, 27)), ErrorCode::kBadFormat, "the size of the file");
  EXPECT_LOAM_ERROR(read(""), ErrorCode::kBadFormat, "the size of the file");
}

TEST(Llama2c, ReadsStories260K) {
  const auto path = testing::shared_path("data/tinylm/stories260K.bin");
  const auto golden_path = testing::shared_path("data/tinylm/golden_one.json");
  LOAM_NEED_SHARED(path);
  LOAM_NEED_SHARED(golden_path);
  const Json golden = Json::parse(read_file(golden_path)).at("config");
  const Llama2cModel model = read_llama2c(path);
  EXPECT_EQ(model.dim, golden.at("dim").as_int());
  EXPECT_EQ(model.ffn_dim, golden.at("hidden_dim").as_int());
  EXPECT_EQ(model.layers, golden.at("n_layers").as_int());
  EXPECT_EQ(model.heads, golden.at("n_heads").as_int());
  EXPECT_EQ(model.kv_heads, golden.at("n_kv_heads").as_int());
  EXPECT_EQ(model.vocab_size, golden.at("vocab_size").as_int());
  EXPECT_EQ(model.context_length, golden.at("seq_len").as_int());
  EXPECT_EQ(model.tied, golden.at("tied").as_bool());
  int64_t floats = model.context_length * model.dim / model.heads;  // the rotary tables
  for (const auto& [name, tensor] : model.tensors) floats += tensor.numel();
  EXPECT_EQ(floats, golden.at("floats").as_int());
}

}  // namespace
}  // namespace loam
