#include "loam/model/families/rope_settings.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "loam/base/log.h"
#include "loam/base/utf8.h"
#include "loam/config/rope_scaling.h"

namespace loam {
namespace {

constexpr const char* kOriginal = "original_max_position_embeddings";

RopeScalingKind kind_of(const std::string& key, const std::string& type) {
  if (type == "default" || type == "none") return RopeScalingKind::none;
  if (type == "linear") return RopeScalingKind::linear;
  if (type == "llama3") return RopeScalingKind::llama3;
  if (type == "yarn") return RopeScalingKind::yarn;
  if (type == "longrope" || type == "su") return RopeScalingKind::longrope;
  if (type == "dynamic") {
    // It stretches sequences longer than max_position_embeddings, and nothing longer is computed here.
    log_warn("config.json: \"{}\": dynamic scaling has no effect up to max_position_embeddings", key);
    return RopeScalingKind::none;
  }
  fail(ErrorCode::kBadFormat, "\"{}\": scaled rotary positions ({}) are not supported", key,
       printable(type, false, 60));
}

std::string type_of(const std::string& key, const Json& rope) {
  for (const char* name : {"rope_type", "type"}) {
    const Json* type = rope.find(name);
    if (!type || type->is_null()) continue;
    if (!type->is_string()) fail(ErrorCode::kBadFormat, "\"{}\": \"{}\" is no text", key, name);
    return type->as_string();
  }
  return "default";
}

// Every key that has a meaning with some type; others may change what is computed.
void check_keys(const std::string& key, const Json& rope, const std::string& type) {
  constexpr std::string_view kEvery[] = {"rope_type", "type", "rope_theta", "partial_rotary_factor", kOriginal};
  std::vector<std::string_view> known(std::begin(kEvery), std::end(kEvery));
  const auto knows = [&](std::initializer_list<std::string_view> names) { known.insert(known.end(), names); };
  if (type == "llama3") knows({"factor", "low_freq_factor", "high_freq_factor"});
  if (type == "yarn") {
    knows({"factor", "beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate"});
  }
  if (type == "longrope" || type == "su") knows({"factor", "attention_factor", "short_factor", "long_factor"});
  if (type == "linear" || type == "dynamic") knows({"factor"});
  for (const auto& [name, value] : rope.as_object()) {
    if (value.is_null() || std::find(known.begin(), known.end(), name) != known.end()) continue;
    if (name == "factor" && value.is_number() && value.as_double() == 1) continue;
    fail(ErrorCode::kBadFormat, "\"{}\": \"{}\" is not supported with type {}", key, printable(name, false, 100),
         printable(type, false, 60));
  }
}

// A number that is there; 0 where it is not.
double not_negative(Settings& s, const std::string& key, const char* name) {
  const double value = s.number(name, 0);
  if (value < 0 || !std::isfinite(value)) fail(ErrorCode::kBadFormat, "\"{}\": \"{}\" is {}", key, name, value);
  return value;
}

// A number above 0 that is there; 0 where it is not.
double positive(Settings& s, const std::string& key, const char* name) {
  const double value = not_negative(s, key, name);
  if (value == 0 && s.value(name)) fail(ErrorCode::kBadFormat, "\"{}\": \"{}\" is 0", key, name);
  return value;
}

double needed(Settings& s, const std::string& key, const char* name) {
  const double value = positive(s, key, name);
  if (value == 0) fail(ErrorCode::kBadFormat, "\"{}\": \"{}\" is missing", key, name);
  return value;
}

void read_yarn(Settings& s, const std::string& key, RopeScaling& scaling) {
  if (const double fast = not_negative(s, key, "beta_fast")) scaling.beta_fast = fast;
  if (const double slow = not_negative(s, key, "beta_slow")) scaling.beta_slow = slow;
  scaling.truncate = s.flag("truncate", true);
  scaling.attention_factor = positive(s, key, "attention_factor");
  const double all = not_negative(s, key, "mscale_all_dim"), some = not_negative(s, key, "mscale");
  if (scaling.attention_factor == 0 && all > 0 && some > 0) {
    scaling.attention_factor = yarn_magnitude(scaling.factor, some) / yarn_magnitude(scaling.factor, all);
  }
}

std::vector<double> read_factors(Settings& s, const std::string& key, const char* name) {
  const Json* list = s.value(name);
  if (!list || !list->is_array()) fail(ErrorCode::kBadFormat, "\"{}\": \"{}\" is no list", key, name);
  std::vector<double> factors;
  for (const Json& factor : list->as_array()) {
    if (!factor.is_number()) fail(ErrorCode::kBadFormat, "\"{}\": \"{}\" has what is no number", key, name);
    factors.push_back(factor.as_double());
  }
  return factors;
}

}  // namespace

void read_rope_object(const std::string& key, const Json& rope, ModelConfig& c) {
  if (!rope.is_object()) fail(ErrorCode::kBadFormat, "\"{}\": expected an object", key);
  const std::string type = type_of(key, rope);
  check_keys(key, rope, type);
  Settings s(rope);
  RopeScaling& scaling = c.rope_scaling;
  scaling.kind = kind_of(key, type);
  if (scaling.kind == RopeScalingKind::none) return;
  const int64_t original = scaling.original_context > 0 ? scaling.original_context : s.integer(kOriginal, 0);
  scaling.original_context = original > 0 ? original : c.context_length;
  const double stretch = static_cast<double>(c.context_length) / static_cast<double>(scaling.original_context);
  const bool may_lack = scaling.kind == RopeScalingKind::yarn || scaling.kind == RopeScalingKind::longrope;
  scaling.factor = may_lack ? positive(s, key, "factor") : needed(s, key, "factor");
  if (scaling.factor == 0) scaling.factor = std::max(stretch, 1.0);
  if (scaling.kind == RopeScalingKind::llama3) {
    scaling.low_freq_factor = needed(s, key, "low_freq_factor");
    scaling.high_freq_factor = needed(s, key, "high_freq_factor");
  } else if (scaling.kind == RopeScalingKind::yarn) {
    read_yarn(s, key, scaling);
  } else if (scaling.kind == RopeScalingKind::longrope) {
    scaling.attention_factor = positive(s, key, "attention_factor");
    scaling.short_factors = read_factors(s, key, "short_factor");
    scaling.long_factors = read_factors(s, key, "long_factor");
  } else {
    scaling.original_context = 0;
  }
}

namespace {

// What one place says of positions: the top of the file and one of its objects.
struct StatedRope {
  std::string key;
  double theta = 0, partial = 1;
  RopeScaling scaling;
};

StatedRope stated_rope(const std::string& key, const Json& rope, Settings& top, ModelConfig c,
                       const RopeDefaults& defaults) {
  Settings inner(rope);
  const auto number = [&](const char* name, double fallback) { return inner.number(name, top.number(name, fallback)); };
  StatedRope stated{
      key, number("rope_theta", defaults.theta), number("partial_rotary_factor", defaults.partial.value_or(1)), {}};
  if (const double above = top.number("rope_theta", stated.theta); above != stated.theta) {
    fail(ErrorCode::kBadFormat, "\"rope_theta\" is {}, but \"{}.rope_theta\" is {}", above, key, stated.theta);
  }
  read_rope_object(key, rope, c);
  if (c.rope_scaling.kind != RopeScalingKind::none) stated.scaling = c.rope_scaling;
  return stated;
}

bool same(const StatedRope& a, const StatedRope& b) {
  return a.theta == b.theta && a.partial == b.partial && config_to_json(a.scaling) == config_to_json(b.scaling);
}

}  // namespace

void read_rope(Settings& s, ModelConfig& c, const RopeDefaults& defaults) {
  c.rope_scaling.original_context = std::max<int64_t>(s.integer(kOriginal, defaults.original_context), 0);
  std::optional<StatedRope> found;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* rope = s.value(key);
    if (!rope) continue;
    if (!rope->is_object()) fail(ErrorCode::kBadFormat, "\"{}\": expected an object", key);
    if (rope->as_object().empty()) continue;
    const StatedRope stated = stated_rope(key, *rope, s, c, defaults);
    if (found && !same(*found, stated)) {
      fail(ErrorCode::kBadFormat,
           "\"{}\" and \"{}\" do not say the same; transformers would take \"rope_scaling\" alone", found->key, key);
    }
    found = stated;
  }
  if (!found) found = stated_rope("", Json::object(), s, c, defaults);
  c.rope_scaling = found->scaling;
  c.rope_theta = found->theta;
  if (!(found->partial > 0 && found->partial <= 1) || (found->partial != 1 && !defaults.partial)) {
    fail(ErrorCode::kBadFormat, "\"partial_rotary_factor\": {} is not supported", found->partial);
  }
  const int64_t head_dim = c.head_dim > 0 ? c.head_dim : c.dim / std::max<int64_t>(c.heads, 1);
  if (head_dim < 1 || head_dim > 4096)
    fail(ErrorCode::kBadFormat, "\"head_dim\": heads of {} elements are not supported", head_dim);
  c.rope_dim = static_cast<int64_t>(static_cast<double>(head_dim) * found->partial);
}

Json rope_object(const ModelConfig& c) {
  const RopeScaling& s = c.rope_scaling;
  Json rope = Json::object();
  double theta = c.rope_theta;
  const auto list = [](const std::vector<double>& factors) {
    Json json = Json::array();
    for (const double factor : factors) json.push_back(factor);
    return json;
  };
  rope["rope_type"] = "default";
  switch (s.kind) {
    case RopeScalingKind::none:
      break;
    case RopeScalingKind::ntk:  // a plain rotation with another base
      theta = ntk_theta(c.rope_theta, c.rope_dim, c.rope_scaling.factor);
      break;
    case RopeScalingKind::linear:
      rope["rope_type"] = "linear";
      break;
    case RopeScalingKind::llama3:
      rope["rope_type"] = "llama3";
      rope["low_freq_factor"] = s.low_freq_factor;
      rope["high_freq_factor"] = s.high_freq_factor;
      break;
    case RopeScalingKind::yarn:
      rope["rope_type"] = "yarn";
      rope["beta_fast"] = s.beta_fast;
      rope["beta_slow"] = s.beta_slow;
      rope["truncate"] = s.truncate;
      break;
    case RopeScalingKind::longrope:
      rope["rope_type"] = "longrope";
      rope["short_factor"] = list(s.short_factors);
      rope["long_factor"] = list(s.long_factors);
      break;
  }
  rope["rope_theta"] = theta;
  if (s.kind != RopeScalingKind::none && s.kind != RopeScalingKind::ntk) {
    rope["factor"] = s.factor;
    if (s.original_context > 0) rope[kOriginal] = s.original_context;
    if (s.attention_factor > 0) rope["attention_factor"] = s.attention_factor;
  }
  if (c.rope_dim > 0 && c.rope_dim != c.head_dim) {
    rope["partial_rotary_factor"] = static_cast<double>(c.rope_dim) / static_cast<double>(c.head_dim);
  }
  return rope;
}

void write_rope(Json& json, const ModelConfig& c) {
  const Json rope = rope_object(c);
  json["rope_theta"] = rope.at("rope_theta");
  json["rope_scaling"] = rope.at("rope_type") == Json("default") ? Json() : rope;
  json["rope_parameters"] = rope;
  if (const Json* partial = rope.find("partial_rotary_factor")) json["partial_rotary_factor"] = *partial;
}

int64_t read_window(const Json& json, Settings& s, int64_t absent) {
  if (!s.value("sliding_window")) return json.find("sliding_window") ? 0 : absent;
  const int64_t window = s.integer("sliding_window", 0);
  if (window < 1) fail(ErrorCode::kBadFormat, "\"sliding_window\" is {}; null means none", window);
  return window;
}

void read_windows(Settings& s, ModelConfig& c, int64_t window, const std::function<bool(int64_t layer)>& has_window) {
  c.window = window;
  c.attention_spans.clear();
  const Json* types = s.value("layer_types");
  if (!types) {
    for (int64_t layer = 0; window > 0 && layer < c.layers; ++layer) {
      c.attention_spans.push_back(has_window(layer) ? AttentionSpan::window : AttentionSpan::full);
    }
    return;
  }
  if (!types->is_array() || static_cast<int64_t>(types->as_array().size()) != c.layers) {
    fail(ErrorCode::kBadFormat, "\"layer_types\": expected a list of {} types", c.layers);
  }
  bool any = false;
  for (const Json& type : types->as_array()) {
    const bool windowed = type == Json("sliding_attention");
    if (!windowed && type != Json("full_attention")) {
      fail(ErrorCode::kBadFormat, "\"layer_types\": {} is not supported", printable(type.dump(), false, 60));
    }
    if (windowed && window == 0) fail(ErrorCode::kBadFormat, "\"layer_types\" has windows without \"sliding_window\"");
    c.attention_spans.push_back(windowed ? AttentionSpan::window : AttentionSpan::full);
    any |= windowed;
  }
  if (!any) c.window = 0;
}

Json layer_types(const ModelConfig& c) {
  Json types = Json::array();
  for (int64_t layer = 0; layer < c.layers; ++layer) {
    types.push_back(attention_span(c, layer) == AttentionSpan::window ? "sliding_attention" : "full_attention");
  }
  return types;
}

}  // namespace loam
