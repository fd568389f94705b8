#include "loam/base/hash.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace loam {
namespace {

// RFC 3720, appendix B.4; and the check value of CRC-32C in the catalogue of CRC algorithms.
TEST(Hash, Crc32cKnownAnswers) {
  std::string rising(32, '\0');
  for (int i = 0; i < 32; ++i) rising[i] = static_cast<char>(i);
  const std::string falling(rising.rbegin(), rising.rend());
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
  EXPECT_EQ(crc32c(rising), 0x46DD794Eu);
  EXPECT_EQ(crc32c(falling), 0x113FDB5Cu);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(Hash, Crc32cChains) {
  const std::string text = "The quick brown fox jumps over the lazy dog";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(crc32c(text.substr(cut), crc32c(text.substr(0, cut))), crc32c(text));
  }
}

// Published values of XXH3-64 and XXH3-128 with seed 0.
TEST(Hash, Xxh3KnownAnswers) {
  EXPECT_EQ(hash64(""), 0x2D06800538D394C2u);
  EXPECT_EQ(hash64("abc"), 0x78AF5F94892F3950u);
  EXPECT_EQ(hash_hex(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hash_hex("abc"), "06b05ab6733a618578af5f94892f3950");
  EXPECT_NE(hash64("abc", 1), hash64("abc"));
}

}  // namespace
}  // namespace loam
