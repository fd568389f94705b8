#include "apps/piece_counting.h"

#include <algorithm>
#include <future>
#include <utility>

#include "apps/options.h"
#include "loam/base/hash.h"
#include "loam/base/interrupt.h"

namespace loam {
namespace {

constexpr int64_t kCountedAtOnce = 16 << 20;  // bytes of text

struct Batch {
  std::vector<std::string> texts;
  int64_t text_bytes = 0;
  int64_t read_bytes = 0;  // of the files
  DocumentReader::Position end;
};

// The next documents, `bytes` of text at least; none at the end.
Batch read_batch(DocumentReader& reader, int64_t bytes) {
  Batch batch;
  Document document;
  while (batch.text_bytes < bytes && reader.next(document)) {
    check_interrupt();
    batch.text_bytes += static_cast<int64_t>(document.text.size());
    batch.texts.push_back(std::move(document.text));
  }
  batch.read_bytes = reader.file_bytes_read();
  batch.end = reader.position();
  return batch;
}

}  // namespace

Json CountingInput::source() const {
  std::string names;
  for (const Path& file : files) {
    std::error_code error;
    const auto size = std::filesystem::file_size(file, error);
    const auto changed = std::filesystem::last_write_time(file, error).time_since_epoch().count();
    names += fmt::format("{}\n{} {}\n", file.string(), size, changed);
  }
  Json described;
  described["inputs"] = fmt::format("{} files with names, sizes and times {}", files.size(), hash_hex(names));
  described["text_key"] = reader.text_key;
  described["doc_separator"] = reader.separator;
  return described;
}

Json Counted::to_json() const {
  Json json;
  json["input"] = position.input;
  json["documents_of_it"] = position.documents;
  json["lines_before"] = position.lines;
  json["bad_before"] = position.bad;
  json["documents"] = documents;
  json["bad_lines"] = bad_lines;
  json["complete"] = complete;
  return json;
}

Counted Counted::from_json(const Json& json) {
  Counted counted;
  counted.position = {json.at("input").as_int(), json.at("documents_of_it").as_int(), json.at("lines_before").as_int(),
                      json.at("bad_before").as_int()};
  counted.documents = json.at("documents").as_int();
  counted.bad_lines = json.at("bad_lines").as_int();
  counted.complete = json.at("complete").as_bool();
  const DocumentReader::Position& p = counted.position;
  for (const int64_t number : {p.input, p.documents, p.lines, p.bad, counted.documents, counted.bad_lines}) {
    if (number < 0) fail(ErrorCode::kBadFormat, "counted pieces: the state to go on from has the number {}", number);
  }
  return counted;
}

// While a batch is counted, the next one is read.
void count_documents(const CountingInput& input, BpeTrainer& trainer, int64_t checkpoint_every, bool keep,
                     Counted& counted) {
  DocumentReader reader(input.files, input.reader);
  reader.go_to(counted.position);
  int64_t shown = reader.file_bytes_read(), unsaved = 0;
  Progress progress("counting", std::max<int64_t>(reader.file_bytes() - shown, 0), "bytes");
  const int64_t at_once = std::min(kCountedAtOnce, checkpoint_every);
  const auto read_next = [&] { return std::async(std::launch::async, read_batch, std::ref(reader), at_once); };
  std::future<Batch> next = read_next();
  for (Batch batch = next.get(); !batch.texts.empty(); batch = next.get()) {
    next = read_next();
    trainer.add_documents({batch.texts.begin(), batch.texts.end()});
    counted.position = batch.end;
    counted.documents += static_cast<int64_t>(batch.texts.size());
    unsaved += batch.text_bytes;
    if (unsaved >= checkpoint_every || trainer.has_spilled()) {
      trainer.checkpoint(counted.to_json());
      unsaved = 0;
    }
    progress.note(format_bytes(static_cast<double>(trainer.memory_used())) + " of counts");
    progress.advance(batch.read_bytes - std::exchange(shown, batch.read_bytes));
  }
  progress.finish();
  counted.bad_lines = reader.bad_lines();
  counted.complete = true;
  warn_of_bad_lines(reader);
  // Merging begins anew from there if it is cut off.
  if (trainer.has_checkpoint() || keep) trainer.checkpoint(counted.to_json());
}

}  // namespace loam
