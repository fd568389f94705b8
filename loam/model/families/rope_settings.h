// Rotary positions and windows in config.json, as most families of transformers 4 and 5 write them.
#pragma once

#include <functional>
#include <optional>

#include "loam/model/families/settings.h"

namespace loam {

// Reads rope_theta, rope_scaling (transformers 4), rope_parameters (5), partial_rotary_factor and
// original_max_position_embeddings into `c`, whose sizes are there; `defaults` where the keys are absent.
struct RopeDefaults {
  double theta = 10000;
  std::optional<double> partial;  // of families that may rotate a part of each head; the others refuse to
  int64_t original_context = 0;
};
void read_rope(Settings& s, ModelConfig& c, const RopeDefaults& defaults = {});
// One such object, "rope_parameters" or a part of it: `key` for messages.
void read_rope_object(const std::string& key, const Json& rope, ModelConfig& c);
// Writes all of them.
void write_rope(Json& json, const ModelConfig& c);
Json rope_object(const ModelConfig& c);  // rope_parameters

// "sliding_window": 0 if it is null, `absent` if it is not there.
int64_t read_window(const Json& json, Settings& s, int64_t absent = 4096);
// Which layers have the window, from "layer_types" or, without it, `has_window(layer)`. `window` 0: none has.
void read_windows(Settings& s, ModelConfig& c, int64_t window, const std::function<bool(int64_t layer)>& has_window);
Json layer_types(const ModelConfig& c);

}  // namespace loam
