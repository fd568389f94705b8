// JSON values: what configurations, tokenizer files, headers and metrics are made of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace loam {

class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  // In order of appearance. Of equal keys the last one counts, as in Python's json and so in the programs that write
  // the files which loam reads.
  using Object = std::vector<Member>;

  Json() noexcept;  // null
  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(const Json& other);
  Json& operator=(Json&& other) noexcept;
  ~Json();
  Json(std::nullptr_t) {}
  Json(bool value) : value_(value) {}
  Json(int value) : value_(int64_t{value}) {}
  Json(int64_t value) : value_(value) {}
  Json(double value) : value_(value) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(Array value) : value_(std::move(value)) {}
  Json(Object value) : value_(std::move(value)) {}
  Json(const std::optional<double>& value) : Json(value ? Json(*value) : Json()) {}
  static Json array() { return Json(Array{}); }
  static Json object() { return Json(Object{}); }

  // Reads one value that fills the whole text. `source` is named in errors.
  // Error{kBadFormat} with the byte offset; nesting is limited to 512. Bytes that are not UTF-8 and escaped lone
  // surrogates become U+FFFD. Whole numbers within int64 are integers; all others are doubles.
  static Json parse(std::string_view text, std::string_view source = "JSON");

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<int64_t>(value_); }
  bool is_number() const { return is_int() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }

  // Error{kBadFormat} for another kind ("expected a string, found a number").
  bool as_bool() const;
  int64_t as_int() const;  // also a double without fraction, up to 2^53: a larger one may be a rounded integer
  double as_double() const;
  const std::string& as_string() const;
  const Array& as_array() const;
  Array& as_array();
  const Object& as_object() const;
  Object& as_object();

  // Objects. find: null if the key is missing. at: Error{kBadFormat} that names the key. operator[]: adds null (null
  // itself becomes an object).
  const Json* find(std::string_view key) const;
  const Json& at(std::string_view key) const;
  Json& operator[](std::string_view key);
  // Where the value `part` stands in this one, for messages: "model.merges[3]"; "" for itself or what is no part of it.
  std::string path_of(const Json& part) const;
  void push_back(Json value) { as_array().push_back(std::move(value)); }

  // Shortest form that reads back equal; `indent` < 0 means one line. Infinities and NaN, which JSON lacks, become
  // null.
  std::string dump(int indent = -1) const;

  bool operator==(const Json& other) const;

 private:
  std::variant<std::nullptr_t, bool, int64_t, double, std::string, Array, Object> value_ = nullptr;
};

}  // namespace loam
