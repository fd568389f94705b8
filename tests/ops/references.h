// The ops in double, written for clarity: row-major arrays, one loop per axis.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "loam/kernels/activation.h"
#include "loam/kernels/rope.h"
#include "tests/harness/op_harness.h"

namespace loam::testing {

// x [N,I] times W [O,I] transposed, plus b [O] unless it is empty.
inline Values linear_reference(const Values& x, const Values& w, const Values& b, int64_t I) {
  const int64_t N = static_cast<int64_t>(x.size()) / I, O = static_cast<int64_t>(w.size()) / I;
  Values y(static_cast<size_t>(N * O));
  for (int64_t n = 0; n < N; ++n) {
    for (int64_t o = 0; o < O; ++o) {
      double sum = b.empty() ? 0 : b[static_cast<size_t>(o)];
      for (int64_t i = 0; i < I; ++i) sum += x[static_cast<size_t>(n * I + i)] * w[static_cast<size_t>(o * I + i)];
      y[static_cast<size_t>(n * O + o)] = sum;
    }
  }
  return y;
}

inline Values norm_reference(const Values& x, const Values& weight, const Values& bias, double eps, bool centred) {
  const size_t C = weight.size();
  Values y(x.size());
  for (size_t row = 0; row < x.size(); row += C) {
    double mean = 0, square = 0;
    for (size_t c = 0; centred && c < C; ++c) mean += x[row + c] / static_cast<double>(C);
    for (size_t c = 0; c < C; ++c) square += (x[row + c] - mean) * (x[row + c] - mean) / static_cast<double>(C);
    const double rstd = 1 / std::sqrt(square + eps);
    for (size_t c = 0; c < C; ++c) {
      y[row + c] = (x[row + c] - mean) * rstd * weight[c] + (bias.empty() ? 0 : bias[c]);
    }
  }
  return y;
}

inline double activation_reference(Activation kind, double x) {
  switch (kind) {
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::gelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::relu:
      return x > 0 ? x : 0;
    case Activation::relu_squared:
      return x > 0 ? x * x : 0;
  }
  return 0;
}

// x [N,H,D], rotated by positions [N].
inline Values rope_reference(const Values& x, const std::vector<int32_t>& positions, int64_t H, int64_t D, int64_t R,
                             double theta, RopeLayout layout) {
  Values y = x;
  for (size_t n = 0; n < positions.size(); ++n) {
    for (int64_t h = 0; h < H; ++h) {
      for (int64_t k = 0; k < R / 2; ++k) {
        const int64_t head = (static_cast<int64_t>(n) * H + h) * D;
        const bool half = layout == RopeLayout::half;
        const auto a = static_cast<size_t>(head + (half ? k : 2 * k)), b = a + static_cast<size_t>(half ? R / 2 : 1);
        const double angle = positions[n] * std::pow(theta, -2.0 * static_cast<double>(k) / static_cast<double>(R));
        y[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
        y[b] = x[a] * std::sin(angle) + x[b] * std::cos(angle);
      }
    }
  }
  return y;
}

struct AttentionSizes {
  int64_t B, T, S, H, K, D;
};

// q [B,T,H,D], k and v [B,S,K,D]; `sees(b, i, j)` says whether query i sees key j.
template <class Sees>
Values attention_reference(const Values& q, const Values& k, const Values& v, const AttentionSizes& z, double scale,
                           const Sees& sees) {
  Values out(q.size(), 0.0);
  for (int64_t b = 0; b < z.B; ++b) {
    for (int64_t i = 0; i < z.T; ++i) {
      for (int64_t h = 0; h < z.H; ++h) {
        const size_t query = static_cast<size_t>(((b * z.T + i) * z.H + h) * z.D);
        auto key = [&](int64_t j) { return static_cast<size_t>(((b * z.S + j) * z.K + h / (z.H / z.K)) * z.D); };
        Values p(static_cast<size_t>(z.S), 0.0);
        double max = -INFINITY, sum = 0;
        for (int64_t j = 0; j < z.S; ++j) {
          if (!sees(b, i, j)) continue;
          double score = 0;
          for (size_t d = 0; d < static_cast<size_t>(z.D); ++d) score += q[query + d] * k[key(j) + d];
          p[static_cast<size_t>(j)] = score * scale;
          max = std::max(max, score * scale);
        }
        for (int64_t j = 0; j < z.S; ++j) {
          double& pj = p[static_cast<size_t>(j)];
          pj = sees(b, i, j) ? std::exp(pj - max) : 0;
          sum += pj;
        }
        for (int64_t j = 0; j < z.S && sum > 0; ++j) {
          for (size_t d = 0; d < static_cast<size_t>(z.D); ++d) {
            out[query + d] += p[static_cast<size_t>(j)] / sum * v[key(j) + d];
          }
        }
      }
    }
  }
  return out;
}

// Of each row of hidden W^T: log-probability of its target (0 for -1), log-sum-exp, entropy.
struct LogProbReference {
  Values logp, lse, entropy;
};
inline LogProbReference log_prob_reference(const Values& logits, const std::vector<int32_t>& targets) {
  const size_t N = targets.size(), V = logits.size() / N;
  LogProbReference out{Values(N), Values(N), Values(N)};
  for (size_t n = 0; n < N; ++n) {
    const double* row = logits.data() + n * V;
    double max = -INFINITY, sum = 0;
    for (size_t v = 0; v < V; ++v) max = std::max(max, row[v]);
    for (size_t v = 0; v < V; ++v) sum += std::exp(row[v] - max);
    out.lse[n] = max + std::log(sum);
    out.logp[n] = targets[n] < 0 ? 0 : row[targets[n]] - out.lse[n];
    for (size_t v = 0; v < V; ++v) out.entropy[n] += std::exp(row[v] - out.lse[n]) * (out.lse[n] - row[v]);
  }
  return out;
}

inline LogProbReference log_prob_reference(const Values& hidden, const Values& w, const std::vector<int32_t>& targets,
                                           int64_t C) {
  return log_prob_reference(linear_reference(hidden, w, {}, C), targets);
}

inline Tensor ints(const ExecContext& ctx, const Shape& shape, const std::vector<int32_t>& values) {
  return Tensor::from<int32_t>(*ctx.arena, shape, values);
}

}  // namespace loam::testing
