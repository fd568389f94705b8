// Documents, and reading them from JSONL and plain text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "loam/base/file.h"
#include "loam/base/json.h"
#include "loam/data/text_source.h"

namespace loam {

struct Document {
  std::string id;  // "file:line" where the input gives none
  std::string text;
  Json metadata = Json::object();
  std::optional<std::string> prompt;  // of a pair, whose completion is `text`
};

struct DocumentReaderOptions {
  std::string text_key = "text";
  bool pairs = false;           // JSONL lines without text may hold a pair: strings under "prompt" and "completion"
  std::string separator;        // plain text: a line equal to it ends a document; empty: one document a file
  double max_bad_share = 0.01;  // of the lines seen so far (after the first 100); more bad lines are an Error
  int64_t max_bytes = int64_t{1} << 30;  // of one document as it lies in the input: each is held in memory whole
};

// Whether a file of this name holds one JSON object a line: .jsonl, .ndjson or .json, before .gz/.zst.
bool is_jsonl_name(const Path& path);
// Whether an input holds JSONL: a file by its name, standard input ("-") by its first visible byte.
bool is_jsonl(const Path& path, TextSource& opened);

// Reads documents from inputs (as open_input takes them), in order. Names ending in .jsonl, .ndjson or .json (before
// .gz/.zst) hold one JSON object a line; others are plain text. Standard input is JSONL if its first byte that is not
// white space is "{".
//
// JSONL: the text is the string under `text_key`; "id" (a string or a number; one past 64 bits makes a bad line) is the
// id; the object "metadata" and all other members are the metadata. Blank lines do not count. A bad line (not JSON, no
// object, no text) is counted, reported with file and line, and skipped; Error{kBadFormat} once they pass
// max_bad_share, or if a whole file has only bad lines. Bytes that are not UTF-8 and lone surrogates become U+FFFD.
//
// Plain text: bytes are taken as they are, NUL and invalid UTF-8 too. A separator line's own line end and the one
// before it (of CR LF both, if the separator's is that too) belong to no document; a document between separators that
// would be empty is none.
//
// A document of more than max_bytes is Error{kBadFormat}. A UTF-8 byte order mark at the start of a file is dropped;
// one of UTF-16 or UTF-32, or a token shard, is Error{kBadFormat}.
class DocumentReader {
 public:
  DocumentReader(std::vector<Path> inputs, DocumentReaderOptions options);
  // One input that is open already; it counts its bytes itself.
  DocumentReader(std::unique_ptr<TextSource> opened, bool jsonl, DocumentReaderOptions options);
  ~DocumentReader();
  // Behind a document: where another reader of the same inputs goes on.
  struct Position {
    int64_t input = 0;           // which of them
    int64_t documents = 0;       // read of it
    int64_t lines = 0, bad = 0;  // JSONL lines before it, and the bad ones of these
  };
  Position position() const;
  // Reads on from there, without opening the inputs before. REQUIRES: nothing has been read.
  void go_to(const Position& position);
  // Overwrites `document`; false at the end. After an Error nothing more may be read.
  bool next(Document& document);
  int64_t bad_lines() const;
  int64_t bytes_read() const;  // of decoded input
  // For progress, of compressed files too: how far the files have been read, in their own bytes; and all of these, 0 if
  // standard input is among them.
  int64_t file_bytes_read() const;
  int64_t file_bytes() const;
  int64_t input_bytes() const;  // sum of file sizes, 0 if unknown (standard input, compressed files)

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace loam
