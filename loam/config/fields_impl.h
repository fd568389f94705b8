// The templates of loam/config/fields.h. Recursion follows the nesting of the structs, never that of the input.
#pragma once

#include <optional>
#include <set>

#include "loam/config/fields.h"

namespace loam {
namespace config_detail {

struct AnyVisitor {
  template <class T>
  void operator()(const char*, T&, const char*) const {}
};
template <class T>
concept FieldStruct = std::is_class_v<T> && requires(T& value) {
  visit_fields(value, AnyVisitor{});
};

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

// Error{kInvalidArgument}: setting `name` got a value of another kind than `expected`.
[[noreturn]] void fail_kind(const std::string& name, std::string_view expected, const Json& found);
[[noreturn]] void fail_unknown(const std::string& name, const std::vector<std::string>& known);
[[noreturn]] void fail_twice(const std::string& name);
std::string joined(const std::string& prefix, std::string_view name);
std::string joined_names(const std::vector<std::string>& names, std::string_view between = "|");

// Error{kInvalidArgument} unless `value`, shown as `text`, lies in the range of that name.
void check_range(std::string_view prefix, std::string_view name, double value, const std::string& text,
                 std::span<const NumberRange> ranges);

void read_value(bool& value, const Json& json, const std::string& name);
void read_value(int64_t& value, const Json& json, const std::string& name);
void read_value(double& value, const Json& json, const std::string& name);
void read_value(std::string& value, const Json& json, const std::string& name);

// {"dim", "model.dim"} built into {"model": {"dim": value}}, so that a single setting takes the path of a file's.
Json nested(std::string_view dotted, Json value);
// The value of an assignment; `is_text` fields take what is no JSON string as it stands.
Json assigned_value(std::string_view text, bool is_text);

template <class Enum>
std::vector<std::string> names_of() {
  std::vector<std::string> names;
  for (const auto& [value, name] : enum_names(Enum{})) names.push_back(name);
  return names;
}

template <class T>
std::string type_name() {
  if constexpr (std::is_same_v<T, bool>) {
    return "true|false";
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return "integer";
  } else if constexpr (std::is_same_v<T, double>) {
    return "number";
  } else if constexpr (std::is_same_v<T, std::string>) {
    return "text";
  } else if constexpr (IsVector<T>::value) {
    return "list of " + type_name<typename T::value_type>();
  } else if constexpr (IsOptional<T>::value) {
    return type_name<typename T::value_type>() + "|null";
  } else if constexpr (FieldStruct<T>) {
    T fields;
    std::vector<std::string> names;
    visit_fields(fields, [&](const char* name, auto&, const char*) { names.push_back(name); });
    return "{" + joined_names(names, ", ") + "}";
  } else {
    return joined_names(names_of<T>());
  }
}

template <class T>
Json to_json(const T& value) {
  if constexpr (FieldStruct<const T>) {
    return config_to_json(value);
  } else if constexpr (IsVector<T>::value) {
    Json list = Json::array();
    for (const auto& element : value) list.push_back(to_json(element));
    return list;
  } else if constexpr (IsOptional<T>::value) {
    return value ? to_json(*value) : Json();
  } else if constexpr (std::is_enum_v<T>) {
    for (const auto& [known, name] : enum_names(value)) {
      if (known == value) return Json(name);
    }
    fail(ErrorCode::kInternal, "config: an enum has a value without a name");
  } else {
    return Json(value);
  }
}

template <class T>
void from_json(T& value, const Json& json, const std::string& name);

template <class Config>
void struct_from_json(Config& config, const Json& json, const std::string& prefix) {
  if (!json.is_object()) fail_kind(prefix.empty() ? "the configuration" : prefix, "an object", json);
  std::vector<std::string> known;
  visit_fields(config, [&](const char* name, auto&, const char*) { known.push_back(joined(prefix, name)); });
  std::set<std::string_view> given;
  for (const auto& entry : json.as_object()) {
    const std::string& key = entry.first;  // clang 16 with OpenMP cannot capture a structured binding
    const Json& member = entry.second;
    if (!given.insert(key).second) fail_twice(joined(prefix, key));
    bool found = false;
    visit_fields(config, [&](const char* name, auto& field, const char*) {
      if (key != name) return;
      found = true;
      from_json(field, member, joined(prefix, name));
    });
    if (!found) fail_unknown(joined(prefix, key), known);
  }
}

template <class T>
void from_json(T& value, const Json& json, const std::string& name) {
  if constexpr (FieldStruct<T>) {
    struct_from_json(value, json, name);
  } else if constexpr (IsVector<T>::value) {
    if (!json.is_array()) fail_kind(name, "a list", json);
    value.clear();
    for (const Json& element : json.as_array()) {
      typename T::value_type one{};
      from_json(one, element, FieldStruct<typename T::value_type> ? fmt::format("{}[{}]", name, value.size()) : name);
      value.push_back(std::move(one));
    }
  } else if constexpr (IsOptional<T>::value) {
    value.reset();
    if (!json.is_null()) from_json(value.emplace(), json, name);
  } else if constexpr (std::is_enum_v<T>) {
    if (!json.is_string()) fail_kind(name, "one of " + type_name<T>(), json);
    for (const auto& [known, text] : enum_names(value)) {
      if (json.as_string() != text) continue;
      value = known;
      return;
    }
    fail_kind(name, "one of " + type_name<T>(), json);
  } else {
    read_value(value, json, name);
  }
}

template <class Config>
void collect_fields(const Config& config, const std::string& prefix, std::vector<FieldInfo>& fields) {
  visit_fields(config, [&](const char* name, const auto& field, const char* help) {
    using T = std::remove_cvref_t<decltype(field)>;
    if constexpr (FieldStruct<const T>) {
      collect_fields(field, joined(prefix, name), fields);
    } else {
      fields.push_back({joined(prefix, name), type_name<T>(), help, to_json(field)});
    }
  });
}

}  // namespace config_detail

template <class Config>
Json config_to_json(const Config& config) {
  Json json = Json::object();
  visit_fields(config, [&](const char* name, const auto& field, const char*) {
    json.as_object().emplace_back(name, config_detail::to_json(field));
  });
  return json;
}

template <class Config>
void config_from_json(Config& config, const Json& json) {
  Config changed = config;
  config_detail::struct_from_json(changed, json, "");
  config = std::move(changed);
}

template <class Config>
void check_ranges(const Config& config, std::string_view prefix, std::span<const NumberRange> ranges) {
  visit_fields(config, [&](const char* name, const auto& field, const char*) {
    using T = std::remove_cvref_t<decltype(field)>;
    const auto check = [&](auto number) {
      config_detail::check_range(prefix, name, static_cast<double>(number), fmt::format("{}", number), ranges);
    };
    if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, double>) {
      check(field);
    } else if constexpr (std::is_same_v<T, std::optional<int64_t>> || std::is_same_v<T, std::optional<double>>) {
      if (field) check(*field);
    }
  });
}

template <class Config>
std::vector<FieldInfo> config_fields(const Config& config) {
  std::vector<FieldInfo> fields;
  config_detail::collect_fields(config, "", fields);
  return fields;
}

template <class Config>
void config_set(Config& config, std::string_view assignment) {
  const size_t equals = assignment.find('=');
  LOAM_CHECK(equals != std::string_view::npos && equals > 0, "setting \"{}\": expected name=value", assignment);
  const std::string name(assignment.substr(0, equals));
  std::vector<std::string> known;
  bool found = false, is_text = false;
  for (const FieldInfo& field : config_fields(config)) {
    found |= field.name == name || field.name.starts_with(name + ".");
    is_text |= field.name == name && field.type == "text";
    known.push_back(field.name);
  }
  if (!found) config_detail::fail_unknown(name, known);
  config_from_json(config,
                   config_detail::nested(name, config_detail::assigned_value(assignment.substr(equals + 1), is_text)));
}

}  // namespace loam
