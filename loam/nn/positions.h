// How positions enter a model: the tables that its layers share. Legend: H heads, R rotated elements of a head, C
// width, T context length.
#pragma once

#include "loam/config/model_config.h"
#include "loam/ops/attention.h"

namespace loam {

// rope_frequencies() in f32 [R/2], and rope_magnitude() (loam/config/rope_scaling.h).
ops::Rotation make_rotation(const Context& ctx, int64_t dim, double theta, const RopeScaling& scaling,
                            int64_t context_length);

// Press et al. 2021: 2^(-8 i / H) for head i = 1 .. H if H is a power of two; else those of the power of two n below,
// then every second one of 2 n. f32 [H].
Tensor alibi_slopes(const Context& ctx, int64_t heads);

// Vaswani et al. 2017: sin(t / 10000^(2i/C)) at 2i and cos of the same at 2i + 1. [T,C] in `dtype`.
Tensor sinusoidal_table(const Context& ctx, int64_t length, int64_t dim, DType dtype);

struct PositionTables {
  ops::Rotation rotation, window_rotation;  // of layers without and with a window
  Tensor slopes, sinusoids;                 // each absent unless the model needs it

  PositionTables() = default;
  PositionTables(const Context& ctx, const ModelConfig& config, DType dtype);
};

}  // namespace loam
