// A read-only memory map of a whole file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "loam/base/file.h"

namespace loam {

// A file that is cut, or becomes unreadable, while it is mapped cannot be told by an exception: the first read of what
// is gone is a SIGBUS. The first map installs a handler for it. Where the address lies in a map of loam, the process
// ends with status 1 after one line on stderr that names the file; all else goes to the handler that was there before.
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
