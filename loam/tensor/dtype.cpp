#include "loam/tensor/dtype.h"

#include <string>

namespace loam {
namespace {

constexpr DType kAll[] = {DType::f32, DType::bf16, DType::f16, DType::i32,
                          DType::i64, DType::u8,   DType::u16, DType::u32};

}  // namespace

const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
    case DType::u8:
      return "u8";
    case DType::u16:
      return "u16";
    case DType::u32:
      return "u32";
  }
  return "unknown";
}

DType parse_dtype(std::string_view name) {
  std::string known;
  for (DType dtype : kAll) {
    if (name == dtype_name(dtype)) return dtype;
    known += known.empty() ? dtype_name(dtype) : std::string(", ") + dtype_name(dtype);
  }
  fail(ErrorCode::kInvalidArgument, "dtype: \"{}\" is not one of {}", name, known);
}

}  // namespace loam
