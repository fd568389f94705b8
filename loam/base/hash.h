// Hashes: XXH3 for tables and fingerprints, CRC-32 and CRC-32C for record checks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace loam {

uint64_t hash64(std::string_view bytes, uint64_t seed = 0);  // XXH3-64
std::string hash_hex(std::string_view bytes);                // XXH3-128 as 32 hexadecimal digits

// hash64 of bytes that come in parts.
class StreamHash64 {
 public:
  StreamHash64();
  ~StreamHash64();
  StreamHash64(const StreamHash64&) = delete;
  StreamHash64& operator=(const StreamHash64&) = delete;
  void update(std::string_view bytes);
  uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

uint32_t crc32(std::string_view bytes);                     // zlib's, of gzip and PNG
uint32_t crc32c(std::string_view bytes, uint32_t crc = 0);  // Castagnoli, as in RFC 3720; chained through `crc`

}  // namespace loam
