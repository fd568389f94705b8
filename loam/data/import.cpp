#include "loam/data/import.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "loam/base/error.h"
#include "loam/base/interrupt.h"
#include "loam/base/log.h"
#include "loam/base/progress.h"
#include "loam/text/tokenizer_model.h"

namespace loam {
namespace {

constexpr size_t kBlock = 1 << 18;  // ids read at once

// The bytes of text that a document's ids stand for.
class TextBytes {
 public:
  explicit TextBytes(const Tokenizer* tokenizer) {
    if (!tokenizer) return;
    has_space_ = tokenizer->rules().space.prefix != SpaceRule::Prefix::kNever;
    for (int64_t id = 0; id < tokenizer->vocab_size(); ++id) {
      const auto token = static_cast<int32_t>(id);
      bytes_.push_back(!tokenizer->has_token(token)   ? -1
                       : tokenizer->is_special(token) ? 0
                                                      : static_cast<int32_t>(tokenizer->token_bytes(token).size()));
    }
  }

  // Error{kBadFormat} for an id without a token.
  int64_t of(std::span<const int32_t> document, const std::string& file) const {
    if (bytes_.empty()) return 0;
    int64_t sum = 0;
    for (const int32_t id : document) {
      const int32_t bytes = bytes_[static_cast<size_t>(id)];
      if (bytes < 0) fail(ErrorCode::kBadFormat, "{}: the id {} is not in the tokenizer", file, id);
      sum += bytes;
    }
    return has_space_ && sum > 0 ? sum - 1 : sum;
  }

 private:
  std::vector<int32_t> bytes_;  // by id; -1: there is no such token
  bool has_space_ = false;      // in front of every text, though the text has none
};

// Cuts a stream of ids at the document tokens, and after `longest` ids.
class Splitter {
 public:
  using Take = std::function<void(std::vector<int32_t>& ids, bool whole)>;  // not whole: a piece of a document
  Splitter(int32_t token, int64_t longest, Take take)
      : token_(token), longest_(static_cast<size_t>(longest)), take_(std::move(take)) {}

  void add(std::span<const int32_t> ids) {
    for (const int32_t id : ids) {
      if (!begun_) token_is_first_ = id == token_;
      begun_ = true;
      if (id == token_ && token_is_first_) end();
      if (document_.size() == longest_) {
        take_(document_, false);
        document_.clear();
        is_piece_ = true;
      }
      document_.push_back(id);
      if (id == token_ && !token_is_first_) end();
    }
  }
  void end() {
    if (!document_.empty()) take_(document_, !is_piece_);
    document_.clear();
    is_piece_ = false;
  }

 private:
  int32_t token_;
  size_t longest_;
  Take take_;
  std::vector<int32_t> document_;
  bool begun_ = false, token_is_first_ = false, is_piece_ = false;
};

// What a file was taken for, as a user would say it.
std::string kind_of(const TokenFileLayout& layout) {
  const bool is_signed = layout.is_signed || layout.token_bytes == 8;
  return fmt::format("{}, {}{}",
                     layout.goes_on      ? "llm.c"
                     : layout.offset > 0 ? "npy"
                                         : "flat",
                     is_signed ? "int" : "uint", 8 * layout.token_bytes);
}

class Importer {
 public:
  Importer(const Tokenizer* tokenizer, const TokenSetInfo& info, const ImportOptions& options, SplitWriter& writer)
      : text_bytes_(tokenizer), info_(info), options_(options), writer_(writer) {}

  void run() {
    struct Kind {
      std::string first_file;
      int64_t files = 0, tokens = 0;
    };
    std::map<std::string, Kind> kinds;
    int64_t bytes = 0;
    for (const auto* paths : {&options_.inputs, &options_.val_inputs}) {
      for (const Path& path : *paths) {
        const TokenFile file = open(path);
        bytes += file.layout().tokens * file.layout().token_bytes;
        Kind& kind = kinds[kind_of(file.layout())];
        if (kind.files++ == 0) kind.first_file = file.name();
        kind.tokens += file.layout().tokens;
      }
    }
    for (const auto& [name, kind] : kinds) {
      const std::string files = kind.files == 1 ? kind.first_file : fmt::format("{} files", kind.files);
      log_info("{}: {}, {} tokens", files, name, kind.tokens);
    }
    Progress progress("importing", bytes, "bytes");
    read(options_.inputs, progress,
         [&](std::vector<int32_t>& document, bool whole) { whole ? add_to_train(document) : add_piece(document); });
    add_only();
    read(options_.val_inputs, progress, [&](std::vector<int32_t>& document, bool) { add(Part::val, document, 0); });
    progress.finish();
  }

 private:
  TokenFile open(const Path& path) const { return {path, options_.format, info_.vocab_size}; }

  void read(const std::vector<Path>& paths, Progress& progress, Splitter::Take take) {
    const int32_t token = options_.document_token >= 0 ? options_.document_token : info_.end_of_text;
    Splitter splitter(token, options_.longest_document, std::move(take));
    std::vector<int32_t> ids(kBlock);
    for (const Path& path : paths) {
      TokenFile file = open(path);
      file_ = file.name();
      while (const int64_t count = file.read(ids)) {
        check_interrupt();
        splitter.add({ids.data(), static_cast<size_t>(count)});
        progress.advance(count * file.layout().token_bytes);
      }
      if (!file.layout().goes_on) splitter.end();
    }
    splitter.end();
  }

  // Only a second document shows that the first one need not be cut.
  void add_to_train(std::vector<int32_t>& document) {
    if (options_.val_fraction > 0 && count_ == 0) {
      only_ = std::move(document);
    } else {
      if (!only_.empty()) add_by_hash(only_);
      only_.clear();
      add_by_hash(document);
    }
    ++count_;
  }

  void add_by_hash(const std::vector<int32_t>& document) {
    const uint64_t hash =
        split_hash({reinterpret_cast<const char*>(document.data()), document.size() * sizeof(int32_t)});
    add(part_of(hash, options_.val_fraction), document, hash);
  }

  void add_only() {
    if (only_.empty()) return;
    LOAM_CHECK(only_.size() > 1, "import: the only document, of one token, cannot be cut into training and validation");
    add_in_two(only_);
  }

  // The pieces of a long document are few: a hash of each would miss the fraction by far.
  void add_piece(std::span<const int32_t> piece) {
    ++count_;
    options_.val_fraction > 0 && piece.size() > 1 ? add_in_two(piece) : add(Part::train, piece, 0);
  }

  void add_in_two(std::span<const int32_t> all) {
    const auto size = static_cast<double>(all.size());
    const auto cut = static_cast<size_t>(std::clamp(std::round(size * (1 - options_.val_fraction)), 1.0, size - 1));
    add(Part::train, all.first(cut), 0);
    add(Part::val, all.subspan(cut), 0);
  }

  void add(Part part, std::span<const int32_t> document, uint64_t hash) {
    writer_.add(part, document, text_bytes_.of(document, file_), hash);
  }

  TextBytes text_bytes_;
  TokenSetInfo info_;
  const ImportOptions& options_;
  SplitWriter& writer_;
  std::string file_;           // that is read
  std::vector<int32_t> only_;  // the first document, until there is another
  int64_t count_ = 0;
};

}  // namespace

std::vector<Path> token_files_of(const std::string& input) {
  std::vector<Path> files = expand_inputs({input});
  if (!std::filesystem::is_directory(input)) return files;
  std::erase_if(files, [](const Path& file) { return file.extension() != ".bin" && file.extension() != ".npy"; });
  if (files.empty()) fail(ErrorCode::kNotFound, "{}: holds no .bin and no .npy", input);
  return files;
}

SplitWriter::Result import_tokens(const Tokenizer* tokenizer, const TokenSetInfo& vocabulary,
                                  const ImportOptions& options, const Path& out) {
  LOAM_CHECK(!options.inputs.empty(), "import: there are no inputs");
  LOAM_CHECK(options.val_fraction >= 0 && options.val_fraction < 1, "import: a validation fraction of {}",
             options.val_fraction);
  LOAM_CHECK(options.val_fraction == 0 || options.val_inputs.empty(),
             "import: validation data and a fraction for validation are both given");
  LOAM_CHECK(options.longest_document > 0, "import: documents of at most {} tokens", options.longest_document);
  std::optional<WrittenTokenizer> written;
  if (tokenizer) written.emplace(*tokenizer);
  const TokenSetInfo info = written ? info_of(written->tokenizer) : vocabulary;
  LOAM_CHECK(options.document_token < info.vocab_size, "import: the document token {} is outside the vocabulary of {}",
             options.document_token, info.vocab_size);
  AtomicDirectory directory(out, options.force, kDataDirectoryContents);
  SplitWriter::Result result;
  {
    SplitWriter writer(directory.path(), info, options.val_fraction > 0 || !options.val_inputs.empty());
    Importer(written ? &written->tokenizer : nullptr, info, options, writer).run();
    result = writer.finish();
  }
  if (written) write_file_atomic(directory.path() / "tokenizer.json", written->text);
  directory.commit();
  return result;
}

}  // namespace loam
