// Counted pieces in ascending order of their bytes: streams of them, and files of them ("runs").
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "loam/base/file.h"
#include "loam/text/piece_counter.h"

namespace loam {

class PieceStream {
 public:
  virtual ~PieceStream() = default;
  // Goes on to the next piece, the first at first; false at the end.
  virtual bool next() = 0;
  std::string_view piece() const { return piece_; }  // until next()
  int64_t count() const { return count_; }

 protected:
  std::string_view piece_;
  int64_t count_ = 0;
};

// The pieces of a table, which must stay as it is.
std::unique_ptr<PieceStream> stream_of(const PieceCounter& counter);

using PieceVisitor = std::function<void(std::string_view piece, int64_t count)>;

// Visits each piece of these streams once, in ascending order, with the sum of its counts.
void merge_streams(std::vector<std::unique_ptr<PieceStream>> streams, const PieceVisitor& visit);

// A file: the line "loam pieces 1", and for each piece its length, its bytes and its count; numbers are little-endian
// in groups of seven bits, the high bit set in all but the last.
struct RunFile {
  std::string name;  // in its directory
  int64_t bytes = 0;
  uint32_t crc = 0;  // CRC-32C of the whole file

  bool operator==(const RunFile&) const = default;
};

// Writes directory/name from what `streams` hold.
RunFile write_run(const Path& directory, const std::string& name, std::vector<std::unique_ptr<PieceStream>> streams);
// Error{kBadFormat} while it is read, at its end at the latest, for a file that is not the one that was written.
std::unique_ptr<PieceStream> open_run(const Path& directory, const RunFile& run);

}  // namespace loam
