// Element types, and conversion between them one value at a time.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string_view>

#include "loam/base/error.h"

namespace loam {

enum class DType : uint8_t { f32, bf16, f16, i32, i64, u8, u16, u32 };

constexpr int64_t dtype_size(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::i32:
    case DType::u32:
      return 4;
    case DType::bf16:
    case DType::f16:
    case DType::u16:
      return 2;
    case DType::i64:
      return 8;
    case DType::u8:
      return 1;
  }
  return 0;
}
const char* dtype_name(DType dtype);       // "f32", "bf16", ...
DType parse_dtype(std::string_view name);  // Error for an unknown name

// bfloat16: the upper half of a float. Storage only; arithmetic is done in float.
struct Bf16 {
  uint16_t bits = 0;

  Bf16() = default;
  // Rounds to nearest, ties to even; NaN stays NaN (quiet), infinities and overflow become infinity.
  explicit Bf16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) {
      bits = static_cast<uint16_t>((u >> 16) | 0x0040u);
    } else {
      bits = static_cast<uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
    }
  }
  explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};

// IEEE 754 binary16. Storage only; arithmetic is done in float.
struct F16 {
  uint16_t bits = 0;

  F16() = default;
  // Rounds to nearest, ties to even; NaN stays NaN (quiet), infinities and overflow (from 65520 on) become infinity.
  explicit F16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value), magnitude = u & 0x7FFFFFFFu;
    uint32_t rounded = std::min(((magnitude + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13) - (112u << 10), 0x7C00u);
    if (magnitude > 0x7F800000u) rounded = 0x7E00u | ((magnitude >> 13) & 0x3FFu);
    if (magnitude < 0x38800000u) {  // below the least normal one: a multiple of 2^-24, added in float, which rounds
      rounded = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u;
    }
    bits = static_cast<uint16_t>(((u >> 16) & 0x8000u) | rounded);
  }
  explicit operator float() const {
    const uint32_t sign = uint32_t{bits & 0x8000u} << 16, magnitude = bits & 0x7FFFu;
    uint32_t u = (magnitude << 13) + (112u << 23);
    if (magnitude >= 0x7C00u) u += 112u << 23;  // infinity, NaN
    if (magnitude < 0x0400u) u = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude + 0x3F000000u) - 0.5f);
    return std::bit_cast<float>(sign | u);
  }
};

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<Bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<F16> {
  static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::u8;
};
template <>
struct DTypeOf<uint16_t> {
  static constexpr DType value = DType::u16;
};
template <>
struct DTypeOf<uint32_t> {
  static constexpr DType value = DType::u32;
};

// What models compute with.
constexpr bool is_float(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }

// Calls f(T{}) with the type T of a float dtype: float, Bf16 or F16.
template <class F>
decltype(auto) visit_float(DType dtype, const char* what, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f(float{});
    case DType::bf16:
      return f(Bf16{});
    case DType::f16:
      return f(F16{});
    default:
      fail(ErrorCode::kInvalidArgument, "{}: {} is not f32, bf16 or f16", what, dtype_name(dtype));
  }
}

}  // namespace loam
