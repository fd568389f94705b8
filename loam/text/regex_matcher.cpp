// Any regular expression, by PCRE2.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <utility>
#include <vector>

#include "loam/base/error.h"
#include "loam/text/char_reader.h"
#include "loam/text/matcher.h"

namespace loam {
namespace {

constexpr uint32_t kMostSteps = 10'000'000;
constexpr size_t kMostRegexBytes = 1 << 16;
constexpr uint32_t kMostHeapKilobytes = 1 << 16;
constexpr size_t kLeastStack = 1 << 15, kMostStack = 1 << 26;
// \w in a class; and alone or as \b, where Oniguruma asks its table of Latin-1 for the first 256 characters.
constexpr std::string_view kWordInClass = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";

// Rewrites what PCRE2 reads otherwise than Oniguruma does.
class Translator {
 public:
  explicit Translator(std::string_view regex) : regex_(regex) {}

  std::string translate() {
    std::string out;
    std::vector<size_t> groups;  // where those that are open begin
    size_t atom = 0;             // where the last thing that can be repeated begins
    while (at_ < regex_.size()) {
      if (const size_t length = counted_repeat()) {
        out += regex_.substr(at_, length);
        at_ += length;
        // X{1,3}+ repeats the repetition.
        if (regex_.substr(at_).starts_with('+')) {
          out.insert(atom, "(?:");
          out += ')';
        }
        continue;
      }
      const char c = regex_[at_];
      if (c == '(') groups.push_back(out.size());
      if (c == ')' && !groups.empty()) {
        atom = groups.back();
        groups.pop_back();
      } else if (std::string_view("?*+").find(c) == std::string_view::npos) {
        atom = out.size();
      }
      if (c == '\\') {
        out += escape(false);
      } else if (c == '[') {
        out += char_class();
      } else {
        const size_t length = static_cast<size_t>(decode_utf8(regex_, at_).length);
        out += regex_.substr(at_, length);
        at_ += length;
      }
    }
    return out;
  }

 private:
  // The length of {n}, {n,} or {n,m}; 0 if none is here.
  size_t counted_repeat() const {
    if (regex_[at_] != '{') return 0;
    const size_t end = regex_.find_first_not_of("0123456789,", at_ + 1);
    return end != std::string_view::npos && end > at_ + 1 && regex_[end] == '}' ? end + 1 - at_ : 0;
  }

  [[noreturn]] void refuse(std::string_view what) const {
    fail(ErrorCode::kInvalidArgument, "the regex \"{}\" is not supported: {} at offset {}", regex_, what, at_);
  }

  std::string escape(bool in_class) {
    if (at_ + 1 >= regex_.size()) return std::string(regex_.substr(at_++));
    const char c = regex_[at_ + 1];
    if ((c == 'p' || c == 'P') && regex_.substr(at_ + 2).starts_with("{")) return property();
    at_ += 2;
    switch (c) {
      case 's':
        return R"(\p{White_Space})";
      case 'S':
        return R"(\P{White_Space})";
      case 'h':
        return in_class ? "0-9A-Fa-f" : "[0-9A-Fa-f]";
      case 'w':
        return in_class ? std::string(kWordInClass) : fmt::format("[{}]", kWord);
      case 'W':
        if (in_class) refuse("\\W in a class");
        return fmt::format("[^{}]", kWord);
      case 'b':
        if (in_class) return R"(\b)";
        return fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", kWord);
      case 'B':
        return fmt::format("(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))", kWord);
      case 'u':
        return R"(\x{)" + std::string(hex_digits()) + "}";
      default:
        return std::string(regex_.substr(at_ - 2, 2));
    }
  }

  std::string_view hex_digits() {
    const std::string_view digits = regex_.substr(at_, 4);
    if (digits.size() < 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos) {
      refuse("\\u without four digits");
    }
    at_ += 4;
    return digits;
  }

  // The name of a script alone means the property Script.
  std::string property() {
    const size_t end = regex_.find('}', at_);
    if (end == std::string_view::npos) return std::string(regex_.substr(std::exchange(at_, regex_.size())));
    std::string_view name = regex_.substr(at_ + 3, end - at_ - 3);
    bool negated = regex_[at_ + 1] == 'P';
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    at_ = end + 1;
    const std::string head = negated ? R"(\P{)" : R"(\p{)";
    const std::string script = head + "sc:" + std::string(name) + "}";
    return name.size() > 2 && compiles(script) ? script : head + std::string(name) + "}";
  }

  static bool compiles(const std::string& regex) {
    int error = 0;
    size_t offset = 0;
    pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(regex.data()), regex.size(), PCRE2_UTF | PCRE2_UCP,
                                     &error, &offset, nullptr);
    pcre2_code_free(code);
    return code != nullptr;
  }

  // [...], with classes inside that add to it, or [...&&[^...]] without what it takes away.
  std::string char_class() {
    ++at_;
    std::string members, without;
    const bool negated = at_ < regex_.size() && regex_[at_] == '^';
    if (negated) ++at_;
    bool first = true;
    for (; at_ < regex_.size() && (regex_[at_] != ']' || first); first = false) {
      if (regex_.substr(at_).starts_with("&&")) {
        if (!regex_.substr(at_).starts_with("&&[^") || negated || !without.empty()) refuse("&& of classes");
        at_ += 4;
        without = inner_members();
      } else if (regex_[at_] == '\\') {
        members += escape(true);
      } else if (regex_.substr(at_).starts_with("[:")) {
        const size_t end = regex_.find(":]", at_);
        if (end == std::string_view::npos) refuse("[: without :]");
        members += regex_.substr(at_, end + 2 - at_);
        at_ = end + 2;
      } else if (regex_[at_] == '[') {
        ++at_;
        if (at_ < regex_.size() && regex_[at_] == '^') refuse("a negated class in a class");
        members += inner_members();
      } else {
        members += regex_[at_++];
      }
    }
    if (at_ == regex_.size()) return "[" + members;  // for PCRE2 to complain about
    ++at_;
    const std::string plain = fmt::format("[{}{}]", negated ? "^" : "", members);
    return without.empty() ? plain : fmt::format("(?:(?![{}]){})", without, plain);
  }

  std::string inner_members() {
    std::string members;
    while (at_ < regex_.size() && regex_[at_] != ']') {
      if (regex_[at_] == '[') refuse("a class in a class in a class");
      if (regex_[at_] == '\\') {
        members += escape(true);
      } else {
        members += regex_[at_++];
      }
    }
    if (at_ == regex_.size()) refuse("a class without end");
    ++at_;
    return members;
  }

  std::string_view regex_;
  size_t at_ = 0;
};

// What a thread needs to match.
class Workspace {
 public:
  Workspace()
      : data_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)),
        stack_(pcre2_jit_stack_create(kLeastStack, kMostStack, nullptr)) {
    if (!data_ || !context_) fail(ErrorCode::kOutOfMemory, "no memory for matching a regex");
    pcre2_set_match_limit(context_, kMostSteps);
    pcre2_set_heap_limit(context_, kMostHeapKilobytes);
    if (stack_) pcre2_jit_stack_assign(context_, nullptr, stack_);
  }
  ~Workspace() {
    pcre2_match_data_free(data_);
    pcre2_match_context_free(context_);
    pcre2_jit_stack_free(stack_);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  pcre2_match_data* data() { return data_; }
  pcre2_match_context* context() { return context_; }

 private:
  pcre2_match_data* data_;
  pcre2_match_context* context_;
  pcre2_jit_stack* stack_;
};

std::string message_of(int error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

class RegexMatcher final : public Matcher {
 public:
  explicit RegexMatcher(std::string_view regex) : regex_(regex) {
    const std::string translated = Translator(regex).translate();
    int error = 0;
    size_t offset = 0;
    constexpr uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
    if (context) pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), kOptions, &error, &offset,
                          context);
    pcre2_compile_context_free(context);
    if (!code_) {
      const std::string read_as = translated == regex ? "" : fmt::format(" of \"{}\", which it is read as", translated);
      fail(ErrorCode::kInvalidArgument, "the regex \"{}\" is wrong: {} at offset {}{}", regex, message_of(error),
           offset, read_as);
    }
    pcre2_jit_compile(code_, PCRE2_JIT_COMPLETE);  // where it fails, matching is slower
  }
  ~RegexMatcher() override { pcre2_code_free(code_); }
  RegexMatcher(const RegexMatcher&) = delete;
  RegexMatcher& operator=(const RegexMatcher&) = delete;

  bool needs_utf8() const override { return true; }

  bool find(std::string_view text, size_t from, ScanMemo&, Piece& match) const override {
    thread_local Workspace workspace;
    const int found = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                                  PCRE2_NO_UTF_CHECK, workspace.data(), workspace.context());
    if (found == PCRE2_ERROR_NOMATCH) return false;
    if (found < 0) {
      fail(ErrorCode::kInvalidArgument, "the regex \"{}\" fails at byte {} of a text of {}: {}", regex_, from,
           text.size(), message_of(found));
    }
    const size_t* ends = pcre2_get_ovector_pointer(workspace.data());
    // \K in a look-ahead may set the beginning after the end, or before `from`.
    if (ends[0] > ends[1] || ends[0] < from) {
      fail(ErrorCode::kInvalidArgument, "the regex \"{}\" gives a match that ends before it begins", regex_);
    }
    match = {ends[0], ends[1] - ends[0]};
    return true;
  }

 private:
  std::string regex_;
  pcre2_code* code_ = nullptr;
};

}  // namespace

std::shared_ptr<const Matcher> regex_matcher(std::string_view regex) {
  return std::make_shared<const RegexMatcher>(regex);
}

std::shared_ptr<const Matcher> make_matcher(std::string_view regex) {
  if (regex.size() > kMostRegexBytes) {
    fail(ErrorCode::kInvalidArgument, "a regex of {} bytes, more than {}", regex.size(), kMostRegexBytes);
  }
  for (const auto scanner : {word_scanner, special_scanner, run_scanner}) {
    if (std::shared_ptr<const Matcher> made = scanner(regex)) return made;
  }
  return regex_matcher(regex);
}

}  // namespace loam
