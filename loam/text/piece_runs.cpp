#include "loam/text/piece_runs.h"

#include <algorithm>
#include <limits>

#include "loam/base/error.h"
#include "loam/base/hash.h"
#include "loam/base/interrupt.h"

namespace loam {
namespace {

constexpr std::string_view kMagic = "loam pieces 1\n";
constexpr size_t kBlock = 256 << 10;  // bytes read or written at once

class TableStream : public PieceStream {
 public:
  explicit TableStream(const PieceCounter& counter) : counter_(counter), records_(counter.sorted()) {}

  bool next() override {
    if (at_ == records_.size()) return false;
    piece_ = counter_.text(records_[at_]);
    count_ = counter_.count(records_[at_++]);
    return true;
  }

 private:
  const PieceCounter& counter_;
  std::vector<uint32_t> records_;
  size_t at_ = 0;
};

class RunStream : public PieceStream {
 public:
  RunStream(const Path& path, const RunFile& run) : run_(run), source_(open_input(path)) {
    if (!have(kMagic.size()) || !rest().starts_with(kMagic)) fail_damaged();
    begin_ += kMagic.size();
  }

  bool next() override {
    if (!have(1)) {
      if (read_ != run_.bytes || crc_ != run_.crc) fail_damaged();
      return false;
    }
    const uint64_t length = read_number();
    if (length == 0 || length > static_cast<uint64_t>(run_.bytes) || !have(length)) fail_damaged();
    last_.swap(next_);
    next_.assign(rest().substr(0, length));
    begin_ += length;
    const uint64_t count = read_number();
    if (next_ <= last_ || count == 0 || count > std::numeric_limits<int64_t>::max()) fail_damaged();
    piece_ = next_;
    count_ = static_cast<int64_t>(count);
    return true;
  }

 private:
  std::string_view rest() const { return std::string_view(buffer_).substr(begin_); }
  [[noreturn]] void fail_damaged() const {
    fail(ErrorCode::kBadFormat, "{}: is not the file of counted pieces that was written there", source_->name());
  }

  // Reads until so many bytes are in the buffer; false if the file has fewer.
  bool have(size_t count) {
    while (buffer_.size() - begin_ < count) {
      buffer_.erase(0, begin_);
      begin_ = 0;
      const size_t kept = buffer_.size();
      buffer_.resize(kept + kBlock);
      const int64_t got = source_->read(std::span(buffer_).subspan(kept));
      buffer_.resize(kept + static_cast<size_t>(got));
      crc_ = crc32c(std::string_view(buffer_).substr(kept), crc_);
      read_ += got;
      if (got == 0) return false;
    }
    return true;
  }

  uint64_t read_number() {
    uint64_t number = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (!have(1)) fail_damaged();
      const auto byte = static_cast<unsigned char>(buffer_[begin_++]);
      number |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return number;
    }
    fail_damaged();
  }

  RunFile run_;
  std::unique_ptr<ByteSource> source_;
  std::string buffer_, last_, next_;
  size_t begin_ = 0;  // in buffer_, of what is not read yet
  int64_t read_ = 0;
  uint32_t crc_ = 0;
};

class RunWriter {
 public:
  explicit RunWriter(const Path& path) : file_(path), block_(kMagic) {}

  void add(std::string_view piece, int64_t count) {
    add_number(piece.size());
    block_ += piece;
    add_number(static_cast<uint64_t>(count));
    if (block_.size() >= kBlock) flush();
  }
  uint32_t commit() {
    flush();
    file_.commit();
    return crc_;
  }
  int64_t size() const { return file_.size(); }

 private:
  void add_number(uint64_t number) {
    for (; number >= 0x80; number >>= 7) block_ += static_cast<char>(number | 0x80);
    block_ += static_cast<char>(number);
  }
  void flush() {
    crc_ = crc32c(block_, crc_);
    file_.write(block_);
    block_.clear();
  }

  AtomicFile file_;
  std::string block_;
  uint32_t crc_ = 0;
};

}  // namespace

std::unique_ptr<PieceStream> stream_of(const PieceCounter& counter) { return std::make_unique<TableStream>(counter); }

void merge_streams(std::vector<std::unique_ptr<PieceStream>> streams, const PieceVisitor& visit) {
  std::erase_if(streams, [](const auto& stream) { return !stream->next(); });
  const auto later = [](const auto& a, const auto& b) { return a->piece() > b->piece(); };
  std::make_heap(streams.begin(), streams.end(), later);  // the least piece in front
  std::string piece;
  for (uint64_t visited = 0; !streams.empty(); ++visited) {
    if (visited % 65536 == 0) check_interrupt();
    piece = streams.front()->piece();
    int64_t count = 0;
    while (!streams.empty() && streams.front()->piece() == piece) {
      std::pop_heap(streams.begin(), streams.end(), later);
      LOAM_CHECK(!__builtin_add_overflow(count, streams.back()->count(), &count),
                 "tokenizer training: a piece occurs more than 2^63 times");
      if (streams.back()->next()) {
        std::push_heap(streams.begin(), streams.end(), later);
      } else {
        streams.pop_back();
      }
    }
    visit(piece, count);
  }
}

RunFile write_run(const Path& directory, const std::string& name, std::vector<std::unique_ptr<PieceStream>> streams) {
  RunWriter writer(directory / name);
  merge_streams(std::move(streams), [&](std::string_view piece, int64_t count) { writer.add(piece, count); });
  const uint32_t crc = writer.commit();
  return {name, writer.size(), crc};
}

std::unique_ptr<PieceStream> open_run(const Path& directory, const RunFile& run) {
  return std::make_unique<RunStream>(directory / run.name, run);
}

}  // namespace loam
