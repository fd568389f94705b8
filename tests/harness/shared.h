// Where tests find their inputs: fixtures of the source tree, and real data that live beside it and may be absent.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace loam::testing {

// `relative` in the source tree: $LOAM_SOURCE, else where the tests were built from.
inline std::filesystem::path source_path(const std::string& relative) {
  const char* root = std::getenv("LOAM_SOURCE");
  return std::filesystem::path(root ? root : LOAM_SOURCE_DIR) / relative;
}

// Where `relative` lies below the shared folder: $LOAM_SHARED, else ../shared beside the source tree.
inline std::filesystem::path shared_path(const std::string& relative) {
  const char* root = std::getenv("LOAM_SHARED");
  return (root ? std::filesystem::path(root) : std::filesystem::path(LOAM_SOURCE_DIR) / ".." / "shared") / relative;
}

}  // namespace loam::testing

// Skips the test, saying why, when the shared input is not there.
#define LOAM_NEED_SHARED(path) \
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there: shared test data is absent"
