#include "apps/text_options.h"

#include "loam/base/interrupt.h"

namespace loam {

SpecialPolicy TextOptions::policy(const Tokenizer& of) const {
  if (allow_special.empty() || allow_special == std::vector<std::string>{"none"}) return SpecialPolicy::none();
  if (allow_special == std::vector<std::string>{"all"}) return SpecialPolicy::all();
  for (const std::string& name : allow_special) {
    if (of.special_id(name) < 0)
      throw UsageError("--allow-special " + name + ": the tokenizer has no such special token");
  }
  return SpecialPolicy::only(allow_special);
}

void add_text(Command& command, TextOptions& options) {
  command.add_option("--tokenizer", options.tokenizer, "TOKENIZER").required();
  add_files(command, options.inputs, "files; of JSONL the texts of the documents");
  command
      .add_option("--allow-special", options.allow_special,
                  "special token that text may produce, or none, or all; may be repeated")
      .one_word_each();
  add_text_key(command, options.reader);
  command.add_flag("--raw", options.raw, "take JSONL and byte order marks as the bytes that they are");
}

void for_each_document(const DocumentReaderOptions& options, const std::vector<Path>& files, OutputProgress& progress,
                       const TakeDocument& take) {
  DocumentReader reader(files, options);
  int64_t seen = 0;
  for (Document document; reader.next(document);) {
    check_interrupt();
    take(document);
    progress.advance(reader.bytes_read() - seen);
    seen = reader.bytes_read();
  }
  warn_of_bad_lines(reader);
}

void for_each_text(const TextOptions& options, const std::vector<Path>& files, OutputProgress& progress,
                   const TakeDocument& take, const std::function<void(ByteSource&)>& take_stream) {
  for (const Path& file : files) {
    auto source = open_counted(file, progress);
    if (options.raw || !is_jsonl(file, *source)) {
      if (!options.raw) source->begin_text();
      take_stream(*source);
      continue;
    }
    DocumentReader reader(std::move(source), true, options.reader);
    for (Document document; reader.next(document);) {
      check_interrupt();
      take(document);
    }
    warn_of_bad_lines(reader);
  }
}

}  // namespace loam
