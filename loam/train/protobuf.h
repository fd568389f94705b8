// Protobuf's wire format, as far as writing needs it: a key (field number and kind), then a varint, eight or four
// bytes, or a length and bytes. https://protobuf.dev/programming-guides/encoding
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace loam::protobuf {

inline void put_little_endian(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

inline void put_raw_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

enum WireKind : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
inline void put_key(std::string& out, uint32_t field, WireKind kind) { put_raw_varint(out, field << 3 | kind); }

inline void put_varint(std::string& out, uint32_t field, uint64_t value) {
  put_key(out, field, kVarint);
  put_raw_varint(out, value);
}
inline void put_double(std::string& out, uint32_t field, double value) {
  put_key(out, field, kFixed64);
  put_little_endian(out, std::bit_cast<uint64_t>(value), 8);
}
inline void put_float(std::string& out, uint32_t field, float value) {
  put_key(out, field, kFixed32);
  put_little_endian(out, std::bit_cast<uint32_t>(value), 4);
}
// A string, or a message within a message.
inline void put_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  put_key(out, field, kBytes);
  put_raw_varint(out, bytes.size());
  out += bytes;
}

}  // namespace loam::protobuf
