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
constexpr size_t kMaxPeek = 1 << 20;    // bytes of white space before standard input is taken for plain text

bool has_suffix(std::string_view name, std::initializer_list<std::string_view> suffixes) {
  return std::any_of(suffixes.begin(), suffixes.end(), [&](std::string_view s) { return name.ends_with(s); });
}

bool is_compressed_name(const Path& path) { return has_suffix(path.native(), {".gz", ".zst"}); }

// An input with its byte order mark looked at and its bytes counted.
class CountedSource : public ByteSource {
 public:
  CountedSource(std::unique_ptr<ByteSource> source, int64_t& count) : source_(std::move(source)), count_(count) {
    while (front_.size() < 4 && extend()) {
    }
    using namespace std::string_view_literals;
    const std::string_view front = front_;
    if (front.starts_with("\xFF\xFE"sv) || front.starts_with("\xFE\xFF"sv) || front.starts_with("\0\0\xFE\xFF"sv)) {
      fail(ErrorCode::kBadFormat, "{}: begins with a UTF-16 or UTF-32 byte order mark; convert the file to UTF-8",
           name());
    }
    if (front.starts_with("\xEF\xBB\xBF"sv)) begin_ = 3;
  }

  // The first byte that is not white space, which stays in the stream; 0 if there is none at hand.
  char first_visible() {
    size_t at = begin_;
    do {
      at = front_.find_first_not_of(" \t\r\n", at);
      if (at != std::string::npos) return front_[at];
      at = front_.size();
    } while (front_.size() < kMaxPeek && extend());
    return 0;
  }

  int64_t read(std::span<char> buffer) override {
    if (begin_ == front_.size()) {
      const int64_t got = source_->read(buffer);
      count_ += got;
      return got;
    }
    const size_t got = std::min(buffer.size(), front_.size() - begin_);
    std::copy_n(front_.data() + begin_, got, buffer.data());
    begin_ += got;
    return static_cast<int64_t>(got);
  }
  const std::string& name() const override { return source_->name(); }

 private:
  bool extend() {
    char block[4096];
    const int64_t got = source_->read(block);
    front_.append(block, static_cast<size_t>(got));
    count_ += got;
    return got > 0;
  }

  std::unique_ptr<ByteSource> source_;
  int64_t& count_;
  std::string front_;  // read ahead; given out from begin_ on
  size_t begin_ = 0;
};

}  // namespace

bool is_jsonl_name(const Path& path) {
  const Path plain = is_compressed_name(path) ? Path(path).replace_extension() : path;
  return has_suffix(plain.native(), {".jsonl", ".ndjson", ".json"});
}

struct DocumentReader::State {
  std::vector<Path> inputs;
  DocumentReaderOptions options;
  size_t next_input = 0;
  int64_t bytes_read = 0, input_bytes = 0;

  std::unique_ptr<CountedSource> whole;  // one of these two is open, or none
  std::optional<LineReader> lines;
  bool jsonl = false;

  int64_t lines_seen = 0, bad = 0;      // JSONL lines of all inputs
  int64_t file_good = 0, file_bad = 0;  // of the open one
  std::string line;
  JsonLineParser parser;

  void open_next();
  bool next_whole(Document& document);
  bool next_separated(Document& document);
  bool next_json(Document& document);
  void count_bad(const std::string& problem);
};

void DocumentReader::State::open_next() {
  const Path& path = inputs[next_input++];
  auto source = std::make_unique<CountedSource>(open_input(path), bytes_read);
  jsonl = path == "-" ? source->first_visible() == '{' : is_jsonl_name(path);
  file_good = file_bad = 0;
  if (jsonl || !options.separator.empty()) {
    lines.emplace(std::move(source));
  } else {
    whole = std::move(source);
  }
}

bool DocumentReader::State::next_whole(Document& document) {
  document.id = whole->name() + ":1";
  document.metadata = Json::object();
  document.text = read_all(*whole);
  whole.reset();
  return !document.text.empty();
}

bool DocumentReader::State::next_separated(Document& document) {
  bool begun = false;
  document.text.clear();
  document.metadata = Json::object();
  while (lines->next(line)) {
    std::string_view shown = line;
    if (shown.ends_with('\r')) shown.remove_suffix(1);
    if (shown == options.separator) {
      if (!document.text.empty()) return true;
      begun = false;
      continue;
    }
    if (begun) {
      document.text += '\n';
    } else {
      document.id = fmt::format("{}:{}", lines->name(), lines->line_number());
    }
    document.text += line;
    begun = true;
  }
  lines.reset();
  return !document.text.empty();
}

bool DocumentReader::State::next_json(Document& document) {
  while (lines->next(line)) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    ++lines_seen;
    document.id = fmt::format("{}:{}", lines->name(), lines->line_number());
    const std::string problem = parser.parse(line, options.text_key, document);
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

DocumentReader::DocumentReader(std::vector<Path> inputs, DocumentReaderOptions options)
    : state_(std::make_unique<State>()) {
  bool known = true;
  for (const Path& path : inputs) {
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    known &= !error && path != "-" && !is_compressed_name(path);
    if (known) state_->input_bytes += static_cast<int64_t>(size);
  }
  if (!known) state_->input_bytes = 0;
  state_->inputs = std::move(inputs);
  state_->options = std::move(options);
}

DocumentReader::~DocumentReader() = default;

bool DocumentReader::next(Document& document) {
  State& s = *state_;
  while (true) {
    if (s.whole) {
      if (s.next_whole(document)) return true;
    } else if (s.lines) {
      if (s.jsonl ? s.next_json(document) : s.next_separated(document)) return true;
    } else if (s.next_input < s.inputs.size()) {
      s.open_next();
    } else {
      return false;
    }
  }
}

int64_t DocumentReader::bad_lines() const { return state_->bad; }
int64_t DocumentReader::bytes_read() const { return state_->bytes_read; }
int64_t DocumentReader::input_bytes() const { return state_->input_bytes; }

}  // namespace loam
