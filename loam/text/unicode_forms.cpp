#include "loam/text/unicode_forms.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "loam/base/utf8.h"
#include "loam/text/unicode.h"

namespace loam {
namespace {

constexpr int kMostParts = 32;  // of one character; 18 is the longest of Unicode 15.0
constexpr uint32_t kFirstVowelJamo = 0x1160, kLastFinalJamo = 0x11FF;

bool is_ascii(std::string_view text, size_t position) { return static_cast<unsigned char>(text[position]) < 0x80; }

// True if nothing before a character that decomposes into `first` and so on moves behind it or is composed with it.
// (Unicode 15.0 composes with what is before them only marks and the vowels and finals of Hangul.)
bool begins_segment(uint32_t first) {
  const Category category = CharProperties::of(first).category();
  if (category == Category::kMn || category == Category::kMc || category == Category::kMe) return false;
  return first < kFirstVowelJamo || first > kLastFinalJamo;
}

// Takes a text as segments, each of which is normalized for itself.
class Former {
 public:
  Former(normal::UnicodeForm form, std::string_view input, NormalText& output)
      : composed_(form.composed),
        options_(static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | (form.compatible ? UTF8PROC_COMPAT : 0))),
        input_(input),
        output_(output) {}

  void run() {
    for (size_t at = 0; at < input_.size();) {
      if (is_ascii(input_, at)) {
        at = take_ascii(at);
        continue;
      }
      const Utf8Char c = decode_utf8(input_, at);
      const size_t end = at + static_cast<size_t>(c.length);
      if (c.valid) {
        take(c.code_point, at);
      } else {
        flush(at);
        output_.keep(input_, at, end);
        begin_ = end;
      }
      at = end;
    }
    flush(input_.size());
  }

 private:
  // Only the last of a run of ASCII may meet what is behind.
  size_t take_ascii(size_t at) {
    flush(at);
    size_t last = at;
    while (last + 1 < input_.size() && is_ascii(input_, last + 1)) ++last;
    output_.keep(input_, at, last);
    begin_ = last;
    parts_.push_back(input_[last]);
    return last + 1;
  }

  void take(uint32_t code_point, size_t at) {
    utf8proc_int32_t parts[kMostParts];
    int last_class = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code_point), parts, kMostParts, options_, &last_class);
    if (count <= 0 || count > kMostParts) {
      flush(at);
      parts_.push_back(static_cast<utf8proc_int32_t>(code_point));
      return;
    }
    if (begins_segment(static_cast<uint32_t>(parts[0]))) flush(at);
    parts_.insert(parts_.end(), parts, parts + count);
  }

  // Ends the segment that began at begin_.
  void flush(size_t end) {
    if (begin_ < end) {
      order_marks();
      size_t count = parts_.size();
      if (composed_ && count > 1) {
        count = static_cast<size_t>(
            utf8proc_normalize_utf32(parts_.data(), static_cast<utf8proc_ssize_t>(count),
                                     static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE)));
      }
      made_.clear();
      for (size_t i = 0; i < count; ++i) append_utf8(made_, static_cast<uint32_t>(parts_[i]));
      if (made_ == input_.substr(begin_, end - begin_)) {
        output_.keep(input_, begin_, end);
      } else {
        output_.put(made_, {begin_, end});
      }
    }
    parts_.clear();
    begin_ = end;
  }

  // Sorts each run of marks by their combining class, those of one class in their order.
  void order_marks() {
    const auto class_of = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
    for (size_t begin = 0; begin < parts_.size();) {
      size_t end = begin;
      marks_.clear();
      for (; end < parts_.size(); ++end) {
        const auto mark_class = class_of(parts_[end]);
        if (mark_class == 0) break;
        marks_.push_back({mark_class, parts_[end]});
      }
      if (marks_.size() > 1) {
        std::stable_sort(marks_.begin(), marks_.end(), [](auto a, auto b) { return a.mark_class < b.mark_class; });
        for (size_t i = 0; i < marks_.size(); ++i) parts_[begin + i] = marks_[i].code_point;
      }
      begin = end + 1;
    }
  }

  struct Mark {
    utf8proc_propval_t mark_class;
    utf8proc_int32_t code_point;
  };

  bool composed_;
  utf8proc_option_t options_;
  std::string_view input_;
  NormalText& output_;
  size_t begin_ = 0;                     // of the segment
  std::vector<utf8proc_int32_t> parts_;  // its decomposition
  std::vector<Mark> marks_;
  std::string made_;
};

}  // namespace

void apply_unicode_form(normal::UnicodeForm form, std::string_view input, NormalText& output) {
  Former(form, input, output).run();
}

}  // namespace loam
