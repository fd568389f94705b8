// Files: whole reads, atomic writes, directories that appear whole or not at all, and byte streams that undo gzip and
// zstd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace loam {

using Path = std::filesystem::path;

// Reads a whole file. Error{kNotFound, kIo}, or {kInvalidArgument} if it is longer than `limit` bytes.
std::string read_file(const Path& path, int64_t limit = int64_t{1} << 40);

// Writes `bytes` to a temporary file beside `path`, fsyncs, renames. On failure `path` is untouched and nothing is left
// behind.
void write_file_atomic(const Path& path, std::string_view bytes);

// A sequential writer with the same guarantee: nothing appears at `path` before commit(); the destructor removes what
// was not committed, the next writer of `path` what a killed process left. A link at `path` is followed, and stays.
class AtomicFile {
 public:
  explicit AtomicFile(Path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  void write(const void* data, int64_t bytes);
  void write(std::string_view bytes) { write(bytes.data(), static_cast<int64_t>(bytes.size())); }
  void write_at(int64_t offset, const void* data, int64_t bytes);  // for headers whose counts are known at the end
  int64_t size() const { return size_; }
  void commit();

 private:
  Path path_, temporary_;
  int fd_ = -1;
  int64_t size_ = 0;
};

// Makes a directory and what is missing above it; when it goes, those that it made and that are still empty go too.
// Error{kAlreadyExists} for what is no directory, {kIo} if it cannot be made.
class MadeDirectories {
 public:
  explicit MadeDirectories(const Path& directory);
  ~MadeDirectories();
  MadeDirectories(const MadeDirectories&) = delete;
  MadeDirectories& operator=(const MadeDirectories&) = delete;

 private:
  void remove_empty() const;
  std::vector<Path> made_;  // innermost first
};

// A directory that is built under a temporary name beside `path` and renamed to it by commit() (files and directory
// fsynced); directories above it are made. A link at `path` is followed, and stays. An empty directory there is
// replaced, any other thing only with `replace`: it is moved away and removed after the rename; where `contents` is
// given, only a directory of regular files whose paths in it ("train/index.json") all match one of these patterns (of
// the shell), so that nothing of the user's is lost. Otherwise, or while another process builds the same one,
// Error{kAlreadyExists} at once; from commit() if another came first after all. What killed processes left under such
// names is removed: a living one holds a lock.
class AtomicDirectory {
 public:
  explicit AtomicDirectory(Path path, bool replace = false, const std::vector<std::string>& contents = {});
  ~AtomicDirectory();  // removes what was not committed
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;
  const Path& path() const { return temporary_; }
  void commit();

 private:
  Path path_, temporary_;
  MadeDirectories parents_;
  int lock_ = -1;  // a descriptor of the directory
  bool replace_, committed_ = false;
};

// A stream of bytes.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills the front of `buffer`; returns the number of bytes, 0 at the end. Error{kIo}, or {kBadFormat} with the offset
  // for a damaged stream.
  virtual int64_t read(std::span<char> buffer) = 0;
  // How far the file itself has been read: its own bytes, compressed as they may be. For progress.
  virtual int64_t file_position() const = 0;
  // For messages: the path, or "standard input".
  virtual const std::string& name() const = 0;
};

// Opens a file, or standard input for "-". gzip (all members) and zstd (all frames, windows up to 128 MiB) are
// recognised by their first bytes and undone. Error{kBadFormat} for a name in .gz or .zst without them.
std::unique_ptr<ByteSource> open_input(const Path& path);

// The rest of a source, for inputs that fit in memory.
std::string read_all(ByteSource& source);

// Files named by `arguments`: a file is itself, a directory all regular files below it in byte order of their paths but
// those with a name, or in a directory, that begins with a dot, a pattern with * ? [ is expanded, "-" stays.
// Error{kNotFound} for a name or pattern that matches nothing.
std::vector<Path> expand_inputs(const std::vector<std::string>& arguments);

// One line at a time without its "\n"; false at the end. Error{kBadFormat} for a line longer than `limit`.
class LineReader {
 public:
  explicit LineReader(std::unique_ptr<ByteSource> source, int64_t limit = int64_t{1} << 30);
  ~LineReader();
  bool next(std::string& line);
  int64_t line_number() const { return line_number_; }  // of the line read last, from 1
  const std::string& name() const { return source_->name(); }

 private:
  std::unique_ptr<ByteSource> source_;
  std::string buffer_;
  size_t begin_ = 0;
  int64_t limit_, line_number_ = 0;
};

// Whether `path` is there and lies in `directory`, at any depth.
bool lies_below(const Path& path, const Path& directory);

// fsync of a directory, so that a rename in it survives a crash.
void sync_directory(const Path& path);

}  // namespace loam
