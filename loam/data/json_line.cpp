// simdjson reads well-formed lines many times faster than Json::parse. It refuses what Json::parse repairs or reads
// otherwise (bytes that are not UTF-8, lone surrogates, numbers past 64 bits), so every line that it refuses goes to
// Json::parse, which has the last word.
#include "loam/data/json_line.h"

#include <simdjson.h>

#include <cmath>
#include <string_view>

#include "loam/base/error.h"

namespace loam {
namespace {

constexpr size_t kMaxDepth = 500;  // below that of Json::parse; bounds the recursion of to_json()

Json to_json(simdjson::dom::element value) {
  using Type = simdjson::dom::element_type;
  switch (value.type()) {
    case Type::ARRAY: {
      Json::Array array;
      for (const auto item : simdjson::dom::array(value)) array.push_back(to_json(item));
      return array;
    }
    case Type::OBJECT: {
      Json::Object object;
      for (const auto [key, item] : simdjson::dom::object(value)) object.emplace_back(std::string(key), to_json(item));
      return object;
    }
    case Type::INT64:
      return int64_t(value);
    case Type::UINT64:  // above int64
      return static_cast<double>(uint64_t(value));
    case Type::DOUBLE:
      return double(value);
    case Type::STRING:
      return std::string_view(value);
    case Type::BOOL:
      return bool(value);
    case Type::NULL_VALUE:
      break;
  }
  return nullptr;
}

// A whole number past 64 bits has been rounded to a double.
bool is_rounded(const Json& value) {
  return value.is_number() && !value.is_int() && std::abs(value.as_double()) > 0x1p53;
}

// A member that is not the text.
void take_member(std::string_view key, Json value, Document& document) {
  if (key == "id" && (value.is_string() || value.is_number())) {
    document.id = value.is_string() ? value.as_string() : value.dump();
  } else if (key == "metadata" && value.is_object()) {
    Json::Object& all = document.metadata.as_object();
    for (auto& member : value.as_object()) all.push_back(std::move(member));
  } else {
    document.metadata.as_object().emplace_back(std::string(key), std::move(value));
  }
}

std::string parse_slowly(std::string_view line, const std::string& text_key, Document& document) {
  Json json;
  try {
    json = Json::parse(line, "JSON");  // the source that errors begin with
  } catch (const Error& error) {
    return fmt::format("not {}", error.what());
  }
  if (!json.is_object()) return "not an object";
  const Json* text = json.find(text_key);
  if (text == nullptr) return fmt::format("there is no key '{}'", text_key);
  if (!text->is_string()) return fmt::format("'{}' is not a string", text_key);
  for (auto& [key, value] : json.as_object()) {
    if (key == "id" && is_rounded(value)) return "'id' is a number past 64 bits; it may be a string";
    if (key == text_key) {
      if (value.is_string()) document.text = value.as_string();
    } else {
      take_member(key, std::move(value), document);
    }
  }
  return "";
}

}  // namespace

struct JsonLineParser::State {
  simdjson::dom::parser parser;
};

JsonLineParser::JsonLineParser() : state_(std::make_unique<State>()) {}
JsonLineParser::~JsonLineParser() = default;

std::string JsonLineParser::parse(std::string& line, const std::string& text_key, Document& document) {
  document.metadata = Json::object();
  line.reserve(line.size() + simdjson::SIMDJSON_PADDING);
  simdjson::dom::parser& parser = state_->parser;
  simdjson::dom::object object;
  if (parser.capacity() < line.size() && parser.allocate(2 * line.size(), kMaxDepth) != simdjson::SUCCESS) {
    return parse_slowly(line, text_key, document);
  }
  std::string_view text;
  bool has_text = false, exact_id = true;
  if (parser.parse(line.data(), line.size(), false).get(object) == simdjson::SUCCESS) {
    for (const auto [key, value] : object) {
      if (key == text_key) has_text = value.get(text) == simdjson::SUCCESS;
      exact_id &= key != "id" || value.type() != simdjson::dom::element_type::DOUBLE || !is_rounded(double(value));
    }
  }
  // What is wrong is said in one place.
  if (!has_text || !exact_id) return parse_slowly(line, text_key, document);
  document.text = text;
  for (const auto [key, value] : object) {
    if (key == text_key) continue;
    const bool wide_id = key == "id" && value.type() == simdjson::dom::element_type::UINT64;
    take_member(key, wide_id ? Json(std::to_string(uint64_t(value))) : to_json(value), document);
  }
  return "";
}

}  // namespace loam
