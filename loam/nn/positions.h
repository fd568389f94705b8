// How positions enter a model: the tables that its layers share. Legend: H heads, R rotated elements of a head, C
// width, T context length.
#pragma once

#include "loam/config/model_config.h"
#include "loam/ops/attention.h"

namespace loam {

// The frequencies of pair k = 0 .. R/2 - 1 are theta^(-2k/R) (Su et al. 2021), and with RopeScaling
//   linear    divided by the factor (Chen et al. 2023, "position interpolation")
//   ntk       with theta * factor^(R / (R - 2)) for theta (NTK-aware scaling, bloc97 2023)
//   llama3    divided where a wave is longer than original_context / low_freq_factor, kept where it is shorter than
//             original_context / high_freq_factor, and between the two a mean (Llama 3.1)
//   yarn      divided where a pair turns less than beta_slow times over the original context, kept where it turns more
//             than beta_fast times, and between the two a mean; rotated vectors times 0.1 ln(factor) + 1 (Peng et al.
//             2023)
//   longrope  divided by long_factors[k], or short_factors[k] if the model's context is at most the original one;
//             rotated vectors times sqrt(1 + ln(factor) / ln(original_context)) (Ding et al. 2024)
// computed in double. f32 [R/2].
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
