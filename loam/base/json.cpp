#include "loam/base/json.h"

#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "loam/base/error.h"
#include "loam/base/utf8.h"

namespace loam {
namespace {

constexpr int kMaxDepth = 512;
constexpr size_t kMaxMessage = 300;  // bytes: it may quote the text

// The value of "\uXXXX" at the front of `rest`, or -1.
int unicode_escape(std::string_view rest) {
  if (rest.size() < 6 || rest[0] != '\\' || rest[1] != 'u') return -1;
  int value = 0;
  const auto [end, error] = std::from_chars(rest.data() + 2, rest.data() + 6, value, 16);
  return error == std::errc() && end == rest.data() + 6 && rest[2] != '-' ? value : -1;
}

// One pass over the raw text before it is parsed: replaces what is not UTF-8 and escapes of lone surrogates by U+FFFD,
// and finds the two faults that the parser would not report: nesting past the limit, and a NUL byte, which it takes for
// the end.
class Cleaner {
 public:
  Cleaner(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  // The clean text: a view of the original where nothing had to be replaced. Stops once `stop` bytes are out.
  std::string_view run(size_t stop = std::string_view::npos) {
    while (position_ < text_.size() && output_size() < stop) step();
    if (copied_ == 0 && clean_.empty()) return text_.substr(0, position_);
    flush();
    return clean_;
  }
  size_t position() const { return position_; }

 private:
  size_t output_size() const { return clean_.size() + position_ - copied_; }
  void flush() {
    clean_.append(text_, copied_, position_ - copied_);
    copied_ = position_;
  }
  void replace(std::string_view replacement, int length) {
    flush();
    clean_ += replacement;
    copied_ = position_ += length;
  }

  void step() {
    const char c = text_[position_];
    if (static_cast<unsigned char>(c) >= 0x80) {
      const Utf8Char character = decode_utf8(text_, position_);
      if (character.valid) {
        position_ += character.length;
      } else {
        replace(kReplacementUtf8, character.length);
      }
    } else if (in_string_) {
      step_in_string(c);
    } else {
      step_outside(c);
    }
  }

  void step_in_string(char c) {
    if (c != '\\') {
      in_string_ = c != '"';
      ++position_;
      return;
    }
    const int first = unicode_escape(text_.substr(position_));
    if (first < 0) {
      // An escape's second byte is skipped only if it is ASCII: a lead byte must still be looked at.
      const bool pair = position_ + 1 < text_.size() && static_cast<unsigned char>(text_[position_ + 1]) < 0x80;
      position_ += pair ? 2 : 1;
    } else if (first < 0xD800 || first > 0xDFFF) {
      position_ += 6;
    } else {
      const int second = position_ + 6 < text_.size() ? unicode_escape(text_.substr(position_ + 6)) : -1;
      if (first <= 0xDBFF && second >= 0xDC00 && second <= 0xDFFF) {
        position_ += 12;
      } else {
        replace("\\ufffd", 6);
      }
    }
  }

  void step_outside(char c) {
    if (c == '"') in_string_ = true;
    if (c == '[' || c == '{') ++depth_;
    if (c == ']' || c == '}') --depth_;
    if (depth_ > kMaxDepth) {
      fail(ErrorCode::kBadFormat, "{}: byte {}: nested deeper than {}", source_, position_, kMaxDepth);
    }
    if (c == '\0') fail(ErrorCode::kBadFormat, "{}: byte {}: a NUL byte is not JSON", source_, position_);
    ++position_;
  }

  std::string_view text_, source_;
  std::string clean_;
  size_t position_ = 0, copied_ = 0;  // in text_; [copied_, position_) is not yet in clean_
  bool in_string_ = false;
  int depth_ = 0;
};

// Receives the parser's events and builds the value. The open containers are on a stack, not in the call stack.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(size_t text_size) : text_size_(text_size) {}

  bool null() override { return add(Json()); }
  bool boolean(bool value) override { return add(Json(value)); }
  bool number_integer(number_integer_t value) override { return add(Json(int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > uint64_t{INT64_MAX}) return add(Json(static_cast<double>(value)));
    return add(Json(static_cast<int64_t>(value)));
  }
  bool number_float(number_float_t value, const string_t&) override { return add(Json(value)); }
  bool string(string_t& value) override { return add(Json(std::move(value))); }
  bool binary(binary_t&) override { return false; }  // not in text
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool key(string_t& name) override {
    keys_.back() = std::move(name);
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& error) override {
    error_position_ = std::min(position == 0 ? 0 : position - 1, text_size_);
    message_ = error.what();
    // "[json.exception...] parse error at line 1, column 2: syntax error ...; last read: '...'" -> the middle part;
    // "[json.exception...] number overflow parsing '1e400'" has no place.
    if (const size_t bracket = message_.find("] "); bracket != std::string::npos) message_.erase(0, bracket + 2);
    if (const size_t colon = message_.find(": "); colon != std::string::npos) message_.erase(0, colon + 2);
    if (const size_t read = message_.find("; last read"); read != std::string::npos) {
      const size_t end = message_.rfind("'; expected ");  // which may follow; what was read may hold anything
      message_.erase(read, end == std::string::npos || end < read ? std::string::npos : end + 1 - read);
    }
    message_ = printable(message_, false, kMaxMessage);
    return false;
  }

  Json result() { return std::move(result_); }
  size_t error_position() const { return error_position_; }
  const std::string& message() const { return message_; }

 private:
  bool add(Json value) {
    if (open_.empty()) {
      result_ = std::move(value);
    } else if (open_.back().is_array()) {
      open_.back().push_back(std::move(value));
    } else {
      open_.back().as_object().emplace_back(std::move(keys_.back()), std::move(value));
    }
    return true;
  }
  bool open(Json container) {
    open_.push_back(std::move(container));
    keys_.emplace_back();
    return true;
  }
  bool close() {
    Json container = std::move(open_.back());
    open_.pop_back();
    keys_.pop_back();
    return add(std::move(container));
  }

  std::vector<Json> open_;
  std::vector<std::string> keys_;  // of each open object, the key whose value comes next
  Json result_;
  size_t text_size_, error_position_ = 0;
  std::string message_ = "not a value";
};

const char* kind_name(const Json& value) {
  if (value.is_null()) return "null";
  if (value.is_bool()) return "a boolean";
  if (value.is_int()) return "an integer";
  if (value.is_number()) return "a number";
  if (value.is_string()) return "a string";
  return value.is_array() ? "an array" : "an object";
}

[[noreturn]] void wrong_kind(const char* expected, const Json& found) {
  fail(ErrorCode::kBadFormat, "expected {}, found {}", expected, kind_name(found));
}

void write_string(std::string_view text, std::string& out) {
  out += '"';
  for (size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x80) {
      const Utf8Char character = decode_utf8(text, i);
      out += character.valid ? text.substr(i, character.length) : kReplacementUtf8;
      i += character.length;
      continue;
    }
    constexpr std::string_view kShort = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
    if (const size_t found = kShort.find(text[i]); found != std::string_view::npos) {
      out += '\\';
      out += kLetters[found];
    } else if (c < 0x20) {
      out += fmt::format("\\u{:04x}", c);
    } else {
      out += text[i];
    }
    ++i;
  }
  out += '"';
}

void write_double(double value, std::string& out) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  // Like Python's repr: plain digits for ordinary sizes, an exponent outside them.
  const double size = std::abs(value);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific)
                       .ptr;
  const std::string_view shortest(digits.data(), end - digits.data());
  out += shortest;
  // A whole double keeps a fraction, so that it is read back as a double.
  if (shortest.find_first_of(".e") == std::string_view::npos) out += ".0";
}

// Recursion is bounded by the depth of the value, not by its length.
class Writer {
 public:
  Writer(int indent, std::string& out) : indent_(indent), out_(out) {}

  void write(const Json& value) {
    if (value.is_null()) {
      out_ += "null";
    } else if (value.is_bool()) {
      out_ += value.as_bool() ? "true" : "false";
    } else if (value.is_int()) {
      out_ += fmt::format("{}", value.as_int());
    } else if (value.is_number()) {
      write_double(value.as_double(), out_);
    } else if (value.is_string()) {
      write_string(value.as_string(), out_);
    } else if (value.is_array()) {
      write_items('[', ']', value.as_array(), [&](const Json& item) { write(item); });
    } else {
      write_items('{', '}', value.as_object(), [&](const Json::Member& member) {
        write_string(member.first, out_);
        out_ += indent_ < 0 ? ":" : ": ";
        write(member.second);
      });
    }
  }

 private:
  template <class Items, class WriteItem>
  void write_items(char open, char close, const Items& items, const WriteItem& write_item) {
    out_ += open;
    ++depth_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += ',';
      new_line();
      write_item(items[i]);
    }
    --depth_;
    if (!items.empty()) new_line();
    out_ += close;
  }
  void new_line() {
    if (indent_ < 0) return;
    out_ += '\n';
    out_.append(static_cast<size_t>(depth_) * indent_, ' ');
  }

  int indent_, depth_ = 0;
  std::string& out_;
};

}  // namespace

// Here, not in the header: a variant's own functions are long, and every file that holds a Json would compile them.
Json::Json() noexcept = default;
Json::Json(const Json& other) = default;
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(const Json& other) = default;
Json& Json::operator=(Json&& other) noexcept = default;
Json::~Json() = default;
bool Json::operator==(const Json& other) const { return value_ == other.value_; }

Json Json::parse(std::string_view text, std::string_view source) {
  Cleaner cleaner(text, source);
  const std::string_view clean = cleaner.run();
  Builder builder(clean.size());
  if (!nlohmann::json::sax_parse(clean.begin(), clean.end(), &builder)) {
    Cleaner counter(text, source);  // where in the original the faulty byte of the clean text is
    counter.run(builder.error_position());
    fail(ErrorCode::kBadFormat, "{}: byte {}: {}", source, counter.position(), builder.message());
  }
  return builder.result();
}

bool Json::as_bool() const {
  if (!is_bool()) wrong_kind("a boolean", *this);
  return std::get<bool>(value_);
}

int64_t Json::as_int() const {
  if (is_int()) return std::get<int64_t>(value_);
  if (!is_number()) wrong_kind("an integer", *this);
  const double value = std::get<double>(value_);
  if (!(std::abs(value) <= 0x1p53) || value != std::trunc(value)) {
    fail(ErrorCode::kBadFormat, "expected an integer, found {}", value);
  }
  return static_cast<int64_t>(value);
}

double Json::as_double() const {
  if (is_int()) return static_cast<double>(std::get<int64_t>(value_));
  if (!is_number()) wrong_kind("a number", *this);
  return std::get<double>(value_);
}

const std::string& Json::as_string() const {
  if (!is_string()) wrong_kind("a string", *this);
  return std::get<std::string>(value_);
}

const Json::Array& Json::as_array() const {
  if (!is_array()) wrong_kind("an array", *this);
  return std::get<Array>(value_);
}

Json::Array& Json::as_array() {
  if (!is_array()) wrong_kind("an array", *this);
  return std::get<Array>(value_);
}

const Json::Object& Json::as_object() const {
  if (!is_object()) wrong_kind("an object", *this);
  return std::get<Object>(value_);
}

Json::Object& Json::as_object() {
  if (!is_object()) wrong_kind("an object", *this);
  return std::get<Object>(value_);
}

const Json* Json::find(std::string_view key) const {
  const Object& members = as_object();
  for (auto member = members.rbegin(); member != members.rend(); ++member) {
    if (member->first == key) return &member->second;
  }
  return nullptr;
}

const Json& Json::at(std::string_view key) const {
  if (const Json* value = find(key)) return *value;
  fail(ErrorCode::kBadFormat, "missing key '{}'", key);
}

Json& Json::operator[](std::string_view key) {
  if (is_null()) value_ = Object{};
  if (const Json* value = find(key)) return const_cast<Json&>(*value);
  return as_object().emplace_back(std::string(key), Json()).second;
}

namespace {

// Recursion is bounded by the depth of the value.
bool prepend_path(const Json& whole, const Json& part, std::string& path) {
  if (&whole == &part) return true;
  if (whole.is_array()) {
    for (size_t i = 0; i < whole.as_array().size(); ++i) {
      if (!prepend_path(whole.as_array()[i], part, path)) continue;
      path.insert(0, fmt::format("[{}]{}", i, path.empty() || path[0] == '[' ? "" : "."));
      return true;
    }
  } else if (whole.is_object()) {
    for (const auto& [key, value] : whole.as_object()) {
      if (!prepend_path(value, part, path)) continue;
      path.insert(0, key + (path.empty() || path[0] == '[' ? "" : "."));
      return true;
    }
  }
  return false;
}

}  // namespace

std::string Json::path_of(const Json& part) const {
  std::string path;
  prepend_path(*this, part, path);
  return path;
}

std::string Json::dump(int indent) const {
  std::string out;
  Writer(indent, out).write(*this);
  return out;
}

}  // namespace loam
