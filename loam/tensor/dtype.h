// Element types, and conversion between them one value at a time.
#pragma once

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

}  // namespace loam
