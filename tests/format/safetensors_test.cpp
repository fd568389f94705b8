#include "loam/format/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "loam/base/log.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/shared.h"
#include "tests/harness/temp_dir.h"

namespace loam {
namespace {

using testing::TempDir;

std::string fixture() { return testing::source_path("tests/fixtures/safetensors/small.safetensors"); }

// A file by hand: the length of the header, the header, `data_bytes` bytes of data 0, 1, 2, ...
std::string file_bytes(const std::string& header, int64_t data_bytes) {
  const uint64_t size = header.size();
  std::string bytes(reinterpret_cast<const char*>(&size), 8);
  bytes += header;
  for (int64_t i = 0; i < data_bytes; ++i) bytes += static_cast<char>(i);
  return bytes;
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

class SafetensorsBytes : public ::testing::Test {
 protected:
  SafetensorsFile open(const std::string& bytes) {
    const Path path = directory_ / "x.safetensors";
    write_file_atomic(path, bytes);
    return SafetensorsFile(path);
  }
  void expect_refused(const std::string& bytes, const std::string& what) {
    const std::string message = testing::error_of(ErrorCode::kBadFormat, [&] { open(bytes); });
    EXPECT_NE(message.find(what), std::string::npos) << message << "\nlacks: " << what;
    EXPECT_NE(message.find("x.safetensors"), std::string::npos) << message;
  }
  TempDir directory_;
};

TEST(Safetensors, ReadsWhatThePythonPackageWrote) {
  const SafetensorsFile file(fixture());
  EXPECT_EQ(file.names().size(), 12u);
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}, {"note", "grüße"}}));
  for (int i = 0; i < 6; ++i) {
    const float half = static_cast<float>(i) * 0.5f - 1;
    EXPECT_EQ(file.tensor("f32").span<float>()[i], half);
    EXPECT_EQ(static_cast<float>(file.tensor("bf16").span<Bf16>()[i]), half);
    EXPECT_EQ(file.tensor("i32").span<int32_t>()[i], i * -100'000);
    EXPECT_EQ(file.tensor("i64").span<int64_t>()[i], i * int64_t{5'000'000'000});
    EXPECT_EQ(file.tensor("u8").span<uint8_t>()[i], i * 50);
    EXPECT_EQ(file.tensor("u16").span<uint16_t>()[i], i * 13'000);
    EXPECT_EQ(file.tensor("u32").span<uint32_t>()[i], static_cast<uint32_t>(i) * 800'000'000u);
  }
  // IEEE half of -1, -0.5, 0, 0.5, 1, 1.5.
  const uint16_t halves[] = {0xBC00, 0xB800, 0x0000, 0x3800, 0x3C00, 0x3E00};
  const Tensor f16 = file.tensor("f16");
  EXPECT_EQ(f16.dtype(), DType::f16);
  EXPECT_EQ(std::memcmp(f16.view().data, halves, sizeof(halves)), 0);
  EXPECT_EQ(file.tensor("f32").shape(), (Shape{2, 3}));
  EXPECT_EQ(file.tensor("scalar").rank(), 0);
  EXPECT_EQ(file.tensor("scalar").span<float>()[0], 3.25f);
  EXPECT_EQ(file.tensor("none").shape(), (Shape{0, 4}));
  EXPECT_EQ(file.tensor("odd").span<uint8_t>()[2], 9);
  EXPECT_TRUE(file.contains("f64"));
  EXPECT_LOAM_ERROR(file.tensor("f64"), ErrorCode::kBadFormat, "tensor 'f64': dtype F64 is not supported");
  EXPECT_LOAM_ERROR(file.tensor("f33"), ErrorCode::kNotFound, "small.safetensors: there is no tensor 'f33'");
}

TEST(Safetensors, TensorsShareTheMapAndOutliveTheFile) {
  Tensor tensor;
  {
    const SafetensorsFile file(fixture());
    tensor = file.tensor("f32");
    EXPECT_EQ(tensor.view().data, file.tensor("f32").view().data);
  }
  EXPECT_EQ(tensor.span<float>()[5], 1.5f);
}

TEST(Safetensors, WritesTheBytesOfTheSpecification) {
  const TempDir directory;
  const auto arena = Arena::create(Device{});
  const std::vector<uint8_t> small = {1, 2, 3};
  const std::vector<float> wide = {1.0f, -2.0f};
  write_safetensors(
      directory / "a.safetensors",
      {{"small", Tensor::from<uint8_t>(*arena, {3}, small)}, {"wide", Tensor::from<float>(*arena, {2, 1}, wide)}},
      {{"format", "pt"}});
  std::string header = R"({"__metadata__":{"format":"pt"},"wide":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                       R"("small":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})";
  while (header.size() % 8 != 0) header += ' ';
  std::string expected = file_bytes(header, 0);
  expected += std::string("\x00\x00\x80\x3F\x00\x00\x00\xC0\x01\x02\x03", 11);
  EXPECT_EQ(read_file(directory / "a.safetensors"), expected);
}

TEST(Safetensors, RoundTripKeepsNamesShapesAndValues) {
  const TempDir directory;
  const auto arena = Arena::create(Device{});
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (int k = 0; k < 9; ++k) {
    std::vector<float> values(static_cast<size_t>(k * 5));
    std::iota(values.begin(), values.end(), static_cast<float>(k));
    tensors.emplace_back("layer \"" + std::to_string(k) + "\"\n", Tensor::from<float>(*arena, {k, 5}, values));
  }
  write_safetensors(directory / "a.safetensors", tensors);
  const SafetensorsFile file(directory / "a.safetensors");
  ASSERT_EQ(file.names().size(), tensors.size());
  for (size_t k = 0; k < tensors.size(); ++k) {
    EXPECT_EQ(file.names()[k], tensors[k].first);
    const Tensor read = file.tensor(tensors[k].first);
    EXPECT_EQ(read.shape(), tensors[k].second.shape());
    EXPECT_EQ(std::memcmp(read.view().data, tensors[k].second.view().data, static_cast<size_t>(read.bytes())), 0);
  }
}

TEST(Safetensors, AnEmptyFileOfTensorsRoundTrips) {
  const TempDir directory;
  write_safetensors(directory / "a.safetensors", {});
  EXPECT_EQ(SafetensorsFile(directory / "a.safetensors").names().size(), 0u);
}

TEST(Safetensors, RefusesToWriteWhatCouldNotBeRead) {
  const TempDir directory;
  const auto arena = Arena::create(Device{});
  const Tensor t = Tensor::zeros(*arena, {2, 3}, DType::f32);
  const Path path = directory / "a.safetensors";
  EXPECT_LOAM_ERROR(write_safetensors(path, {{"a", t}, {"a", t}}), ErrorCode::kInvalidArgument, "'a' is taken");
  EXPECT_LOAM_ERROR(write_safetensors(path, {{"__metadata__", t}}), ErrorCode::kInvalidArgument, "__metadata__");
  EXPECT_LOAM_ERROR(write_safetensors(path, {{"a", t.transpose(0, 1)}}), ErrorCode::kInvalidArgument, "contiguous");
  EXPECT_LOAM_ERROR(write_safetensors(path, {{"a", Tensor()}}), ErrorCode::kInvalidArgument, "'a'");
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

// Where the data begins at an odd address, a view is impossible.
TEST_F(SafetensorsBytes, UnalignedDataIsCopied) {
  const std::string header = R"({"a":)" + entry("U8", "[1]", "[0,1]") + R"(,"b":)" + entry("I32", "[1]", "[1,5]") + "}";
  const SafetensorsFile file = open(file_bytes(header, 5));
  const Tensor b = file.tensor("b");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.view().data) % 4, 0u);
  EXPECT_EQ(b.span<int32_t>()[0], 0x04030201);
}

TEST_F(SafetensorsBytes, HeaderLengthIsNotTrusted) {
  expect_refused("", "0 bytes, too short");
  expect_refused("1234567", "7 bytes, too short");
  expect_refused(std::string(8, '\xFF'), "header length 18446744073709551615 is above");
  expect_refused(std::string(8, '\xFF') + "{}", "header length 18446744073709551615 is above");
  // 8 + length wraps to 4 in 64 bits.
  expect_refused(std::string("\xFC\xFF\xFF\xFF\xFF\xFF\xFF\xFF{}", 10), "is above");
  expect_refused(std::string("\x00\x00\x00\x00\x00\x00\x00\x00", 8), "does not begin with '{'");
  expect_refused(std::string("\x03\x00\x00\x00\x00\x00\x00\x00{}", 10), "header length 3 is beyond the end");
  expect_refused(std::string("\x00\xE1\xF5\x05\x00\x00\x00\x00{}", 10), "header length 100000000 is beyond the end");
  expect_refused(std::string("\x01\xE1\xF5\x05\x00\x00\x00\x00{}", 10), "header length 100000001 is above");
  EXPECT_EQ(open(file_bytes("{}", 0)).names().size(), 0u);
  EXPECT_EQ(open(file_bytes("{}      ", 0)).names().size(), 0u);
}

TEST_F(SafetensorsBytes, HeaderMustBeAnObjectOfEntries) {
  expect_refused(file_bytes(" {}", 0), "does not begin with '{'");
  expect_refused(file_bytes("[]", 0), "does not begin with '{'");
  expect_refused(file_bytes("{", 0), "header");
  expect_refused(file_bytes("{}x", 0), "header");
  expect_refused(file_bytes(R"({"a":3})", 0), "tensor 'a': its entry is not an object");
  expect_refused(file_bytes(R"({"a":{}})", 0), "needs dtype, shape and data_offsets");
  expect_refused(file_bytes(R"({"a":{"dtype":5,"shape":[],"data_offsets":[0,4]}})", 4), "needs dtype");
  expect_refused(file_bytes(R"({"__metadata__":{"a":1}})", 0), "__metadata__ 'a' is not a string");
  expect_refused(file_bytes(R"({"__metadata__":[]})", 0), "__metadata__ must be one object");
  const std::string a = R"("a":)" + entry("U8", "[2]", "[0,2]");
  expect_refused(file_bytes("{" + a + "," + a + "}", 2), "tensor 'a': named twice");
}

TEST_F(SafetensorsBytes, DTypeAndShapeAreChecked) {
  const auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"w":)" + entry(dtype, shape, offsets) + "}";
  };
  expect_refused(file_bytes(one("", "[]", "[0,0]"), 0), "tensor 'w': unknown dtype ''");
  expect_refused(file_bytes(one("", "[0]", "[0,0]"), 0), "unknown dtype ''");
  expect_refused(file_bytes(one("f32", "[1]", "[0,4]"), 4), "unknown dtype 'f32'");
  expect_refused(file_bytes(one("U8", "[-1]", "[0,4]"), 4), "not a whole number of at least 0");
  expect_refused(file_bytes(one("U8", "[1.5]", "[0,4]"), 4), "not a whole number");
  expect_refused(file_bytes(one("U8", "[18446744073709551615]", "[0,4]"), 4), "not a whole number");
  expect_refused(file_bytes(one("F32", "[4611686018427387904,4]", "[0,0]"), 0), "the shape is too large");
  expect_refused(file_bytes(one("F32", "[4294967296,4294967296]", "[0,0]"), 0), "the shape is too large");
  expect_refused(file_bytes(one("U8", "[9223372036854775807,9223372036854775807,0]", "[0,0]"), 0), "too large");
  expect_refused(file_bytes(one("U8", "[1,1,1,1,1,1,1]", "[0,1]"), 1), "7 axes");
  expect_refused(file_bytes(one("F4", "[1]", "[0,0]"), 0), "does not fill whole bytes");
  EXPECT_EQ(open(file_bytes(one("F4", "[4]", "[0,2]"), 2)).names().size(), 1u);
}

TEST_F(SafetensorsBytes, RangesAreChecked) {
  const auto one = [](const std::string& shape, const std::string& offsets) {
    return R"({"w":)" + entry("F32", shape, offsets) + "}";
  };
  expect_refused(file_bytes(one("[2]", "[0,7]"), 7), "7 bytes of data, but F32 [2] takes 8");
  expect_refused(file_bytes(one("[2]", "[0,8]"), 7), "not inside the data of 7 bytes");
  expect_refused(file_bytes(one("[2]", "[8,0]"), 8), "not inside the data");
  expect_refused(file_bytes(one("[2]", "[-8,0]"), 8), "not inside the data");
  expect_refused(file_bytes(one("[2]", "[9223372036854775800,9223372036854775807]"), 8), "not inside the data");
  expect_refused(file_bytes(one("[2]", "[0]"), 8), "not a pair");
  expect_refused(file_bytes(one("[2]", "[0,8,8]"), 8), "not a pair");
  expect_refused(file_bytes(one("[2]", "[0.5,8]"), 8), "not a pair");
  expect_refused(file_bytes(one("[2]", "[0,8]"), 9), "bytes [8, 9) of the data belong to no tensor");
  expect_refused(file_bytes(one("[2]", "[1,9]"), 9), "tensor 'w': bytes [0, 1) belong to no tensor");

  const auto two = [](const std::string& a, const std::string& b) {
    return R"({"b":)" + entry("U8", "[4]", b) + R"(,"a":)" + entry("U8", "[4]", a) + "}";
  };
  expect_refused(file_bytes(two("[0,4]", "[3,7]"), 7), "tensor 'b': overlaps");
  expect_refused(file_bytes(two("[0,4]", "[0,4]"), 4), "overlaps");
  expect_refused(file_bytes(two("[0,4]", "[5,9]"), 9), "tensor 'b': bytes [4, 5) belong to no tensor");
  const SafetensorsFile good = open(file_bytes(two("[0,4]", "[4,8]"), 8));
  EXPECT_EQ(good.names(), (std::vector<std::string>{"a", "b"}));  // in order of the data, not of the header
  EXPECT_EQ(good.tensor("b").span<uint8_t>()[3], 7);
}

TEST_F(SafetensorsBytes, EveryShorteningOfAGoodFileIsRefused) {
  const std::string good = read_file(fixture());
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_THROW(open(good.substr(0, size)), Error) << size;
  }
}

TEST(SafetensorsModel, ReadsShardsByTheirIndex) {
  const TempDir directory;
  const auto arena = Arena::create(Device{});
  const auto scalar = [&](float value) { return Tensor::from<float>(*arena, {1}, std::span<const float>(&value, 1)); };
  write_safetensors(directory / "m-1.safetensors", {{"z", scalar(1)}, {"y", scalar(2)}});
  write_safetensors(directory / "m-2.safetensors", {{"x", scalar(3)}});
  const auto index = [&](const std::string& map) {
    write_file_atomic(directory / "model.safetensors.index.json",
                      R"({"metadata":{"total_size":12},"weight_map":)" + map + "}");
  };
  index(R"({"x":"m-2.safetensors","y":"m-1.safetensors","z":"m-1.safetensors"})");
  const SafetensorsModel model(directory.path());
  EXPECT_EQ(model.names(), (std::vector<std::string>{"x", "z", "y"}));
  EXPECT_EQ(model.tensor("x").span<float>()[0], 3);
  EXPECT_EQ(model.tensor("y").span<float>()[0], 2);
  EXPECT_FALSE(model.contains("w"));
  EXPECT_LOAM_ERROR(model.tensor("w"), ErrorCode::kNotFound, "there is no tensor 'w'");

  const auto open = [&] { SafetensorsModel again(directory.path()); };
  index(R"({"x":"m-2.safetensors","w":"m-1.safetensors"})");
  EXPECT_LOAM_ERROR(open(), ErrorCode::kBadFormat, "m-1.safetensors does not hold tensor 'w'");
  index(R"({"x":"m-3.safetensors"})");
  EXPECT_LOAM_ERROR(open(), ErrorCode::kNotFound, "m-3.safetensors");
  index(R"({"x":"../m-2.safetensors"})");
  EXPECT_LOAM_ERROR(open(), ErrorCode::kBadFormat, "not the name of a file beside it");
  index(R"({"x":"m-2.safetensors","x":"m-2.safetensors"})");
  EXPECT_LOAM_ERROR(open(), ErrorCode::kBadFormat, "named twice");
  index("[]");
  EXPECT_LOAM_ERROR(open(), ErrorCode::kBadFormat, "weight_map");
}

TEST(SafetensorsModel, OneFileNeedsNoIndex) {
  const TempDir directory;
  EXPECT_LOAM_ERROR(SafetensorsModel(directory.path()), ErrorCode::kNotFound, "holds neither model.safetensors nor");
  std::filesystem::copy(fixture(), directory / "model.safetensors");
  EXPECT_EQ(SafetensorsModel(directory.path()).tensor("scalar").span<float>()[0], 3.25f);
  EXPECT_EQ(SafetensorsModel(fixture()).tensor("scalar").span<float>()[0], 3.25f);
  EXPECT_LOAM_ERROR(SafetensorsModel(directory / "absent"), ErrorCode::kNotFound, "absent");
}

}  // namespace
}  // namespace loam
