#include "tests/harness/temp_dir.h"

#include <stdlib.h>

namespace loam::testing {

TempDir::TempDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "loam-test-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::filesystem::filesystem_error("mkdtemp", std::error_code());
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::filesystem::path TempDir::operator/(const std::string& name) const { return path_ / name; }

}  // namespace loam::testing
