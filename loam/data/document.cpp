#include "loam/data/document.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <system_error>

#include "loam/base/error.h"
#include "loam/base/log.h"
#include "loam/data/json_line.h"

namespace loam {
namespace {

constexpr int64_t kFreeLines = 100;     // before max_bad_share is judged
constexpr int64_t kReportedLines = 20;  // bad lines with a warning of their own
constexpr size_t kBlock = 1 << 16;      // bytes of plain text read at once

bool has_suffix(std::string_view name, std::initializer_list<std::string_view> suffixes) {
  return std::any_of(suffixes.begin(), suffixes.end(), [&](std::string_view s) { return name.ends_with(s); });
}

bool is_compressed_name(const Path& path) { return has_suffix(path.native(), {".gz", ".zst"}); }

}  // namespace

bool is_jsonl_name(const Path& path) {
  const Path plain = is_compressed_name(path) ? Path(path).replace_extension() : path;
  return has_suffix(plain.native(), {".jsonl", ".ndjson", ".json"});
}

bool is_jsonl(const Path& path, TextSource& opened) { return path == "-" ? opened.is_json() : is_jsonl_name(path); }

struct DocumentReader::State {
  std::vector<Path> inputs;
  DocumentReaderOptions options;
  size_t next_input = 0;
  int64_t bytes_read = 0, input_bytes = 0;
  std::vector<int64_t> begin_bytes = {0};  // of each input: the files before it; and of all of them
  bool all_files = true;
  const ByteSource* file = nullptr;  // that `whole` or `lines` reads
  Position position;

  std::unique_ptr<TextSource> whole;  // one of these two is open, or none
  std::optional<LineReader> lines;
  bool jsonl = false;
  bool ends_in_cr = false;  // the separator line that was read last

  int64_t lines_seen = 0, bad = 0;      // JSONL lines of all inputs
  int64_t file_good = 0, file_bad = 0;  // of the open one
  std::string line;
  JsonLineParser parser;

  void open(std::unique_ptr<TextSource> source, bool json);
  void open_next();
  bool next_whole(Document& document);
  bool next_separated(Document& document);
  bool next_json(Document& document);
  std::string parse_pair(Document& document, const std::string& problem);
  void count_bad(const std::string& problem);
  [[noreturn]] void fail_too_long(const std::string& id) const;
};

void DocumentReader::State::open(std::unique_ptr<TextSource> source, bool json) {
  source->begin_text();
  position = {std::max<int64_t>(static_cast<int64_t>(next_input) - 1, 0), 0, lines_seen, bad};
  jsonl = json;
  file_good = file_bad = 0;
  ends_in_cr = false;
  if (jsonl || !options.separator.empty()) {
    lines.emplace(std::move(source), options.max_bytes);
  } else {
    whole = std::move(source);
  }
}

void DocumentReader::State::open_next() {
  const Path& path = inputs[next_input++];
  auto opened = open_input(path);
  file = opened.get();
  auto source = std::make_unique<TextSource>(std::move(opened), [this](int64_t count) { bytes_read += count; });
  const bool json = is_jsonl(path, *source);
  open(std::move(source), json);
}

bool DocumentReader::State::next_whole(Document& document) {
  document.id = whole->name() + ":1";
  document.metadata = Json::object();
  document.text.clear();
  std::vector<char> block(kBlock);
  while (const int64_t got = whole->read(block)) {
    document.text.append(block.data(), static_cast<size_t>(got));
    if (static_cast<int64_t>(document.text.size()) > options.max_bytes) fail_too_long(document.id);
  }
  whole.reset();
  return !document.text.empty();
}

bool DocumentReader::State::next_separated(Document& document) {
  bool begun = false;
  document.text.clear();
  document.metadata = Json::object();
  const auto end = [&] {  // where lines end in CR LF, the last one does too
    if (ends_in_cr && document.text.ends_with('\r')) document.text.pop_back();
    return !document.text.empty();
  };
  while (lines->next(line)) {
    std::string_view shown = line;
    if (shown.ends_with('\r')) shown.remove_suffix(1);
    if (shown == options.separator) {
      ends_in_cr = shown.size() < line.size();
      if (end()) return true;
      begun = false;
      continue;
    }
    if (begun) {
      document.text += '\n';
    } else {
      document.id = fmt::format("{}:{}", lines->name(), lines->line_number());
    }
    document.text += line;
    if (static_cast<int64_t>(document.text.size()) > options.max_bytes) fail_too_long(document.id);
    begun = true;
  }
  lines.reset();
  return end();
}

bool DocumentReader::State::next_json(Document& document) {
  while (lines->next(line)) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    ++lines_seen;
    document.id = fmt::format("{}:{}", lines->name(), lines->line_number());
    std::string problem = parser.parse(line, options.text_key, document);
    if (!problem.empty() && options.pairs) problem = parse_pair(document, problem);
    if (problem.empty()) {
      ++file_good;
      return true;
    }
    count_bad(problem);
  }
  if (file_bad > 0 && file_good == 0) {
    fail(ErrorCode::kBadFormat, "{}: none of its {} lines is a document", lines->name(), file_bad);
  }
  lines.reset();
  return false;
}

// A line without text as a pair; returns what is wrong with it, `problem` if it is not meant to be one.
std::string DocumentReader::State::parse_pair(Document& document, const std::string& problem) {
  const std::string without_completion = parser.parse(line, "completion", document);
  if (!without_completion.empty()) return parser.parse(line, "prompt", document).empty() ? without_completion : problem;
  const Json* prompt = document.metadata.find("prompt");
  if (!prompt || !prompt->is_string())
    return fmt::format("{} 'prompt' beside 'completion'", prompt ? "no string under" : "there is no key");
  document.prompt = prompt->as_string();
  return "";
}

void DocumentReader::State::count_bad(const std::string& problem) {
  ++bad;
  ++file_bad;
  const std::string message = fmt::format("{}:{}: bad line: {}", lines->name(), lines->line_number(), problem);
  if (lines_seen > kFreeLines && static_cast<double>(bad) > options.max_bad_share * static_cast<double>(lines_seen)) {
    fail(ErrorCode::kBadFormat, "{}; {} of {} lines are bad, more than the share of {} that is allowed", message, bad,
         lines_seen, options.max_bad_share);
  }
  if (bad <= kReportedLines) log_warn("{}", message);
  if (bad == kReportedLines) log_warn("further bad lines are only counted");
}

void DocumentReader::State::fail_too_long(const std::string& id) const {
  fail(ErrorCode::kBadFormat, "{}: a document of plain text has more than {} bytes; {}", id, options.max_bytes,
       options.separator.empty() ? "name the line that stands between documents (--doc-separator), or cut the file"
                                 : "the line between documents does not stand often enough");
}

DocumentReader::DocumentReader(std::vector<Path> inputs, DocumentReaderOptions options)
    : state_(std::make_unique<State>()) {
  bool known = true;
  for (const Path& path : inputs) {
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    const bool is_file = !error && path != "-";
    state_->all_files &= is_file;
    state_->begin_bytes.push_back(state_->begin_bytes.back() + (is_file ? static_cast<int64_t>(size) : 0));
    known &= is_file && !is_compressed_name(path);
    if (known) state_->input_bytes += static_cast<int64_t>(size);
  }
  if (!known) state_->input_bytes = 0;
  state_->inputs = std::move(inputs);
  state_->options = std::move(options);
}

DocumentReader::DocumentReader(std::unique_ptr<TextSource> opened, bool jsonl, DocumentReaderOptions options)
    : state_(std::make_unique<State>()) {
  state_->options = std::move(options);
  state_->open(std::move(opened), jsonl);
}

DocumentReader::~DocumentReader() = default;

DocumentReader::Position DocumentReader::position() const { return state_->position; }

void DocumentReader::go_to(const Position& position) {
  State& s = *state_;
  LOAM_CHECK(position.input >= 0 && position.input <= static_cast<int64_t>(s.inputs.size()),
             "a position in input {} of {}", position.input, s.inputs.size());
  s.next_input = static_cast<size_t>(position.input);
  s.lines_seen = position.lines;
  s.bad = position.bad;
  s.position = {position.input, 0, position.lines, position.bad};
  Document skipped;
  while (s.position.documents < position.documents && next(skipped)) {
  }
  LOAM_CHECK(s.position.input == position.input && s.position.documents == position.documents,
             "a position behind document {} of input {}, which is not there", position.documents, position.input);
}

bool DocumentReader::next(Document& document) {
  State& s = *state_;
  document.prompt.reset();
  while (true) {
    if (s.whole || s.lines) {
      const bool found = s.whole   ? s.next_whole(document)
                         : s.jsonl ? s.next_json(document)
                                   : s.next_separated(document);
      s.position.documents += found;
      if (found) return true;
    } else if (s.next_input < s.inputs.size()) {
      s.open_next();
    } else {
      return false;
    }
  }
}

int64_t DocumentReader::bad_lines() const { return state_->bad; }
int64_t DocumentReader::bytes_read() const { return state_->bytes_read; }
int64_t DocumentReader::file_bytes() const { return state_->all_files ? state_->begin_bytes.back() : 0; }

int64_t DocumentReader::file_bytes_read() const {
  const State& s = *state_;
  const bool reading = (s.whole || s.lines) && s.next_input > 0;
  return reading ? s.begin_bytes[s.next_input - 1] + s.file->file_position() : s.begin_bytes[s.next_input];
}

int64_t DocumentReader::input_bytes() const { return state_->input_bytes; }

}  // namespace loam
