#include "loam/data/tokenize.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "loam/base/error.h"
#include "loam/base/interrupt.h"
#include "loam/base/log.h"
#include "loam/base/parallel_for.h"
#include "loam/base/progress.h"
#include "loam/data/split_writer.h"

namespace loam {
namespace {

constexpr int64_t kBatchBytes = 1 << 20;  // of text, a thread
constexpr size_t kPartBytes = 128 << 10;  // a longer document is encoded in parts

// A document on its way through the pipeline.
struct Item {
  std::string text;
  std::vector<std::string_view> pieces;   // of text, whose ids one after the other are those of the whole
  std::vector<std::vector<int32_t>> ids;  // of the pieces
  int64_t bytes = 0;                      // of the text, which is gone once it is encoded
  Part part = Part::train;
  uint64_t hash = 0;
};

// The place in `text` for a cut that leaves about `share` behind it: after the nearest line end, or else in front of
// the nearest character. Error{kInvalidArgument} if there is none.
size_t cut_position(std::string_view text, double share) {
  const double wanted = static_cast<double>(text.size()) * (1 - share);
  const auto nearest = [&](auto is_cut) {
    size_t best = 0;
    for (size_t i = 1; i < text.size(); ++i) {
      const auto distance = [&](size_t at) { return std::abs(static_cast<double>(at) - wanted); };
      if (is_cut(i) && (best == 0 || distance(i) < distance(best))) best = i;
    }
    return best;
  };
  size_t cut = nearest([&](size_t i) { return text[i - 1] == '\n'; });
  if (cut == 0) cut = nearest([&](size_t i) { return (text[i] & 0xC0) != 0x80; });
  LOAM_CHECK(cut != 0, "tokenize: the only document, of {} bytes, cannot be cut into training and validation",
             text.size());
  return cut;
}

// Where the output lies in a directory of inputs, its files are not meant.
std::vector<Path> without_files_below(std::vector<Path> inputs, const Path& directory) {
  std::erase_if(inputs, [&](const Path& input) { return lies_below(input, directory); });
  LOAM_CHECK(!inputs.empty(), "tokenize: all inputs lie in the output directory {}", directory.string());
  return inputs;
}

// Reads documents with text, up to the limit, and assigns each to its part.
class ItemReader {
 public:
  ItemReader(const TokenizeOptions& options, const Path& out)
      : reader_(without_files_below(options.inputs, out), options.reader), options_(options) {}

  bool next(Item& item) {
    if (options_.val_fraction > 0 && count_ == 0) return first(item);
    if (waiting_) {
      item = std::move(*waiting_);
      waiting_.reset();
      return true;
    }
    return read(item);
  }
  const DocumentReader& documents() const { return reader_; }
  // Bytes of input read since the last call.
  int64_t take_bytes_read() { return reader_.bytes_read() - std::exchange(bytes_taken_, reader_.bytes_read()); }

 private:
  bool read(Item& item) {
    if (options_.limit > 0 && count_ == options_.limit) return false;
    do {
      check_interrupt();
      if (!reader_.next(document_)) return false;
    } while (document_.text.empty());
    ++count_;
    item.text = std::move(document_.text);
    item.hash = split_hash(item.text);
    item.part = part_of(item.hash, options_.val_fraction);
    return true;
  }

  // Only a second document shows that the first one need not be cut.
  bool first(Item& item) {
    if (!read(item)) return false;
    waiting_.emplace();
    if (read(*waiting_)) return true;
    const size_t cut = cut_position(item.text, options_.val_fraction);
    waiting_->text = item.text.substr(cut);
    item.text.resize(cut);
    item.part = Part::train;
    waiting_->part = Part::val;
    return true;
  }

  DocumentReader reader_;
  const TokenizeOptions& options_;
  Document document_;
  std::optional<Item> waiting_;
  int64_t count_ = 0, bytes_taken_ = 0;
};

// Cuts a long text at places where the pieces have the same ids alone as together, if the tokenizer has such places.
void cut_pieces(Item& item, const Tokenizer& tokenizer) {
  const std::string_view text = item.text;
  size_t begin = 0;
  for (size_t end = kPartBytes; end < text.size(); ++end) {
    if (!tokenizer.is_independent_cut(text, end)) continue;
    item.pieces.push_back(text.substr(begin, end - begin));
    begin = end;
    end += kPartBytes;
  }
  item.pieces.push_back(text.substr(begin));
  item.ids.resize(item.pieces.size());
  item.bytes = static_cast<int64_t>(text.size());
}

struct Work {
  size_t item, piece;
  int64_t input_bytes;  // its share of what was read for the batch
};

struct Batch {
  std::vector<Item> items;
  std::vector<Work> work;

  void read(ItemReader& reader, int64_t bytes, const Tokenizer& tokenizer) {
    items.clear();
    work.clear();
    Item item;
    while (bytes > 0 && reader.next(item)) {
      bytes -= static_cast<int64_t>(item.text.size() + sizeof(Item));
      items.push_back(std::exchange(item, Item()));
    }
    if (items.empty()) return;
    for (Item& each : items) cut_pieces(each, tokenizer);  // only now: the texts no longer move
    share_out(reader.take_bytes_read());
  }

  // Makes the list of work.
  void share_out(int64_t input_bytes) {
    int64_t text_bytes = 0;
    for (const Item& item : items) text_bytes += item.bytes;
    for (size_t i = 0; i < items.size(); ++i) {
      for (size_t p = 0; p < items[i].pieces.size(); ++p) {
        const auto bytes = static_cast<int64_t>(items[i].pieces[p].size());
        const double part = static_cast<double>(bytes) / static_cast<double>(text_bytes);
        work.push_back(
            {i, p, bytes == text_bytes ? input_bytes : static_cast<int64_t>(part * static_cast<double>(input_bytes))});
        text_bytes -= bytes;
        input_bytes -= work.back().input_bytes;
      }
    }
  }

  void drop_texts() {
    for (Item& item : items) std::string().swap(item.text);
  }
};

// Puts the tokens around each document.
class ItemWriter {
 public:
  ItemWriter(SplitWriter& writer, const Tokenizer& tokenizer)
      : writer_(writer), begin_(tokenizer.bos_id()), end_(tokenizer.end_of_text_id()) {}

  void add(const Item& item) {
    ids_.clear();
    size_t size = 2;
    for (const auto& ids : item.ids) size += ids.size();
    ids_.reserve(size);
    if (begin_ >= 0) ids_.push_back(begin_);
    for (const auto& ids : item.ids) ids_.insert(ids_.end(), ids.begin(), ids.end());
    if (begin_ != end_) ids_.push_back(end_);
    writer_.add(item.part, ids_, item.bytes, item.hash);
  }

 private:
  SplitWriter& writer_;
  int32_t begin_, end_;  // the token in front of each document, -1 for none, and that behind it
  std::vector<int32_t> ids_;
};

// One batch is encoded while the one before it is written and the next one read; documents leave in the order they
// came.
void run_pipeline(const Tokenizer& tokenizer, const TokenizeOptions& options, ItemReader& reader, ItemWriter& writer) {
  Progress progress("tokenizing", reader.documents().input_bytes(), "bytes");
  Batch done, current, next;
  const int64_t batch_bytes = kBatchBytes * options.threads;
  current.read(reader, batch_bytes, tokenizer);
  while (!current.items.empty() || !done.items.empty()) {
    parallel_tasks(options.threads, static_cast<int64_t>(current.work.size()) + 1, [&](int64_t index, int) {
      check_interrupt();
      if (index == 0) {
        for (const Item& item : done.items) writer.add(item);
        if (!current.items.empty()) next.read(reader, batch_bytes, tokenizer);
        return;
      }
      const auto [item, piece, input_bytes] = current.work[static_cast<size_t>(index - 1)];
      Item& target = current.items[item];
      tokenizer.encode(target.pieces[piece], SpecialPolicy::none(), target.ids[piece]);
      progress.advance(input_bytes);
    });
    current.drop_texts();
    std::swap(done, current);
    std::swap(current, next);
    next.items.clear();
    next.work.clear();
  }
  progress.advance(reader.take_bytes_read());
  progress.finish();
}

}  // namespace

TokenizeResult tokenize_documents(const Tokenizer& given, const TokenizeOptions& options, const Path& out) {
  LOAM_CHECK(options.val_fraction >= 0 && options.val_fraction < 1, "tokenize: a validation fraction of {}",
             options.val_fraction);
  LOAM_CHECK(options.threads > 0, "tokenize: {} threads", options.threads);
  LOAM_CHECK(given.end_of_text_id() >= 0, "tokenize: the tokenizer has no end-of-text token");
  const WrittenTokenizer written(given);

  ItemReader reader(options, out);
  AtomicDirectory directory(out, options.force, kDataDirectoryContents);
  TokenizeResult result;
  {
    SplitWriter writer(directory.path(), info_of(written.tokenizer), options.val_fraction > 0);
    ItemWriter items(writer, written.tokenizer);
    run_pipeline(written.tokenizer, options, reader, items);
    const SplitWriter::Result sets = writer.finish();
    result = {sets.train, sets.val, reader.documents().bad_lines()};
  }
  write_file_atomic(directory.path() / "tokenizer.json", written.text);
  directory.commit();
  return result;
}

}  // namespace loam
