#include "loam/base/gguf.h"

#include <gtest/gtest.h>

#include "tests/base/gguf_bytes.h"
#include "tests/harness/expect_error.h"

namespace loam {
namespace {

using testing::bytes_of;
using testing::gguf_text;
using testing::GgufBytes;

TEST(Gguf, ReadsEveryKindOfValue) {
  GgufBytes file;
  file.add("u8", GgufBytes::kU8, bytes_of<uint8_t>(200)).add("i8", GgufBytes::kI8, bytes_of<int8_t>(-5));
  file.add("u16", GgufBytes::kU16, bytes_of<uint16_t>(60000)).add("i16", GgufBytes::kI16, bytes_of<int16_t>(-6));
  file.add("u32", GgufBytes::kU32, bytes_of<uint32_t>(4000000000)).add("i32", GgufBytes::kI32, bytes_of<int32_t>(-7));
  file.add("u64", GgufBytes::kU64, bytes_of<uint64_t>(1)).add("i64", GgufBytes::kI64, bytes_of<int64_t>(-8));
  file.add("f32", GgufBytes::kF32, bytes_of(0.5f)).add("f64", GgufBytes::kF64, bytes_of(0.1));
  file.add("bool", GgufBytes::kBool, bytes_of<uint8_t>(1)).add("text", "caf\u00e9");
  file.add_texts("texts", {"a", "", "bc"}).add_numbers<int32_t>("numbers", GgufBytes::kI32, {1, -2});
  file.add_numbers<float>("floats", GgufBytes::kF32, {1.5f});
  for (const uint32_t version : {2, 3}) {
    const Gguf gguf = Gguf::parse(file.file(0, version), "file");
    EXPECT_EQ(gguf.metadata().size(), 15u);
    EXPECT_EQ(gguf.at<int64_t>("u8"), 200);
    EXPECT_EQ(gguf.at<int64_t>("i8"), -5);
    EXPECT_EQ(gguf.at<int64_t>("u16"), 60000);
    EXPECT_EQ(gguf.at<int64_t>("i16"), -6);
    EXPECT_EQ(gguf.at<int64_t>("u32"), 4000000000);
    EXPECT_EQ(gguf.at<int64_t>("i32"), -7);
    EXPECT_EQ(gguf.at<int64_t>("u64"), 1);
    EXPECT_EQ(gguf.at<int64_t>("i64"), -8);
    EXPECT_EQ(gguf.at<double>("f32"), 0.5);
    EXPECT_EQ(gguf.at<double>("f64"), 0.1);
    EXPECT_TRUE(gguf.at<bool>("bool"));
    EXPECT_EQ(gguf.at<std::string>("text"), "caf\u00e9");
    EXPECT_EQ(gguf.at<std::vector<std::string>>("texts"), (std::vector<std::string>{"a", "", "bc"}));
    EXPECT_EQ(gguf.at<std::vector<int64_t>>("numbers"), (std::vector<int64_t>{1, -2}));
    EXPECT_EQ(gguf.at<std::vector<double>>("floats"), std::vector<double>{1.5});
    EXPECT_EQ(gguf.at_or<int64_t>("none", 3), 3);
    EXPECT_LOAM_ERROR(gguf.at<int64_t>("none"), ErrorCode::kBadFormat, "file: the key none is missing");
    EXPECT_LOAM_ERROR(gguf.at<int64_t>("text"), ErrorCode::kBadFormat, "text is a string, not an integer");
  }
}

TEST(Gguf, TensorsLieBehindTheHeader) {
  GgufBytes file;
  file.add_tensor("a", {3, 2}, 0, 0).add_tensor("b", {64}, 8, 32);  // 24 bytes of F32, two blocks of 34 bytes of Q8_0
  const std::string bytes = file.file(100);
  const Gguf gguf = Gguf::parse(bytes, "file");
  const auto begin = static_cast<int64_t>(bytes.size()) - 100;
  EXPECT_EQ(gguf.tensors(), (std::vector<GgufTensor>{{"a", {3, 2}, 0, begin, 24}, {"b", {64}, 8, begin + 32, 68}}));
  EXPECT_EQ(gguf.find_tensor("b"), &gguf.tensors()[1]);
  EXPECT_EQ(gguf.find_tensor("c"), nullptr);

  GgufBytes aligned;
  aligned.add("general.alignment", GgufBytes::kU32, bytes_of<uint32_t>(64)).add_tensor("a", {1}, 0, 64);
  const std::string wide = aligned.file(68, 3, 64);
  EXPECT_EQ(Gguf::parse(wide, "file").tensors()[0].offset, static_cast<int64_t>(wide.size()) - 4);
}

TEST(Gguf, WhatTheFormatForbidsIsRefused) {
  const auto refused = [](const std::string& bytes, const std::string& part) {
    EXPECT_LOAM_ERROR(Gguf::parse(bytes, "some.gguf"), ErrorCode::kBadFormat, part);
    EXPECT_LOAM_ERROR(Gguf::parse(bytes, "some.gguf"), ErrorCode::kBadFormat, "some.gguf: offset ");
  };
  refused("", "no GGUF file");
  refused("GGUF", "4 bytes are wanted and 0 are there");
  refused(GgufBytes().file(0, 1), "version 1");
  refused(GgufBytes().file(0, 0x03000000), "big-endian");
  refused("GGUF" + bytes_of<uint32_t>(3) + bytes_of<uint64_t>(0) + bytes_of<uint64_t>(1 << 30), "elements in 0 bytes");
  refused("GGUF" + bytes_of<uint32_t>(3) + bytes_of<uint64_t>(~uint64_t{0}) + bytes_of<uint64_t>(0), "are wanted");
  refused(GgufBytes().add("k", "v").add("k", "w").file(), "the key k is there twice");
  refused(GgufBytes().add("k", 13, "").file(), "type 13");
  refused(GgufBytes().add("k", GgufBytes::kBool, "\2").file(), "a bool of 2");
  refused(GgufBytes().add("k", GgufBytes::kU64, bytes_of(~uint64_t{0})).file(), "18446744073709551615");
  refused(GgufBytes().add("k", GgufBytes::kString, bytes_of(~uint64_t{0})).file(), "are wanted");
  refused(GgufBytes().add("k", GgufBytes::kArray, bytes_of<uint32_t>(9) + bytes_of<uint64_t>(0)).file(), "array of");
  refused(GgufBytes().add("k", GgufBytes::kArray, bytes_of<uint32_t>(0) + bytes_of(~uint64_t{0})).file(), "elements");
  refused(GgufBytes().add(std::string(70000, 'k'), "v").file(), "a name of 70000 bytes");
  refused(GgufBytes().add("general.alignment", GgufBytes::kU32, bytes_of<uint32_t>(24)).file(), "an alignment of 24");
  refused(GgufBytes().add("general.alignment", GgufBytes::kU32, bytes_of<uint32_t>(0)).file(), "an alignment of 0");
  refused(GgufBytes().add_tensor("a", {}, 0, 0).file(), "0 dimensions");
  refused(GgufBytes().add_tensor("a", {1, 1, 1, 1, 1}, 0, 0).file(64), "5 dimensions");
  refused(GgufBytes().add_tensor("a", {1}, 4, 0).file(64), "unknown type 4");
  refused(GgufBytes().add_tensor("a", {1}, 1000, 0).file(64), "unknown type 1000");
  refused(GgufBytes().add_tensor("a", {33}, 8, 0).file(640), "rows of 33 elements in blocks of 32");
  refused(GgufBytes().add_tensor("a", {1 << 30, 1 << 30, 8}, 0, 0).file(64), "2^63");
  refused(GgufBytes().add_tensor("a", {1}, 0, 16).file(64), "no multiple of 32");
  refused(GgufBytes().add_tensor("a", {17}, 0, 0).file(64), "outside of the file");
  refused(GgufBytes().add_tensor("a", {1}, 0, 64).file(64), "outside of the file");
  refused(GgufBytes().add_tensor("a", {9}, 0, 0).add_tensor("b", {1}, 0, 32).file(64), "overlap");
  refused(GgufBytes().add_tensor("a", {1}, 0, 0).add_tensor("a", {1}, 0, 32).file(64), "twice");
}

TEST(Gguf, EveryCutIsRefused) {
  GgufBytes file;
  file.add("k", "v").add_texts("t", {"a", "bc"}).add("f", GgufBytes::kF64, bytes_of(1.0)).add_tensor("a", {4}, 1, 0);
  const std::string whole = file.file(8);
  EXPECT_EQ(Gguf::parse(whole, "file").tensors().size(), 1u);
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_LOAM_ERROR(Gguf::parse(std::string_view(whole).substr(0, size), "file"), ErrorCode::kBadFormat, "file: ");
  }
}

}  // namespace
}  // namespace loam
