#include "loam/base/mmap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "loam/base/error.h"
#include "loam/base/map_guard.h"

namespace loam {

MappedFile::MappedFile(const Path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    fail(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "{}: cannot open: {}", path.string(),
         std::strerror(errno));
  }
  struct stat status = {};
  const bool regular = ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
  void* data = nullptr;
  if (regular && status.st_size > 0) data = ::mmap(nullptr, status.st_size, PROT_READ, MAP_SHARED, fd, 0);
  const int error = errno;
  ::close(fd);  // the mapping holds the file
  if (!regular) fail(ErrorCode::kIo, "{}: not a regular file", path.string());
  if (data == MAP_FAILED) fail(ErrorCode::kIo, "{}: cannot map: {}", path.string(), std::strerror(error));
  data_ = static_cast<const std::byte*>(data);
  size_ = status.st_size;
  if (data_ != nullptr) guard_map(data_, static_cast<size_t>(size_), path.string());
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  release_map(data_);
  ::munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_));
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace loam
