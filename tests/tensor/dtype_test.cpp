#include "loam/tensor/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

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

// IEEE 754-2019, binary16: sign, 5 bits of exponent (bias 15), 10 of fraction.
double value_of_half(uint32_t magnitude) {
  const int exponent = static_cast<int>(magnitude >> 10);
  const double fraction = (magnitude & 0x3FF) / 1024.0;
  return exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15);
}

F16 half_of(uint32_t bits) {
  F16 half;
  half.bits = static_cast<uint16_t>(bits);
  return half;
}

TEST(F16, KnownValues) {
  const std::vector<std::pair<uint16_t, float>> known{
      {0x3C00, 1.0f},          {0xC000, -2.0f},        {0x7BFF, 65504.0f}, {0x0400, 0x1p-14f}, {0x0001, 0x1p-24f},
      {0x83FF, -0x1.FF8p-15f}, {0x3555, 0.333251953f}, {0x7C00, INFINITY}, {0x0000, 0.0f}};
  for (const auto& [bits, value] : known) {
    EXPECT_EQ(static_cast<float>(half_of(bits)), value) << bits;
    EXPECT_EQ(F16(value).bits, bits);
  }
  EXPECT_TRUE(std::isnan(static_cast<float>(half_of(0x7E00))));
  EXPECT_TRUE(std::signbit(static_cast<float>(half_of(0x8000))));
}

// Of the two neighbours the nearest by distance in f64, the even one at a tie; beyond the largest the next is infinity.
TEST(F16, RoundsToNearestTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const double low = value_of_half(bits), high = value_of_half(bits + 1);
    ASSERT_EQ(static_cast<float>(half_of(bits)), low);
    const auto middle = static_cast<float>(low + (high - low) / 2);
    for (const float f :
         {static_cast<float>(low), std::nextafter(static_cast<float>(low), INFINITY), std::nextafter(middle, 0.0f),
          middle, std::nextafter(middle, INFINITY), std::nextafter(static_cast<float>(high), 0.0f)}) {
      const double below = f - low, above = high - f;
      const uint32_t expected = below < above || (below == above && bits % 2 == 0) ? bits : bits + 1;
      ASSERT_EQ(F16(f).bits, expected) << f;
      ASSERT_EQ(F16(-f).bits, expected | 0x8000) << f;
    }
  }
  EXPECT_EQ(F16(INFINITY).bits, 0x7C00);
  EXPECT_EQ(F16(-1e30f).bits, 0xFC00) << "overflow is infinity";
  for (const uint32_t nan : {0x7FC00000u, 0x7F800001u, 0xFFFFFFFFu}) {
    EXPECT_TRUE(std::isnan(static_cast<float>(F16(std::bit_cast<float>(nan)))));
  }
}

TEST(VisitFloat, GivesTheTypeOrNamesTheOther) {
  const auto dtype_of = [](auto type) { return DTypeOf<decltype(type)>::value; };
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) EXPECT_EQ(visit_float(dtype, "op", dtype_of), dtype);
  EXPECT_LOAM_ERROR(visit_float(DType::i32, "op", dtype_of), ErrorCode::kInvalidArgument,
                    "op: i32 is not f32, bf16 or f16");
}

}  // namespace
}  // namespace loam
