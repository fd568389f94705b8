// A file without the guarantees, and so without the time, of an atomic write: for fuzzers.
#pragma once

#include <filesystem>
#include <fstream>
#include <string_view>

namespace loam::testing {

inline void write_quickly(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace loam::testing
