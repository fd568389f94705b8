// Patterns that are a class of characters, repeated: \p{N}{1,3}, \s?\p{L}+, [一-龥]+|[\r\n]. Read here, and scanned in
// linear time.
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "loam/text/char_reader.h"
#include "loam/text/matcher.h"

namespace loam {
namespace {

// A byte that is not valid UTF-8 is seen as this character, as regex_matcher() does.
constexpr uint32_t kInvalidAs = 0x7F;

class CharSet {
 public:
  bool contains(uint32_t c) const { return c < 128 ? ascii_[c] : test(c); }

  // What the set is made of; call finish() after the last of it.
  void add_range(uint32_t first, uint32_t last) { ranges_.emplace_back(first, last); }
  void add_categories(CategorySet set) { categories_ |= set; }
  void add_spaces(bool spaces) { (spaces ? spaces_ : non_spaces_) = true; }
  void negate() { negated_ = !negated_; }
  void finish() {
    for (uint32_t c = 0; c < 128; ++c) ascii_[c] = test(c);
  }

  // True if `wanted` holds for an ASCII character of the set.
  template <class F>
  bool any_ascii(F wanted) const {
    for (uint32_t c = 0; c < 128; ++c) {
      if (ascii_[c] && wanted(kKindsOfByte[c])) return true;
    }
    return false;
  }
  bool has_all(char first, char last) const {
    for (char c = first; c <= last; ++c) {
      if (!ascii_[static_cast<unsigned char>(c)]) return false;
    }
    return true;
  }
  bool has_only_ascii() const {
    for (const auto& [first, last] : ranges_) {
      if (last > 127) return false;
    }
    return !negated_ && !spaces_ && !non_spaces_ && categories_ == 0;
  }
  bool operator==(const CharSet&) const = default;

 private:
  bool test(uint32_t c) const {
    const CharProperties p = CharProperties::of(c);
    bool in = (categories_ >> static_cast<int>(p.category()) & 1) || (p.white_space() ? spaces_ : non_spaces_);
    for (size_t i = 0; !in && i < ranges_.size(); ++i) in = c >= ranges_[i].first && c <= ranges_[i].second;
    return in != negated_;
  }

  CategorySet categories_ = 0;
  bool spaces_ = false, non_spaces_ = false, negated_ = false;
  std::vector<std::pair<uint32_t, uint32_t>> ranges_;
  std::array<bool, 128> ascii_{};
};

struct Run {
  std::optional<CharSet> before;  // one of these may stand in front
  CharSet set;
  size_t least = 1, most = 1;
  bool at_line_end = false;
};

// Reads such a pattern; `ok` turns false at anything else.
class RunParser {
 public:
  explicit RunParser(std::string_view regex) : rest_(regex) {}

  std::vector<Run> parse() {
    std::vector<Run> runs{parse_run()};
    while (ok_ && take("|")) runs.push_back(parse_run());
    const bool anchored = runs[0].at_line_end;
    if (!rest_.empty() || (anchored && (runs.size() > 1 || runs[0].before || runs[0].most != kEndless))) ok_ = false;
    for (size_t i = 1; i < runs.size(); ++i) ok_ = ok_ && !runs[i].at_line_end;
    return ok_ ? runs : std::vector<Run>();
  }

  static constexpr size_t kEndless = SIZE_MAX;

 private:
  bool take(std::string_view wanted) {
    if (!rest_.starts_with(wanted)) return false;
    rest_.remove_prefix(wanted.size());
    return true;
  }

  Run parse_run() {
    Run run;
    run.set = parse_set();
    if (take("?")) {
      run.before = run.set;
      run.set = parse_set();
    }
    while (ok_ && !rest_.empty() && rest_[0] != '|' && rest_[0] != '+' && rest_[0] != '{' && rest_[0] != '$') {
      if (!(parse_set() == run.set)) ok_ = false;
      ++run.least;
    }
    if (run.least > 1) {
      run.most = run.least;
    } else if (take("+")) {
      run.most = kEndless;
    } else if (take("{")) {
      run.least = parse_number();
      run.most = take(",") ? parse_number() : run.least;
      if (!take("}") || run.least == 0 || run.most < run.least) ok_ = false;
    }
    run.at_line_end = take("$");
    return run;
  }

  size_t parse_number() {
    size_t value = 0, digits = 0;
    for (; !rest_.empty() && rest_[0] >= '0' && rest_[0] <= '9' && digits < 6; ++digits) {
      value = 10 * value + static_cast<size_t>(rest_[0] - '0');
      rest_.remove_prefix(1);
    }
    if (digits == 0) ok_ = false;
    return value;
  }

  CharSet parse_set() {
    CharSet set;
    if (take("[")) {
      const bool negated = take("^");
      if (take("]")) ok_ = false;
      while (ok_ && !take("]")) parse_member(set, true);
      if (negated) set.negate();
    } else {
      parse_member(set, false);
    }
    set.finish();
    return set;
  }

  // A shorthand, a property, a character or a range.
  void parse_member(CharSet& set, bool in_class) {
    if (take("\\s")) return set.add_spaces(true);
    if (take("\\S")) return set.add_spaces(false);
    if (take("\\d")) return set.add_categories(*category_set("Nd"));
    if (take("\\p{")) {
      const size_t end = rest_.find('}');
      const std::optional<CategorySet> categories = category_set(rest_.substr(0, end));
      if (end == std::string_view::npos || !categories) return fail();
      rest_.remove_prefix(end + 1);
      return set.add_categories(*categories);
    }
    const uint32_t first = parse_char(in_class);
    uint32_t last = first;
    if (in_class && rest_.size() > 1 && rest_[0] == '-' && rest_[1] != ']') {
      rest_.remove_prefix(1);
      last = parse_char(true);
    }
    if (last < first) return fail();
    set.add_range(first, last);
  }

  uint32_t parse_char(bool in_class) {
    constexpr std::string_view kOutside = ".^$*+?()[]{}|", kInside = "[]&";
    if (rest_.empty()) {
      fail();
      return 0;
    }
    if (take("\\")) {
      for (const auto& [name, value] : {std::pair{'n', '\n'}, std::pair{'r', '\r'}, std::pair{'t', '\t'}}) {
        if (take(std::string_view(&name, 1))) return static_cast<uint32_t>(value);
      }
      const bool letter = rest_.empty() || (kKindsOfByte[static_cast<unsigned char>(rest_[0])] & (kLetter | kNumber));
      if (letter || static_cast<unsigned char>(rest_[0]) >= 128) fail();
    } else if ((in_class ? kInside : kOutside).find(rest_[0]) != std::string_view::npos) {
      fail();
    }
    if (!ok_) return 0;
    const Utf8Char c = decode_utf8(rest_, 0);
    if (!c.valid) {
      fail();
      return 0;
    }
    rest_.remove_prefix(static_cast<size_t>(c.length));
    return c.code_point;
  }

  void fail() {
    ok_ = false;
    rest_ = {};
  }

  std::string_view rest_;
  bool ok_ = true;
};

class RunScanner final : public Matcher {
 public:
  explicit RunScanner(std::vector<Run> runs) : runs_(std::move(runs)) {
    for (uint32_t c = 0; c < 256; ++c) {
      begins_[c] = c >= 128;
      for (const Run& run : runs_) {
        begins_[c] = begins_[c] || run.set.contains(c) || (run.before && run.before->contains(c));
      }
    }
  }

  bool is_local() const override { return true; }
  bool is_ascii() const override {
    for (const Run& run : runs_) {
      if (!run.set.has_only_ascii() || (run.before && !run.before->has_only_ascii())) return false;
    }
    return true;
  }
  bool takes_letters() const override {
    return any_run([](const Run& r) { return r.set.has_all('a', 'z') && r.set.has_all('A', 'Z'); });
  }
  bool takes_digits() const override {
    return any_run([](const Run& r) { return r.set.has_all('0', '9'); });
  }
  // A match must not hold white space after something else.
  CutRule cut_rule() const override {
    const auto space = [](CharKinds kinds) { return (kinds & kSpace) != 0; };
    const auto other = [](CharKinds kinds) { return !(kinds & kSpace); };
    for (const Run& run : runs_) {
      const bool starts_other = run.set.any_ascii(other) || (run.before && run.before->any_ascii(other));
      if (starts_other && run.set.any_ascii(space)) return CutRule::kNever;
    }
    return CutRule::kAnySpace;
  }

  bool find(std::string_view text, size_t from, ScanMemo& memo, Piece& match) const override {
    for (size_t begin = std::max(from, memo.end); begin < text.size();) {
      if (!begins_[static_cast<unsigned char>(text[begin])]) {
        ++begin;
        continue;
      }
      for (const Run& run : runs_) {
        const size_t end = run.at_line_end ? line_end_match(run, text, begin, memo) : match_end(run, text, begin);
        if (end == begin) continue;
        match = {begin, end - begin};
        return true;
      }
      begin = std::max(begin + read(text, begin).length, memo.end);
    }
    return false;
  }

 private:
  static CodePoint read(std::string_view text, size_t position) {
    const uint32_t byte = static_cast<unsigned char>(text[position]);
    if (byte < 128) return {byte, 1};
    const CodePoint c = read_code_point(text, position);
    return c.value == kNoCodePoint ? CodePoint{kInvalidAs, 1} : c;
  }

  template <class F>
  bool any_run(F holds) const {
    for (const Run& run : runs_) {
      if (run.least == 1 && !run.at_line_end && holds(run)) return true;
    }
    return false;
  }

  // The end of the run at `position`; npos if it is too short.
  static size_t set_end(const Run& run, std::string_view text, size_t position) {
    size_t count = 0;
    while (position < text.size() && count < run.most) {
      const CodePoint c = read(text, position);
      if (!run.set.contains(c.value)) break;
      position += c.length;
      ++count;
    }
    return count < run.least ? std::string_view::npos : position;
  }

  // `begin` if the run does not match there.
  static size_t match_end(const Run& run, std::string_view text, size_t begin) {
    size_t end = std::string_view::npos;
    if (run.before) {
      const CodePoint c = read(text, begin);
      if (run.before->contains(c.value)) end = set_end(run, text, begin + c.length);
    }
    if (end == std::string_view::npos) end = set_end(run, text, begin);
    return end == std::string_view::npos ? begin : end;
  }

  // Where the run ends at no line end, it is cut before the last one inside it; if there is none, no match begins in
  // it.
  static size_t line_end_match(const Run& run, std::string_view text, size_t begin, ScanMemo& memo) {
    const size_t end = set_end(run, text, begin);
    if (end == std::string_view::npos) return begin;
    if (end == text.size() || text[end] == '\n') return end;
    const size_t line = text.substr(0, end).rfind('\n');
    if (line != std::string_view::npos && line > begin) return line;
    memo.end = end;
    return begin;
  }

  std::vector<Run> runs_;
  std::array<bool, 256> begins_{};  // by first byte
};

}  // namespace

std::shared_ptr<const Matcher> run_scanner(std::string_view regex) {
  std::vector<Run> runs = RunParser(regex).parse();
  if (runs.empty()) return nullptr;
  return std::make_shared<const RunScanner>(std::move(runs));
}

}  // namespace loam
