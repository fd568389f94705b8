#include "loam/tensor/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "loam/tensor/device.h"
#include "tests/harness/expect_error.h"

namespace loam {
namespace {

TEST(DType, NamesRoundTrip) {
  for (const DType d :
       {DType::f32, DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8, DType::u16, DType::u32}) {
    EXPECT_EQ(parse_dtype(dtype_name(d)), d);
  }
  EXPECT_LOAM_ERROR(parse_dtype("float"), ErrorCode::kInvalidArgument, "\"float\" is not one of f32, bf16");
}

TEST(Device, NamesRoundTrip) {
  EXPECT_EQ(parse_device("cpu"), Device{});
  EXPECT_EQ(device_name({}), "cpu");
  EXPECT_EQ(device_name({DeviceKind::cuda, 0}), "cuda");
  EXPECT_EQ(device_name({DeviceKind::cuda, 3}), "cuda:3");
  for (const char* bad : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:999", "cpu:0"}) {
    EXPECT_LOAM_ERROR(parse_device(bad), ErrorCode::kInvalidArgument, "is not one of");
  }
  EXPECT_EQ(parse_device("cuda:1"), (Device{DeviceKind::cuda, 1}));
}

TEST(Bf16, EveryPatternRoundTrips) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    Bf16 b;
    b.bits = static_cast<uint16_t>(bits);
    const auto f = static_cast<float>(b);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(Bf16(f))));
    } else {
      EXPECT_EQ(Bf16(f).bits, bits);
    }
  }
}

// The nearest of the two neighbours by distance in f64, the even one at a tie: no bit tricks shared with the
// conversion.
TEST(Bf16, RoundsToNearestTiesToEven) {
  const auto value = [](uint32_t bits) { return static_cast<double>(std::bit_cast<float>(bits << 16)); };
  for (uint32_t bits = 0; bits < 0x7F7F; ++bits) {
    const double low = value(bits), high = value(bits + 1);
    for (const uint32_t part : {1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      const auto f = std::bit_cast<float>(bits << 16 | part);
      const double below = f - low, above = high - f;
      const uint32_t expected = below < above || (below == above && bits % 2 == 0) ? bits : bits + 1;
      ASSERT_EQ(Bf16(f).bits, expected);
      ASSERT_EQ(Bf16(-f).bits, expected | 0x8000);
    }
  }
  EXPECT_EQ(Bf16(std::numeric_limits<float>::max()).bits, 0x7F80) << "overflow is infinity";
  EXPECT_EQ(Bf16(std::numeric_limits<float>::infinity()).bits, 0x7F80);
  EXPECT_TRUE(std::isnan(static_cast<float>(Bf16(std::bit_cast<float>(0x7F800001u))))) << "a NaN of low bits alone";
}

}  // namespace
}  // namespace loam
