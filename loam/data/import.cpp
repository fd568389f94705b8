#include "loam/data/import.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "loam/base/error.h"
#include "loam/base/interrupt.h"
#include "loam/base/progress.h"
#include "loam/text/tokenizer_model.h"

namespace loam {
namespace {

constexpr size_t kBlock = 1 << 18;            // ids read at once
constexpr size_t kLongestDocument = 1 << 24;  // in tokens

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

// Cuts a stream of ids at the document tokens.
class Splitter {
 public:
  using Take = std::function<void(std::vector<int32_t>&)>;
  Splitter(int32_t token, Take take) : token_(token), take_(std::move(take)) {}

  void add(std::span<const int32_t> ids) {
    for (const int32_t id : ids) {
      if (!begun_) token_is_first_ = id == token_;
      begun_ = true;
      if (id == token_ && token_is_first_) end();
      document_.push_back(id);
      if ((id == token_ && !token_is_first_) || document_.size() == kLongestDocument) end();
    }
  }
  void end() {
    if (!document_.empty()) take_(document_);
    document_.clear();
  }

 private:
  int32_t token_;
  Take take_;
  std::vector<int32_t> document_;
  bool begun_ = false, token_is_first_ = false;
};

class Importer {
 public:
  Importer(const Tokenizer* tokenizer, const TokenSetInfo& info, const ImportOptions& options, SplitWriter& writer)
      : text_bytes_(tokenizer), info_(info), options_(options), writer_(writer) {}

  void run() {
    std::vector<TokenFile> train = open(options_.inputs), val = open(options_.val_inputs);
    int64_t bytes = 0;
    for (const auto* files : {&train, &val}) {
      for (const TokenFile& file : *files) bytes += file.layout().tokens * file.layout().token_bytes;
    }
    Progress progress("importing", bytes, "bytes");
    read(train, progress, [&](std::vector<int32_t>& document) { add_to_train(document); });
    add_only();
    read(val, progress, [&](std::vector<int32_t>& document) { add(Part::val, document, 0); });
    progress.finish();
  }

 private:
  std::vector<TokenFile> open(const std::vector<Path>& paths) const {
    std::vector<TokenFile> files;
    for (const Path& path : paths) files.emplace_back(path, options_.format, info_.vocab_size);
    return files;
  }

  void read(std::vector<TokenFile>& files, Progress& progress, Splitter::Take take) {
    const int32_t token = options_.document_token >= 0 ? options_.document_token : info_.end_of_text;
    Splitter splitter(token, std::move(take));
    std::vector<int32_t> ids(kBlock);
    for (TokenFile& file : files) {
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
    const auto size = static_cast<double>(only_.size());
    LOAM_CHECK(only_.size() > 1, "import: the only document, of one token, cannot be cut into training and validation");
    const auto cut = static_cast<size_t>(std::clamp(std::round(size * (1 - options_.val_fraction)), 1.0, size - 1));
    const std::span<const int32_t> all(only_);
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

SplitWriter::Result import_tokens(const Tokenizer* tokenizer, const TokenSetInfo& vocabulary,
                                  const ImportOptions& options, const Path& out) {
  LOAM_CHECK(!options.inputs.empty(), "import: there are no inputs");
  LOAM_CHECK(options.val_fraction >= 0 && options.val_fraction < 1, "import: a validation fraction of {}",
             options.val_fraction);
  LOAM_CHECK(options.val_fraction == 0 || options.val_inputs.empty(),
             "import: validation data and a fraction for validation are both given");
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
