// Files against those of the package gguf (tests/fixtures/make_gguf_fixture.py).
#include "loam/base/gguf_writer.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/harness/expect_error.h"
#include "tests/harness/shared.h"
#include "tests/harness/temp_dir.h"

namespace loam {
namespace {

using testing::TempDir;

TEST(GgufWriter, GivesTheBytesOfThePackageGguf) {
  const TempDir directory;
  const Path path = directory / "a.gguf";
  const std::vector<GgufField> fields{{"general.architecture", std::string("loam")},
                                      {"a.bool", true},
                                      {"a.u32", 4000000000u},
                                      {"a.f32", 0.1f},
                                      {"a.text", std::string("caf\u00e9")},
                                      {"a.bools", std::vector<bool>{true, false, true}},
                                      {"a.i32s", std::vector<int32_t>{1, -2, 3}},
                                      {"a.f32s", std::vector<float>{0.5f, -1e6f}},
                                      {"a.texts", std::vector<std::string>{"a", "", "bc"}}};
  GgufWriter writer(path, fields,
                    {{"wide", {5, 3}, kGgufF32},
                     {"half", {5, 3}, kGgufF16},
                     {"brain", {5, 3}, kGgufBf16},
                     {"vector", {1}, kGgufF32}});
  // 0, 1/8 ... 14/8: each is exact in the narrow types.
  std::vector<float> wide;
  std::vector<uint16_t> half{0}, brain;
  for (int i = 0; i < 15; ++i) {
    wide.push_back(static_cast<float>(i) / 8);
    const auto bits = std::bit_cast<uint32_t>(wide.back());
    brain.push_back(static_cast<uint16_t>(bits >> 16));
    if (i > 0) half.push_back(static_cast<uint16_t>((bits >> 13) - (112u << 10)));
  }
  const float one = 1.5f;
  writer.write(wide.data(), 60);
  EXPECT_LOAM_ERROR(writer.write(half.data(), 28), ErrorCode::kInvalidArgument, "28 bytes for tensor 1");
  EXPECT_LOAM_ERROR(writer.commit(), ErrorCode::kInvalidArgument, "1 of 4 tensors");
  writer.write(half.data(), 30);
  writer.write(brain.data(), 30);
  writer.write(&one, 4);
  EXPECT_FALSE(std::filesystem::exists(path));
  writer.commit();
  const std::string expected = read_file(testing::source_path("tests/fixtures/gguf/every_value.gguf"));
  ASSERT_GT(expected.size(), 600u);
  EXPECT_EQ(read_file(path), expected);
  const Gguf read = Gguf::open(path);
  EXPECT_EQ(read.at<std::vector<int64_t>>("a.bools"), (std::vector<int64_t>{1, 0, 1}));
  EXPECT_EQ(read.tensors().size(), 4u);
}

TEST(GgufWriter, LeavesNothingWithoutCommit) {
  const TempDir directory;
  { GgufWriter(directory / "a.gguf", {}, {{"a", {2}, kGgufF32}}); }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  EXPECT_LOAM_ERROR(GgufWriter(directory / "a.gguf", {}, {{"a", {32}, 8}}), ErrorCode::kInvalidArgument, "the type 8");
}

TEST(Gguf, TypesHaveNames) {
  EXPECT_EQ(gguf_type_name(kGgufF16), "F16");
  EXPECT_EQ(gguf_type_name(kGgufBf16), "BF16");
  EXPECT_EQ(gguf_type_name(14), "Q6_K");
  EXPECT_EQ(gguf_type_name(31), "");
  EXPECT_EQ(gguf_type_name(4000000000u), "");
}

}  // namespace
}  // namespace loam
