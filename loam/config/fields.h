// Configuration structs are plain; one list of their fields serves JSON, command line, documentation and checkpoint
// metadata:
//
//   struct OptimConfig { double lr = 3e-4; ... };
//   template <class Config, class Visitor>
//     requires FieldsOf<Config, OptimConfig>
//   void visit_fields(Config& c, Visitor&& visit) { visit("lr", c.lr, "peak learning rate"); ... }
//
// A field is a bool, int64_t, double, std::string, an enum with enum_names(), an optional of these (null where it is
// not set), another such struct, or a vector of any of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "loam/base/error.h"
#include "loam/base/json.h"
#include "loam/base/suggest.h"

namespace loam {

template <class Config, class Struct>
concept FieldsOf = std::is_same_v<std::remove_const_t<Config>, Struct>;

struct FieldInfo {
  std::string name;  // with dots: "optimizer.lr"
  std::string type;  // "number", "integer", "true|false", "text", "cosine|wsd", "list of {match, lr_scale}", ...
  std::string help;
  Json value;  // the default
};

// The struct as JSON, every field present, in the order of the list.
template <class Config>
Json config_to_json(const Config& config);

// Sets the fields that `json` has and leaves the others. Error{kInvalidArgument} for an unknown key (naming the nearest
// one), a key that is there twice, a value of the wrong kind or out of the type's range; the message gives the dotted
// name. `config` is unchanged on error.
template <class Config>
void config_from_json(Config& config, const Json& json);

// One setting, "optimizer.lr=3e-4": the value is read as JSON if it parses as such, else as text.
template <class Config>
void config_set(Config& config, std::string_view assignment);

// All fields, flattened.
template <class Config>
std::vector<FieldInfo> config_fields(const Config& config);

// The values that a number of a configuration may take.
struct NumberRange {
  std::string_view name;  // without the struct's own prefix
  double low, high;
  bool above_low = false;  // `low` itself does not count
};

// The struct's own numbers against `ranges`, which must have one for each; those of nested structs are theirs to check,
// and an optional one that is not set is none.
// Error{kInvalidArgument} that gives `prefix`.name, the value, and the bound that it breaks; NaN and infinities break
// every range.
template <class Config>
void check_ranges(const Config& config, std::string_view prefix, std::span<const NumberRange> ranges);

// Lines "optimizer.lr: 0.0003 -> 0.001" for the settings that differ, for refusing a changed configuration on resume.
// Those of a struct in a list are "data.sources[1].weight"; null or nothing is "not set", an empty list "none".
std::vector<std::string> config_diff(const Json& before, const Json& after);

}  // namespace loam

#include "loam/config/fields_impl.h"
