// Counter-based random numbers: the value is a pure function of a key and a counter, so it does not depend on threads
// or order. Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace loam {

constexpr std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// The random stream of one place in the program: keyed by the run's seed, and by a site (which tensor, which layer,
// which use). Element `index` of the stream can be had at any time, from any thread.
struct PhiloxStream {
  uint64_t seed = 0;
  uint64_t site = 0;

  constexpr std::array<uint32_t, 4> block(uint64_t index) const {
    return philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), static_cast<uint32_t>(site),
                       static_cast<uint32_t>(site >> 32)},
                      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  }
  constexpr uint32_t bits(uint64_t index) const { return block(index / 4)[index % 4]; }
  // Uniform on [0, 1): 24 bits.
  float uniform(uint64_t index) const { return static_cast<float>(bits(index) >> 8) * 0x1p-24f; }
  // Uniform on [0, n), n > 0.
  uint64_t below(uint64_t index, uint64_t n) const {
    const auto b = block(index);
    const uint64_t wide = (uint64_t{b[1]} << 32) | b[0];
    return static_cast<uint64_t>((static_cast<unsigned __int128>(wide) * n) >> 64);
  }
  // Standard normal, by Box and Muller in double.
  double normal(uint64_t index) const {
    const auto b = block(index);
    const double u = (b[0] + 1.0) * 0x1p-32, v = b[1] * 0x1p-32;  // u in (0, 1]
    return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v);
  }
};

}  // namespace loam
