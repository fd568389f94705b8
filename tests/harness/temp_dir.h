// A directory of a test's own, removed at the end.
#pragma once

#include <filesystem>
#include <string>

namespace loam::testing {

class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const;

 private:
  std::filesystem::path path_;
};

}  // namespace loam::testing
