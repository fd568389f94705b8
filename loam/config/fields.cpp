#include "loam/config/fields.h"

#include <algorithm>
#include <cmath>

namespace loam {
namespace config_detail {
namespace {

std::string described(const Json& json) {
  constexpr size_t kLongest = 40;
  if (json.is_object()) return "an object";
  if (json.is_array()) return "a list";
  std::string text = json.dump();
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

}  // namespace

void fail_kind(const std::string& name, std::string_view expected, const Json& found) {
  fail(ErrorCode::kInvalidArgument, "{}: expected {}, found {}", name, expected, described(found));
}

void fail_unknown(const std::string& name, const std::vector<std::string>& known) {
  // What all settings of a struct begin with makes none of them near.
  const std::string parent = name.substr(0, name.rfind('.') + 1), own = name.substr(parent.size());
  std::vector<std::string> siblings;
  for (const std::string& candidate : known) {
    if (candidate.starts_with(parent)) siblings.push_back(candidate.substr(parent.size()));
  }
  std::string nearest = nearest_name(own, siblings);
  if (!nearest.empty()) nearest = parent + nearest;
  if (siblings.empty()) nearest = nearest_name(name, known);
  for (const std::string& candidate : known) {
    if (nearest.empty() && candidate.ends_with("." + own)) nearest = candidate;  // "lr" for "optimizer.lr"
  }
  if (nearest.empty()) fail(ErrorCode::kInvalidArgument, "unknown setting \"{}\"", name);
  fail(ErrorCode::kInvalidArgument, "unknown setting \"{}\": did you mean \"{}\"?", name, nearest);
}

void fail_twice(const std::string& name) {
  fail(ErrorCode::kInvalidArgument, "the setting \"{}\" is there twice", name);
}

std::string joined(const std::string& prefix, std::string_view name) {
  return prefix.empty() ? std::string(name) : fmt::format("{}.{}", prefix, name);
}

std::string joined_names(const std::vector<std::string>& names, std::string_view between) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : std::string(between)) + name;
  return all;
}

void check_range(std::string_view prefix, std::string_view name, double value, const std::string& text,
                 std::span<const NumberRange> ranges) {
  const auto range = std::find_if(ranges.begin(), ranges.end(), [&](const NumberRange& r) { return r.name == name; });
  const std::string key = joined(std::string(prefix), name);
  if (range == ranges.end()) fail(ErrorCode::kInternal, "{}: a setting without a range", key);
  LOAM_CHECK(std::isfinite(value), "{} is {}; it must be a finite number", key, text);
  LOAM_CHECK(range->above_low ? value > range->low : value >= range->low, "{} is {}; it must be {} {}", key, text,
             range->above_low ? "above" : "at least", range->low);
  LOAM_CHECK(value <= range->high, "{} is {}; it must be at most {}", key, text, range->high);
}

void read_value(bool& value, const Json& json, const std::string& name) {
  if (!json.is_bool()) fail_kind(name, "true or false", json);
  value = json.as_bool();
}

void read_value(int64_t& value, const Json& json, const std::string& name) {
  if (json == Json("auto")) {  // kAuto, which the range of most settings refuses
    value = -1;
    return;
  }
  if (json.is_int()) {
    value = json.as_int();
    return;
  }
  // 1e6 is a whole number too; beyond 2^53 a double no longer says which one.
  const double number = json.is_number() ? json.as_double() : 0.5;
  if (number != std::floor(number) || std::abs(number) > 0x1p53) fail_kind(name, "an integer", json);
  value = static_cast<int64_t>(number);
}

void read_value(double& value, const Json& json, const std::string& name) {
  if (!json.is_number() || !std::isfinite(json.as_double())) fail_kind(name, "a number", json);
  value = json.as_double();
}

void read_value(std::string& value, const Json& json, const std::string& name) {
  if (!json.is_string()) fail_kind(name, "a text", json);
  value = json.as_string();
}

Json nested(std::string_view dotted, Json value) {
  for (size_t end = dotted.size(); end > 0;) {
    const size_t dot = dotted.rfind('.', end - 1);
    const size_t begin = dot == std::string_view::npos ? 0 : dot + 1;
    value = Json(Json::Object{{std::string(dotted.substr(begin, end - begin)), std::move(value)}});
    end = begin == 0 ? 0 : dot;
  }
  return value;
}

Json assigned_value(std::string_view text, bool is_text) {
  try {
    Json value = Json::parse(text, "setting");
    if (!is_text || value.is_string()) return value;
  } catch (const Error&) {
    // Plain words need no quotation marks.
  }
  return Json(text);
}

}  // namespace config_detail

namespace {

struct Flat {
  std::string name;
  const Json* value;
};

bool is_list_of_objects(const Json& json) {
  return json.is_array() && !json.as_array().empty() &&
         std::all_of(json.as_array().begin(), json.as_array().end(), [](const Json& e) { return e.is_object(); });
}

void flatten(const Json& json, const std::string& prefix, std::vector<Flat>& out) {
  for (const auto& [key, value] : json.as_object()) {
    const std::string name = config_detail::joined(prefix, key);
    if (value.is_object()) {
      flatten(value, name, out);
    } else if (is_list_of_objects(value)) {
      for (size_t i = 0; i < value.as_array().size(); ++i) {
        flatten(value.as_array()[i], fmt::format("{}[{}]", name, i), out);
      }
    } else {
      out.push_back({name, &value});
    }
  }
}

const Json* value_named(const std::vector<Flat>& fields, const std::string& name) {
  for (const Flat& field : fields) {
    if (field.name == name) return field.value;
  }
  return nullptr;
}

bool is_set(const Json* value) { return value && !value->is_null(); }

// Nothing is shown in words.
std::string shown(const Json* value) {
  if (!is_set(value)) return "not set";
  return value->is_array() && value->as_array().empty() ? "none" : value->dump();
}

// Whether `fields` has the settings of structs in that list, which say more than that it was empty.
bool has_structs_of(const std::string& list, const std::vector<Flat>& fields) {
  const std::string begin = list + "[";
  return std::any_of(fields.begin(), fields.end(), [&](const Flat& f) { return f.name.starts_with(begin); });
}

bool same(const Json* first, const Json* second) {
  if (!is_set(first) || !is_set(second)) return is_set(first) == is_set(second);
  const Json &a = *first, &b = *second;
  if (a.is_number() && b.is_number() && !(a.is_int() && b.is_int())) return a.as_double() == b.as_double();
  return a == b;
}

}  // namespace

std::vector<std::string> config_diff(const Json& before, const Json& after) {
  std::vector<Flat> old_fields, new_fields;
  flatten(before, "", old_fields);
  flatten(after, "", new_fields);
  std::vector<std::string> lines;
  const auto add = [&](const std::string& name, const Json* was, const Json* is) {
    if (!same(was, is)) lines.push_back(fmt::format("{}: {} -> {}", name, shown(was), shown(is)));
  };
  for (const Flat& field : old_fields) {
    if (!has_structs_of(field.name, new_fields)) add(field.name, field.value, value_named(new_fields, field.name));
  }
  for (const Flat& field : new_fields) {
    const bool is_old = value_named(old_fields, field.name) || has_structs_of(field.name, old_fields);
    if (!is_old) add(field.name, nullptr, field.value);
  }
  return lines;
}

}  // namespace loam
