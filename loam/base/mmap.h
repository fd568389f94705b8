// A read-only memory map of a whole file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "loam/base/file.h"

namespace loam {

class MappedFile {
 public:
  MappedFile() = default;
  // Error{kNotFound, kIo}. An empty file gives an empty span.
  explicit MappedFile(const Path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(size_)}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), static_cast<size_t>(size_)}; }
  int64_t size() const { return size_; }

 private:
  const std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace loam
