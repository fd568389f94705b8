#include "loam/base/file.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <glob.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>
#include <system_error>

#include "loam/base/error.h"

namespace loam {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_errno(const Path& path, const char* action, int error = errno) {
  ErrorCode code = ErrorCode::kIo;
  if (error == ENOENT) code = ErrorCode::kNotFound;
  if (error == EEXIST || error == ENOTEMPTY) code = ErrorCode::kAlreadyExists;
  if (error == ENOMEM) code = ErrorCode::kOutOfMemory;
  fail(code, "{}: cannot {}: {}", path.string(), action, std::strerror(error));
}

// Closes a descriptor that is only read or synced: there is nothing to report.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// A hidden name beside `path` that no other process and no other call of this one uses.
Path temporary_beside(const Path& path, const char* kind) {
  // Process ids are no names: in containers they repeat, and so would what a killed process left.
  std::random_device random;
  const uint64_t number = uint64_t{random()} << 32 | random();
  const std::string name = fmt::format(".{}.{}-{}", path.filename().string(), kind, number);
  return path.parent_path() / name;
}

// "out/" and "out" are the same place.
Path without_trailing_slash(Path path) {
  if (!path.has_filename() && path.has_parent_path()) path = path.parent_path();
  LOAM_CHECK(path.has_filename(), "'{}' is not a path that can be written", path.string());
  return path;
}

Path parent_of(const Path& path) { return path.has_parent_path() ? path.parent_path() : Path("."); }

// Where a link leads: what is written takes the place of that, and the link stays.
Path behind_links(Path path) {
  constexpr int kMaxLinks = 40;  // as for the kernel
  for (int i = 0; i < kMaxLinks; ++i) {
    std::error_code error;
    const Path target = fs::read_symlink(path, error);
    if (error) return path;  // no link
    path = without_trailing_slash(parent_of(path) / target);
  }
  fail_errno(path, "follow its links", ELOOP);
}

void sync_path(const Path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) fail_errno(path, "open");
  // Some file systems cannot sync a directory and say EINVAL.
  if (::fsync(file.get()) != 0 && errno != EINVAL) fail_errno(path, "sync");
}

// Everything below `root`, without following links to directories.
std::vector<fs::directory_entry> entries_below(const Path& root) {
  std::vector<fs::directory_entry> entries;
  try {
    for (const auto& entry : fs::recursive_directory_iterator(root)) entries.push_back(entry);
  } catch (const fs::filesystem_error& error) {
    fail(ErrorCode::kIo, "{}: cannot list: {}", root.string(), error.code().message());
  }
  return entries;
}

bool is_file(const fs::directory_entry& entry) {
  std::error_code ignored;  // a link that leads nowhere is no file
  return entry.is_regular_file(ignored);
}

void sync_tree(const Path& root) {
  for (const auto& entry : entries_below(root)) {
    std::error_code ignored;
    if (!entry.is_symlink(ignored) && (is_file(entry) || entry.is_directory(ignored))) sync_path(entry.path());
  }
  sync_path(root);
}

void remove_quietly(const Path& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

// Whether `name` is one that temporary_beside() gives for `path`.
bool is_temporary_name(std::string_view name, const Path& path) {
  const std::string front = fmt::format(".{}.tmp-", path.filename().string());
  return name.starts_with(front) && name.find_first_not_of("0123456789-", front.size()) == name.npos;
}

enum class Kind { file, directory };

int open_flags(Kind kind) {
  return O_CLOEXEC | (kind == Kind::directory ? O_RDONLY | O_DIRECTORY : O_WRONLY | O_CREAT | O_EXCL);
}

// Removes what processes that were killed had begun to write for `path`: that which nobody has locked. Returns whether
// a living process writes it.
bool remove_abandoned(const Path& path) {
  std::error_code ignored;
  std::vector<Path> found;
  for (fs::directory_iterator it(parent_of(path), ignored), end; !ignored && it != end; it.increment(ignored)) {
    if (is_temporary_name(it->path().filename().native(), path)) found.push_back(it->path());
  }
  bool living = false;
  for (const Path& each : found) {
    const Descriptor opened(::open(each.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
    if (opened.get() < 0) continue;
    if (::flock(opened.get(), LOCK_EX | LOCK_NB) == 0) {
      remove_quietly(each);
    } else {
      living |= errno == EWOULDBLOCK;
    }
  }
  return living;
}

// Makes a file or directory beside `path` and locks it against remove_abandoned(); returns its descriptor, which holds
// the lock.
int make_locked(const Path& path, Kind kind, Path& made) {
  while (true) {
    made = temporary_beside(path, "tmp");
    if (kind == Kind::directory && ::mkdir(made.c_str(), 0777) != 0) fail_errno(path, "create");
    const int fd = ::open(made.c_str(), open_flags(kind), 0666);
    const int error = errno;
    if (fd < 0 && (kind == Kind::file || error != ENOENT)) {
      if (kind == Kind::directory) remove_quietly(made);
      fail_errno(path, "create", error);
    }
    // A file system without locks keeps what is abandoned.
    if (fd >= 0) ::flock(fd, LOCK_SH);
    if (fd >= 0 && fs::exists(made)) return fd;
    if (fd >= 0) ::close(fd);  // it was removed before it was locked
  }
}

// False if the file system cannot swap two directories in one step.
bool swap_directories(const Path& from, const Path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS) return false;
  fail_errno(to, "rename to it");
}

void write_fully(int fd, const Path& path, const char* data, int64_t bytes, int64_t offset) {
  while (bytes > 0) {
    const ssize_t written = ::pwrite(fd, data, static_cast<size_t>(bytes), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_errno(path, "write");
    data += written;
    offset += written;
    bytes -= written;
  }
}

}  // namespace

std::string read_file(const Path& path, int64_t limit) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) fail_errno(path, "open");
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) fail_errno(path, "read");
  LOAM_CHECK(status.st_size <= limit || !S_ISREG(status.st_mode), "{}: {} bytes, more than the limit of {}",
             path.string(), int64_t{status.st_size}, limit);
  // The size is a hint only: a file in /proc says 0, and a file may grow while it is read.
  std::string text(S_ISREG(status.st_mode) ? status.st_size + 1 : 4096, '\0');
  size_t size = 0;
  while (true) {
    if (size == text.size()) text.resize(2 * size);
    const ssize_t got = ::read(file.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno(path, "read");
    if (got == 0) break;
    size += got;
    LOAM_CHECK(static_cast<int64_t>(size) <= limit, "{}: more than the limit of {} bytes", path.string(), limit);
  }
  text.resize(size);
  return text;
}

void write_file_atomic(const Path& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

AtomicFile::AtomicFile(Path path) : path_(std::move(path)) {
  std::error_code ignored;
  const auto status = fs::status(path_, ignored);
  LOAM_CHECK(path_.has_filename() && (!fs::exists(status) || fs::is_regular_file(status)), "{}: not a regular file",
             path_.string());
  path_ = behind_links(path_);
  remove_abandoned(path_);
  fd_ = make_locked(path_, Kind::file, temporary_);
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, int64_t bytes) { write_at(size_, data, bytes); }

void AtomicFile::write_at(int64_t offset, const void* data, int64_t bytes) {
  LOAM_CHECK(fd_ >= 0, "{}: written after commit", path_.string());
  write_fully(fd_, path_, static_cast<const char*>(data), bytes, offset);
  size_ = std::max(size_, offset + bytes);
}

void AtomicFile::commit() {
  LOAM_CHECK(fd_ >= 0, "{}: committed twice", path_.string());
  if (::fsync(fd_) != 0) fail_errno(path_, "sync");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_errno(path_, "rename to it");
  temporary_.clear();
  ::close(fd_);  // only now, as the lock goes with it; what can fail was synced
  fd_ = -1;
  sync_directory(parent_of(path_));
}

namespace {

// Error if there is something else at `path` than a directory of regular files whose paths in it match one of
// `contents`.
void check_contents(const Path& path, const std::vector<std::string>& contents) {
  std::error_code error;
  const auto status = fs::status(path, error);
  if (!fs::exists(status)) return;
  if (!fs::is_directory(status)) {
    fail(ErrorCode::kAlreadyExists, "{}: is no directory; it is not replaced", path.string());
  }
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    const std::string name = entry.path().lexically_relative(path).string();
    const bool is_directory = entry.is_directory() && !entry.is_symlink();
    const auto matches = [&](const std::string& pattern) {
      if (is_directory) return pattern.starts_with(name + "/");
      return entry.is_regular_file() && !entry.is_symlink() &&
             ::fnmatch(pattern.c_str(), name.c_str(), FNM_PATHNAME) == 0;
    };
    if (std::none_of(contents.begin(), contents.end(), matches)) {
      fail(ErrorCode::kAlreadyExists, "{}: holds {}, which this command does not write; the directory is not replaced",
           path.string(), name);
    }
  }
}

}  // namespace

MadeDirectories::MadeDirectories(const Path& directory) {
  std::error_code error;
  for (Path at = fs::absolute(directory); !fs::exists(at, error) && at.has_relative_path(); at = at.parent_path()) {
    made_.push_back(at);
  }
  fs::create_directories(directory, error);
  const std::string why = error.message();
  if (fs::is_directory(directory, error)) return;
  remove_empty();
  if (fs::exists(directory, error)) fail(ErrorCode::kAlreadyExists, "{} is not a directory", directory.string());
  fail(ErrorCode::kIo, "{}: cannot make the directory: {}", directory.string(), why);
}

MadeDirectories::~MadeDirectories() { remove_empty(); }

void MadeDirectories::remove_empty() const {
  for (const Path& path : made_) ::rmdir(path.c_str());
}

namespace {

// Error unless a directory can be put at `path`: where nothing is, or an empty directory, or one that may be replaced.
void check_place(const Path& path, bool replace, const std::vector<std::string>& contents) {
  std::error_code error;
  const bool own = replace && contents.empty();  // no output that a user names
  if (own || !fs::exists(path, error)) return;
  if (fs::is_directory(path, error)) {
    struct statx status = {};
    const bool mounted = ::statx(AT_FDCWD, path.c_str(), 0, STATX_TYPE, &status) == 0 &&
                         (status.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
    LOAM_CHECK(!mounted && !fs::equivalent(path, ".", error),
               "{}: a working directory or mount point cannot be replaced: name a new directory in it", path.string());
  }
  const bool empty = fs::is_directory(path, error) && fs::is_empty(path, error) && !error;
  if (!replace && !empty) {
    fail(ErrorCode::kAlreadyExists, "{}: already exists (--force replaces it)", path.string());
  }
  if (replace) check_contents(path, contents);
}

}  // namespace

AtomicDirectory::AtomicDirectory(Path path, bool replace, const std::vector<std::string>& contents)
    : path_(behind_links(without_trailing_slash(std::move(path)))),
      parents_((check_place(path_, replace, contents), parent_of(path_))),
      replace_(replace) {
  if (remove_abandoned(path_)) {
    fail(ErrorCode::kAlreadyExists, "{}: another process is writing it", path_.string());
  }
  lock_ = make_locked(path_, Kind::directory, temporary_);
}

AtomicDirectory::~AtomicDirectory() {
  ::close(lock_);
  if (!committed_) remove_quietly(temporary_);
}

void AtomicDirectory::commit() {
  LOAM_CHECK(!committed_, "{}: committed twice", path_.string());
  sync_tree(temporary_);
  Path old;
  if (replace_ && fs::exists(path_)) {
    // Swapped in one step where the file system can: then there is no moment without a whole directory at path_.
    if (swap_directories(temporary_, path_)) {
      old = temporary_;
    } else {
      old = temporary_beside(path_, "old");
      if (::rename(path_.c_str(), old.c_str()) != 0) fail_errno(path_, "move it away");
      if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
        const int error = errno;
        ::rename(old.c_str(), path_.c_str());
        fail_errno(path_, "rename to it", error);
      }
    }
  } else if (::rename(temporary_.c_str(), path_.c_str()) != 0) {  // which replaces an empty directory, and nothing else
    if (errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR) fail_errno(path_, "rename to it");
    fail(ErrorCode::kAlreadyExists, "{}: another process has made it in the meantime; it is kept", path_.string());
  }
  committed_ = true;
  sync_directory(parent_of(path_));
  if (!old.empty()) remove_quietly(old);
}

bool lies_below(const Path& path, const Path& directory) {
  std::error_code error, missing;
  const Path whole = fs::canonical(directory, error), below = fs::canonical(path, missing);
  return !error && !missing &&
         std::mismatch(whole.begin(), whole.end(), below.begin(), below.end()).first == whole.end();
}

void sync_directory(const Path& path) { sync_path(path.empty() ? Path(".") : path); }

namespace {

// The files that a pattern of the shell stands for; none if nothing matches.
std::vector<Path> expand_pattern(const std::string& pattern) {
  glob_t matches = {};
  std::vector<Path> paths;
  if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &matches) == 0) {
    paths.assign(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  }
  ::globfree(&matches);
  return paths;
}

void add_with_contents(const Path& path, std::vector<Path>& out) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    out.push_back(path);
    return;
  }
  for (const auto& entry : entries_below(path)) {
    const Path below = entry.path().lexically_relative(path);
    const bool hidden = std::any_of(below.begin(), below.end(), [](const Path& p) { return p.native()[0] == '.'; });
    if (is_file(entry) && !hidden) out.push_back(entry.path());
  }
}

bool less_in_bytes(const Path& a, const Path& b) { return a.native() < b.native(); }

}  // namespace

std::vector<Path> expand_inputs(const std::vector<std::string>& arguments) {
  std::vector<Path> files;
  for (const std::string& argument : arguments) {
    if (argument == "-") {
      files.emplace_back(argument);
      continue;
    }
    std::vector<Path> found;
    std::error_code error;
    if (fs::exists(argument, error)) {
      add_with_contents(argument, found);
    } else {
      for (const Path& match : expand_pattern(argument)) add_with_contents(match, found);
    }
    if (found.empty()) {
      const bool pattern = argument.find_first_of("*?[") != std::string::npos;
      const bool directory = fs::is_directory(argument, error);
      fail(ErrorCode::kNotFound, "{}: {}", argument,
           directory ? "holds no files"
           : pattern ? "no file matches"
                     : "no such file");
    }
    std::sort(found.begin(), found.end(), less_in_bytes);
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

}  // namespace loam
