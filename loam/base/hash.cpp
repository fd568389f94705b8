#include "loam/base/hash.h"

#define XXH_STATIC_LINKING_ONLY  // the size of XXH3_state_t
#include <fmt/core.h>
#include <xxhash.h>
#include <zlib.h>

#include <array>
#include <cstring>

namespace loam {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78u;  // Castagnoli's, bits reversed

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = make_table();

uint32_t crc32c_by_table(std::string_view bytes, uint32_t crc) {
  for (const char c : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  return crc;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) uint32_t crc32c_by_instruction(std::string_view bytes, uint32_t crc) {
  uint64_t wide = crc;
  while (bytes.size() >= 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), 8);
    wide = __builtin_ia32_crc32di(wide, word);
    bytes.remove_prefix(8);
  }
  crc = static_cast<uint32_t>(wide);
  for (const char c : bytes) crc = __builtin_ia32_crc32qi(crc, static_cast<unsigned char>(c));
  return crc;
}
#endif

}  // namespace

uint64_t hash64(std::string_view bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::string hash_hex(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

struct StreamHash64::State {
  XXH3_state_t xxh3;
};

StreamHash64::StreamHash64() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->xxh3); }
StreamHash64::~StreamHash64() = default;
void StreamHash64::update(std::string_view bytes) { XXH3_64bits_update(&state_->xxh3, bytes.data(), bytes.size()); }
uint64_t StreamHash64::digest() const { return XXH3_64bits_digest(&state_->xxh3); }

uint32_t crc32(std::string_view bytes) {
  return static_cast<uint32_t>(::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

uint32_t crc32c(std::string_view bytes, uint32_t crc) {
#ifdef __x86_64__
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return ~crc32c_by_instruction(bytes, ~crc);
#endif
  return ~crc32c_by_table(bytes, ~crc);
}

}  // namespace loam
