// How rotary frequencies are stretched for contexts longer than those of pre-training: the formulas of RopeScaling, in
// double. Legend: R rotated elements of a head, k = 0 .. R/2 - 1 a pair of them, s the factor, L the original context.
#pragma once

#include <cstdint>
#include <vector>

#include "loam/config/model_config.h"

namespace loam {

// By what the frequency of each pair, theta^(-2k/R) (Su et al. 2021), is divided, of a derived configuration:
//   none      1
//   linear    s (Chen et al. 2023, "position interpolation", arXiv 2306.15595)
//   ntk       1, with ntk_theta() for theta
//   llama3    s where a wave is longer than L / low_freq_factor, 1 where it is shorter than L / high_freq_factor, and
//             between the two a mean of both frequencies (Llama 3.1, arXiv 2407.21783)
//   yarn      s where a pair turns less than beta_slow times over L, 1 where it turns more than beta_fast times, and
//             between the two a mean of both frequencies (Peng et al. 2023, arXiv 2309.00071, section 3.2)
//   longrope  long_factors[k], or short_factors[k] if context_length is at most L (Ding et al. 2024, arXiv 2402.13753)
std::vector<double> rope_stretches(int64_t dim, double theta, const RopeScaling& scaling, int64_t context_length);
std::vector<double> rope_frequencies(int64_t dim, double theta, const RopeScaling& scaling, int64_t context_length);

// theta * s^(R / (R - 2)): NTK-aware scaling (bloc97 2023), as in Peng et al. 2023, section 3.1.
double ntk_theta(double theta, int64_t dim, double factor);

// 0.1 mscale ln(s) + 1 (Peng et al. 2023, section 3.4; mscale as DeepSeek-V2's code has it).
double yarn_magnitude(double factor, double mscale = 1);

// By what rotated vectors are multiplied: attention_factor; where none is stated, yarn_magnitude(s) with yarn,
// sqrt(1 + ln(s) / ln(L)) with longrope (as Phi-3's code has it), and 1 with the others.
double rope_magnitude(const RopeScaling& scaling);

}  // namespace loam
