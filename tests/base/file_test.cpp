#include "loam/base/file.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/harness/expect_error.h"
#include "tests/harness/temp_dir.h"

namespace loam {
namespace {

using testing::TempDir;

void put(const Path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

TEST(ReadFile, ReturnsEveryByte) {
  const TempDir dir;
  std::string bytes(300'000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7);
  put(dir / "a", bytes);
  put(dir / "empty", "");
  EXPECT_EQ(read_file(dir / "a"), bytes);
  EXPECT_EQ(read_file(dir / "empty"), "");
  EXPECT_NE(read_file("/proc/self/status").find("Pid:"), std::string::npos);  // its size is given as 0
}

TEST(ReadFile, ErrorsNameTheFile) {
  const TempDir dir;
  put(dir / "a", "12345");
  EXPECT_EQ(read_file(dir / "a", 5), "12345");
  EXPECT_LOAM_ERROR(read_file(dir / "a", 4), ErrorCode::kInvalidArgument, "/a: 5 bytes, more than the limit of 4");
  EXPECT_LOAM_ERROR(read_file(dir / "none"), ErrorCode::kNotFound, "/none");
  EXPECT_LOAM_ERROR(read_file(dir.path()), ErrorCode::kIo, "directory");
}

TEST(ExpandInputs, FilesDirectoriesAndPatterns) {
  const TempDir dir;
  for (const char* name : {"b.txt", "a.txt", "sub/c.txt", "sub/deep/d.bin", "[x].txt"}) put(dir / name, "x");
  const auto expand = [&](const std::string& name) {
    std::vector<std::string> names;
    for (const Path& path : expand_inputs({(dir / name).string()})) {
      names.push_back(path.lexically_relative(dir.path()).string());
    }
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(expand("b.txt"), (Names{"b.txt"}));
  EXPECT_EQ(expand("sub"), (Names{"sub/c.txt", "sub/deep/d.bin"}));
  EXPECT_EQ(expand("[ab].txt"), (Names{"a.txt", "b.txt"}));
  EXPECT_EQ(expand("?.txt"), (Names{"a.txt", "b.txt"}));
  EXPECT_EQ(expand("s*"), (Names{"sub/c.txt", "sub/deep/d.bin"}));
  EXPECT_EQ(expand("[x].txt"), (Names{"[x].txt"}));  // a name that exists is itself
  EXPECT_EQ(expand_inputs({"-"}), (std::vector<Path>{"-"}));
}

TEST(ExpandInputs, HiddenNamesInADirectoryAreNotMeant) {
  const testing::TempDir dir;
  for (const char* name : {".in/a.txt", ".in/.b.txt", ".in/.git/c.txt"}) {
    std::filesystem::create_directories((dir / name).parent_path());
    write_file_atomic(dir / name, "x");
  }
  EXPECT_EQ(expand_inputs({(dir / ".in").string()}), (std::vector<Path>{dir / ".in" / "a.txt"}));
  EXPECT_EQ(expand_inputs({(dir / ".in" / ".b.txt").string()}), (std::vector<Path>{dir / ".in" / ".b.txt"}));
}

TEST(ExpandInputs, WhatMatchesNothingIsAnError) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "empty");
  EXPECT_LOAM_ERROR(expand_inputs({dir / "none"}), ErrorCode::kNotFound, "none: no such file");
  EXPECT_LOAM_ERROR(expand_inputs({dir / "*.txt"}), ErrorCode::kNotFound, "*.txt: no file matches");
  EXPECT_LOAM_ERROR(expand_inputs({dir / "empty"}), ErrorCode::kNotFound, "empty: holds no files");
}

}  // namespace
}  // namespace loam
