#include "loam/text/normalizer_steps.h"

#include <utf8proc.h>

#include <array>
#include <utility>

#include "loam/base/utf8.h"
#include "loam/text/matcher.h"
#include "loam/text/precompiled_charsmap.h"
#include "loam/text/trie.h"
#include "loam/text/unicode.h"
#include "loam/text/unicode_forms.h"

namespace loam {
namespace {

constexpr char kInvalidAs = '\x7F';  // of no class, for a regex
constexpr size_t kMostClusterBytes = 5;

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }
bool is_white_space(uint32_t c) { return CharProperties::of(c).white_space(); }

// ---- each character for itself

// Writes the up to three characters that `c` becomes, and returns how many.
using CharRule = int (*)(uint32_t c, uint32_t* out);

class CharStep final : public NormalStep {
 public:
  explicit CharStep(CharRule rule) : rule_(rule) {
    for (uint32_t c = 0; c < ascii_stays_.size(); ++c) ascii_stays_[c] = stays(c);
  }

  void run(std::string_view input, NormalText& output) const override {
    size_t kept = 0;
    std::string made;
    for (size_t at = 0; at < input.size();) {
      if (is_ascii(input[at]) && ascii_stays_[static_cast<size_t>(input[at])]) {
        ++at;
        continue;
      }
      const Utf8Char c = decode_utf8(input, at);
      const size_t end = at + static_cast<size_t>(c.length);
      if (c.valid && !stays(c.code_point)) {
        output.keep(input, kept, at);
        output.put(changed(c.code_point, made), {at, end});
        kept = end;
      }
      at = end;
    }
    output.keep(input, kept, input.size());
  }

 private:
  bool stays(uint32_t c) const {
    uint32_t out[3];
    return rule_(c, out) == 1 && out[0] == c;
  }
  const std::string& changed(uint32_t c, std::string& made) const {
    uint32_t out[3];
    const int count = rule_(c, out);
    made.clear();
    for (int i = 0; i < count; ++i) append_utf8(made, out[i]);
    return made;
  }

  CharRule rule_;
  std::array<bool, 128> ascii_stays_;
};

// The only character of Unicode 15.0 whose lower case is two, wherever it stands, is U+0130.
int lower_case(uint32_t c, uint32_t* out) {
  out[0] = static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
  out[1] = 0x0307;
  return c == 0x0130 ? 2 : 1;
}

int without_marks(uint32_t c, uint32_t* out) {
  out[0] = c;
  const Category category = CharProperties::of(c).category();
  return category == Category::kMn || category == Category::kMc || category == Category::kMe ? 0 : 1;
}

int without_accents(uint32_t c, uint32_t* out) {
  out[0] = c;
  return CharProperties::of(c).category() == Category::kMn ? 0 : 1;
}

int bert_clean(uint32_t c, uint32_t* out) {
  out[0] = is_white_space(c) ? ' ' : c;
  if (c == '\t' || c == '\n' || c == '\r') return 1;
  const Category category = CharProperties::of(c).category();
  const bool other = category == Category::kCc || category == Category::kCf || category == Category::kCo;
  return other || c == kReplacementCharacter ? 0 : 1;
}

// The blocks of ideographs that BERT names.
int bert_ideographs(uint32_t c, uint32_t* out) {
  const bool ideograph = (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0xF900 && c <= 0xFAFF) ||
                         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B81F) ||
                         (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0x2F800 && c <= 0x2FA1F);
  if (!ideograph) {
    out[0] = c;
    return 1;
  }
  out[0] = out[2] = ' ';
  out[1] = c;
  return 3;
}

int nmt(uint32_t c, uint32_t* out) {
  const bool dropped =
      (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
  const bool space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
                     c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == kReplacementCharacter;
  out[0] = space ? ' ' : c;
  return dropped ? 0 : 1;
}

// ---- the whole text

class UnicodeFormStep final : public NormalStep {
 public:
  explicit UnicodeFormStep(normal::UnicodeForm form) : form_(form) {}
  void run(std::string_view input, NormalText& output) const override { apply_unicode_form(form_, input, output); }

 private:
  normal::UnicodeForm form_;
};

class StripStep final : public NormalStep {
 public:
  explicit StripStep(normal::Strip sides) : sides_(sides) {}

  void run(std::string_view input, NormalText& output) const override {
    size_t begin = input.size(), end = 0;  // of what is no white space
    for (size_t at = 0; at < input.size();) {
      const Utf8Char c = decode_utf8(input, at);
      const size_t next = at + static_cast<size_t>(c.length);
      if (!c.valid || !is_white_space(c.code_point)) {
        begin = std::min(begin, at);
        end = next;
      }
      at = next;
    }
    if (!sides_.left) begin = 0;
    if (!sides_.right) end = input.size();
    if (begin < end) output.keep(input, begin, end);
  }

 private:
  normal::Strip sides_;
};

class PrependStep final : public NormalStep {
 public:
  explicit PrependStep(std::string text) : text_(std::move(text)) {}

  void run(std::string_view input, NormalText& output) const override {
    if (!input.empty()) output.put(text_, {0, 0});
    output.keep(input, 0, input.size());
  }

 private:
  std::string text_;
};

// ---- replacing

class ReplaceStep final : public NormalStep {
 public:
  explicit ReplaceStep(const normal::Replace& step) : pattern_(step.pattern), content_(step.content) {
    LOAM_CHECK(replace_invalid_utf8(pattern_) == pattern_, "a normalizer's pattern \"{}\" is not UTF-8",
               printable(pattern_));
  }

  void run(std::string_view input, NormalText& output) const override {
    if (pattern_.empty()) return between_characters(input, output);
    size_t kept = 0;
    for (size_t at = 0; (at = input.find(pattern_, kept)) != std::string_view::npos;) {
      output.keep(input, kept, at);
      kept = at + pattern_.size();
      output.put(content_, {at, kept});
    }
    output.keep(input, kept, input.size());
  }

 private:
  void between_characters(std::string_view input, NormalText& output) const {
    for (size_t at = 0; at < input.size();) {
      const size_t end = at + static_cast<size_t>(decode_utf8(input, at).length);
      output.put(content_, {at, at});
      output.keep(input, at, end);
      at = end;
    }
    if (!input.empty()) output.put(content_, {input.size(), input.size()});
  }

  std::string pattern_, content_;
};

// `text` with one byte, of no class, for each that is not valid UTF-8.
std::string made_valid(std::string_view text) {
  std::string valid(text);
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (!c.valid) valid.replace(at, static_cast<size_t>(c.length), static_cast<size_t>(c.length), kInvalidAs);
    at += static_cast<size_t>(c.length);
  }
  return valid;
}

class ReplaceRegexStep final : public NormalStep {
 public:
  explicit ReplaceRegexStep(const normal::Replace& step)
      : matcher_(make_matcher(step.pattern)), content_(step.content) {}

  void run(std::string_view input, NormalText& output) const override {
    if (input.empty()) return;
    const std::string valid = made_valid(input);
    ScanMemo memo;
    size_t kept = 0;  // the end of the match before
    bool any = false;
    for (size_t from = 0; from <= valid.size();) {
      Piece match;
      if (!matcher_->find(valid, from, memo, match)) break;
      from = match.end();
      if (match.length == 0 && from < valid.size()) from += static_cast<size_t>(decode_utf8(valid, from).length);
      if (match.length == 0 && match.begin == valid.size()) from = valid.size() + 1;
      // No empty match at the end of another.
      if (match.length == 0 && any && match.begin == kept) continue;
      // A match that holds an invalid byte is none.
      if (std::string_view(valid).substr(match.begin, match.length) != input.substr(match.begin, match.length))
        continue;
      output.keep(input, kept, match.begin);
      output.put(content_, {match.begin, match.end()});
      kept = match.end();
      any = true;
    }
    output.keep(input, kept, input.size());
  }

 private:
  std::shared_ptr<const Matcher> matcher_;
  std::string content_;
};

// ---- SentencePiece's table

class PrecompiledStep final : public NormalStep {
 public:
  explicit PrecompiledStep(const normal::Precompiled& step) : map_(step.table), longest_match_(step.longest_match) {
    std::vector<std::pair<std::string_view, int32_t>> kept;
    for (const std::string& text : step.kept) kept.emplace_back(text, 0);
    kept_ = Trie(std::move(kept));
  }

  void run(std::string_view input, NormalText& output) const override {
    size_t kept = 0;
    const auto replace = [&](size_t begin, size_t end, std::string_view replacement) {
      output.keep(input, kept, begin);
      output.put(replacement, {begin, end});
      kept = end;
    };
    for (size_t at = 0; at < input.size();) {
      const Utf8Char c = decode_utf8(input, at);
      if (!c.valid) {
        at += static_cast<size_t>(c.length);
      } else if (longest_match_) {
        at = take_longest(input, at, static_cast<size_t>(c.length), replace);
      } else {
        at = take_cluster(input, at, c, replace);
      }
    }
    output.keep(input, kept, input.size());
  }

 private:
  size_t take_longest(std::string_view input, size_t at, size_t length, const auto& replace) const {
    if (const size_t stays = kept_.longest(input.substr(at)).first; stays > 0) return at + stays;
    const auto match = map_.longest(input.substr(at));
    if (!match || !all_valid(input.substr(at, match->length))) return at + length;
    replace(at, at + match->length, match->replacement);
    return at + match->length;
  }

  static bool all_valid(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
      const Utf8Char c = decode_utf8(text, at);
      if (!c.valid) return false;
      at += static_cast<size_t>(c.length);
    }
    return true;
  }

  // A short grapheme cluster becomes what the shortest string at its beginning becomes; the rest of it is lost.
  size_t take_cluster(std::string_view input, size_t at, Utf8Char first, const auto& replace) const {
    const size_t end = cluster_end(input, at, first);
    if (end - at <= kMostClusterBytes) {
      if (const auto match = map_.shortest(input.substr(at, end - at))) {
        replace(at, end, match->replacement);
        return end;
      }
    }
    while (at < end) {
      const size_t next = at + static_cast<size_t>(decode_utf8(input, at).length);
      if (const auto match = map_.shortest(input.substr(at, next - at))) replace(at, next, match->replacement);
      at = next;
    }
    return end;
  }

  static size_t cluster_end(std::string_view input, size_t at, Utf8Char before) {
    utf8proc_int32_t state = 0;
    at += static_cast<size_t>(before.length);
    while (at < input.size()) {
      if (is_ascii(input[at]) && before.code_point < 0x80 && before.code_point != '\r') return at;
      const Utf8Char c = decode_utf8(input, at);
      if (!c.valid || utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(before.code_point),
                                                       static_cast<utf8proc_int32_t>(c.code_point), &state)) {
        return at;
      }
      at += static_cast<size_t>(c.length);
      before = c;
    }
    return at;
  }

  PrecompiledCharsmap map_;
  Trie kept_;
  bool longest_match_;
};

}  // namespace

void append_steps(const NormalizerStep& step, NormalSteps& steps) {
  struct Visitor {
    NormalSteps& steps;

    void add(CharRule rule) const { steps.push_back(std::make_unique<CharStep>(rule)); }

    void operator()(const normal::UnicodeForm& s) const { steps.push_back(std::make_unique<UnicodeFormStep>(s)); }
    void operator()(const normal::Lowercase&) const { add(lower_case); }
    void operator()(const normal::StripAccents&) const { add(without_marks); }
    void operator()(const normal::Strip& s) const { steps.push_back(std::make_unique<StripStep>(s)); }
    void operator()(const normal::Replace& s) const {
      if (s.regex) {
        steps.push_back(std::make_unique<ReplaceRegexStep>(s));
      } else {
        steps.push_back(std::make_unique<ReplaceStep>(s));
      }
    }
    void operator()(const normal::Prepend& s) const { steps.push_back(std::make_unique<PrependStep>(s.text)); }
    void operator()(const normal::Bert& s) const {
      if (s.clean_text) add(bert_clean);
      if (s.chinese_chars) add(bert_ideographs);
      if (s.strip_accents) {
        (*this)(normal::UnicodeForm{false, false});
        add(without_accents);
      }
      if (s.lowercase) add(lower_case);
    }
    void operator()(const normal::Nmt&) const { add(nmt); }
    void operator()(const normal::Precompiled& s) const { steps.push_back(std::make_unique<PrecompiledStep>(s)); }
  };
  std::visit(Visitor{steps}, step);
}

}  // namespace loam
