// Attention and its reference, which works in f64 on the whole matrix of scores. Legend as in attention.h.
#pragma once

#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/kernel_testing.h"

namespace loam::testing {

constexpr double kInf = std::numeric_limits<double>::infinity();

constexpr uint64_t kSeed = 99, kSite = 7;  // of dropout

struct Case {
  int64_t B = 1, T = 1, S = 1, H = 1, K = 1, D = 8;
  bool causal = true;
  std::vector<int32_t> first_key = {};  // [B,T] or empty
  std::vector<int32_t> key_count = {};  // [B] or empty
  int64_t window = 0;
  double softcap = 0;
  std::vector<float> slopes = {};  // [H] or empty
  double dropout = 0;
  bool aligned = false;   // every row is at a multiple of 16 bytes
  bool max_logit = true;  // is asked for
  Numerics numerics = Numerics::fast;
  int64_t padding(int64_t elements) const { return aligned ? 8 * elements : elements; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(D)); }
  int64_t position(int64_t b, int64_t t) const {  // of a query among the keys
    return t + (key_count.empty() ? S : int64_t{key_count[static_cast<size_t>(b)]}) - T;
  }
  bool sees(int64_t b, int64_t t, int64_t s) const {
    if (causal && s > position(b, t)) return false;
    if (window > 0 && s <= position(b, t) - window) return false;
    if (!first_key.empty() && s < first_key[static_cast<size_t>(b * T + t)]) return false;
    return key_count.empty() || s < key_count[static_cast<size_t>(b)];
  }
  std::string name() const {
    return fmt::format(
        "B{} T{} S{} H{} K{} D{} causal {} first {} count {} window {} cap {} slopes {} dropout {} "
        "aligned {} max_logit {} level {}",
        B, T, S, H, K, D, causal, first_key.size(), key_count.size(), window, softcap, slopes.size(), dropout, aligned,
        max_logit, static_cast<int>(numerics));
  }
  double logit(double dot, int64_t b, int64_t t, int64_t s, int64_t h) const {
    double x = scale() * dot;
    if (softcap > 0) x = softcap * std::tanh(x / softcap);
    if (!slopes.empty())
      x -= static_cast<double>(slopes[static_cast<size_t>(h)]) * static_cast<double>(position(b, t) - s);
    return x;
  }
  // By what the logit grows with scale() * dot.
  double slope(double dot) const {
    const double th = softcap > 0 ? std::tanh(scale() * dot / softcap) : 0;
    return 1 - th * th;
  }
  // Dropout's factor of a weight, by the definition in loam/kernels/dropout.h: Philox's number of (query, key).
  double kept(int64_t b, int64_t t, int64_t s, int64_t h) const {
    if (dropout == 0) return 1;
    const PhiloxStream stream{kSeed ^ kSite * 0x9E3779B97F4A7C15u, static_cast<uint64_t>(b)};
    const uint64_t block = (static_cast<uint64_t>(h * T + t) << 24) + static_cast<uint64_t>(s / 4);
    return stream.bits(4 * block + static_cast<uint64_t>(s % 4)) < dropout * 0x1p32 ? 0 : 1 / (1 - dropout);
  }
};

// [B,length,heads,D] as columns [first, first + heads * D) of a matrix with a row for each position.
inline View heads_view(const Matrix& m, int64_t batch, int64_t heads, int64_t width, int64_t first = 0) {
  const View flat = m.view();
  const int64_t length = flat.dim(0) / batch, stride = flat.stride(0);
  char* data = static_cast<char*>(flat.data) + first * dtype_size(flat.dtype);
  return {data, flat.dtype, {}, {batch, length, heads, width}, {length * stride, stride, width, 1}};
}

// Inputs, outputs and gradients of one case. Keys and values are slices of one matrix; every row has padding.
struct Problem {
  Problem(const Case& c, DType dtype, uint64_t seed, double size = 1)
      : test(c),
        q(dtype, c.B * c.T, c.H * c.D, c.padding(3), random_values(c.B * c.T * c.H * c.D, seed, size)),
        kv(dtype, c.B * c.S, 2 * c.K * c.D, c.padding(5), random_values(c.B * c.S * 2 * c.K * c.D, seed + 1, size)),
        out(dtype, c.B * c.T, c.H * c.D, c.padding(1)),
        d_out(dtype, c.B * c.T, c.H * c.D, 0, random_values(c.B * c.T * c.H * c.D, seed + 2)),
        lse(DType::f32, c.B * c.H, c.T, 2),
        max_logit(DType::f32, c.B * c.H, c.T, 1),
        d_q(dtype, c.B * c.T, c.H * c.D, c.padding(4)),
        d_kv(dtype, c.B * c.S, 2 * c.K * c.D, c.padding(7)) {}

  AttentionMask mask() {
    AttentionMask m;
    m.causal = test.causal;
    m.window = test.window;
    if (!test.first_key.empty()) m.first_key = {test.first_key.data(), DType::i32, {}, {test.B, test.T}, {test.T, 1}};
    if (!test.key_count.empty()) m.key_count = {test.key_count.data(), DType::i32, {}, {test.B}, {1}};
    return m;
  }
  AttentionLogits logits() {
    AttentionLogits l;
    l.scale = static_cast<float>(test.scale());
    l.softcap = static_cast<float>(test.softcap);
    if (!test.slopes.empty()) l.slopes = {test.slopes.data(), DType::f32, {}, {test.H}, {1}};
    return l;
  }
  AttentionDropout dropout() const { return {static_cast<float>(test.dropout), kSite}; }
  View k_view(const Matrix& m) const { return heads_view(m, test.B, test.K, test.D); }
  View v_view(const Matrix& m) const { return heads_view(m, test.B, test.K, test.D, test.K * test.D); }
  View q_view(const Matrix& m) const { return heads_view(m, test.B, test.H, test.D); }
  View statistic_view(const Matrix& m) const {
    const int64_t stride = m.view().stride(0);
    return {m.view().data, DType::f32, {}, {test.B, test.H, test.T}, {test.H * stride, stride, 1}};
  }
  void forward(int threads = 1) {
    const auto resources = cpu(threads);
    ExecContext ctx = resources.context;
    ctx.seed = kSeed, ctx.numerics = test.numerics;
    ctx.kernels->attention_fwd(ctx, {q_view(q), k_view(kv), v_view(kv), mask(), logits(), dropout(), q_view(out),
                                     statistic_view(lse), test.max_logit ? statistic_view(max_logit) : View()});
  }
  void backward(int threads = 1, bool accumulate = false) {
    const auto resources = cpu(threads);
    ExecContext ctx = resources.context;
    ctx.seed = kSeed, ctx.numerics = test.numerics;
    ctx.kernels->attention_bwd(
        ctx, {q_view(q), k_view(kv), v_view(kv), q_view(out), statistic_view(lse), q_view(d_out), mask(), logits(),
              dropout(), q_view(d_q), k_view(d_kv), v_view(d_kv), accumulate, accumulate, accumulate});
  }
  bool intact() const {
    return q.intact() && kv.intact() && out.intact() && lse.intact() && d_q.intact() && d_kv.intact();
  }

  Case test;
  Matrix q, kv, out, d_out, lse, max_logit, d_q, d_kv;
};

// Results in f64, and beside each gradient the same sum over absolute values, to which its rounding error is
// proportional.
struct Reference {
  Values out, lse, max_logit, d_q, d_kv, size_q, size_kv;
};

inline Reference reference(const Problem& p) {
  const Case& c = p.test;
  const Values q = p.q.values(), kv = p.kv.values(), d_out = p.d_out.values();
  Reference ref;
  ref.out.resize(q.size()), ref.d_q.resize(q.size()), ref.size_q.resize(q.size());
  ref.lse.resize(static_cast<size_t>(c.B * c.H * c.T));
  ref.max_logit.resize(ref.lse.size());
  ref.d_kv.resize(kv.size()), ref.size_kv.resize(kv.size());
  const auto row = [&](int64_t b, int64_t t, int64_t h) {
    return static_cast<size_t>(((b * c.T + t) * c.H + h) * c.D);
  };
  for (int64_t b = 0; b < c.B; ++b) {
    for (int64_t h = 0; h < c.H; ++h) {
      const int64_t head = h / (c.H / c.K);
      const auto key = [&](int64_t s) {
        return static_cast<size_t>((b * c.S + s) * 2 * c.K + head) * static_cast<size_t>(c.D);
      };
      const auto width = static_cast<size_t>(c.D), to_value = static_cast<size_t>(c.K * c.D);
      for (int64_t t = 0; t < c.T; ++t) {
        const size_t i = row(b, t, h);
        std::vector<double> prob(static_cast<size_t>(c.S), 0.0), dots(prob.size());
        double most = -kInf, sum = 0;
        for (int64_t s = 0; s < c.S; ++s) {
          double score = 0;
          for (size_t d = 0; d < width; ++d) score += q[i + d] * kv[key(s) + d];
          dots[static_cast<size_t>(s)] = score;
          prob[static_cast<size_t>(s)] = c.logit(score, b, t, s, h);
          if (c.sees(b, t, s)) most = std::max(most, prob[static_cast<size_t>(s)]);
        }
        for (int64_t s = 0; s < c.S; ++s) {
          double& x = prob[static_cast<size_t>(s)];
          x = c.sees(b, t, s) ? std::exp(x - most) : 0.0;
          sum += x;
        }
        ref.lse[static_cast<size_t>((b * c.H + h) * c.T + t)] = sum > 0 ? most + std::log(sum) : -kInf;
        ref.max_logit[static_cast<size_t>((b * c.H + h) * c.T + t)] = most;
        if (sum == 0) continue;
        double dot = 0, dot_size = 0;
        for (int64_t s = 0; s < c.S; ++s) {
          prob[static_cast<size_t>(s)] /= sum;
          for (size_t d = 0; d < width; ++d) {
            if (prob[static_cast<size_t>(s)] > 0)
              ref.out[i + d] += c.kept(b, t, s, h) * prob[static_cast<size_t>(s)] * kv[key(s) + to_value + d];
          }
        }
        for (size_t d = 0; d < width; ++d) {
          dot += ref.out[i + d] * d_out[i + d];
          dot_size += std::abs(ref.out[i + d] * d_out[i + d]);
        }
        for (int64_t s = 0; s < c.S; ++s) {
          const double ps = prob[static_cast<size_t>(s)];
          if (!c.sees(b, t, s)) continue;
          double d_p = 0, d_p_size = 0;
          for (size_t d = 0; d < width; ++d) {
            d_p += d_out[i + d] * kv[key(s) + to_value + d];
            d_p_size += std::abs(d_out[i + d] * kv[key(s) + to_value + d]);
          }
          const double kept = c.kept(b, t, s, h), slope = c.scale() * ps * c.slope(dots[static_cast<size_t>(s)]);
          const double d_s = slope * (kept * d_p - dot), d_s_size = slope * (kept * d_p_size + dot_size);
          for (size_t d = 0; d < width; ++d) {
            ref.d_q[i + d] += d_s * kv[key(s) + d];
            ref.size_q[i + d] += d_s_size * std::abs(kv[key(s) + d]);
            ref.d_kv[key(s) + d] += d_s * q[i + d];
            ref.size_kv[key(s) + d] += d_s_size * std::abs(q[i + d]);
            ref.d_kv[key(s) + to_value + d] += kept * ps * d_out[i + d];
            ref.size_kv[key(s) + to_value + d] += kept * ps * std::abs(d_out[i + d]);
          }
        }
      }
    }
  }
  return ref;
}

// Rounding of f32 sums of n terms grows as sqrt(n); scores are of order 10 at most, so their error enters exp about
// tenfold. Then the rounding of the result.
inline double tolerance(const Case& c, DType dtype) {
  const double terms = std::sqrt(static_cast<double>(c.D)) + std::sqrt(static_cast<double>(c.S));
  return unit_roundoff(DType::f32) * 10 * (2 + terms) + (dtype == DType::f32 ? 0 : unit_roundoff(dtype));
}

inline void expect_within(const Values& actual, const Values& expected, const Values& size, double relative,
                          const std::string& what) {
  Values difference(actual.size());
  for (size_t i = 0; i < actual.size(); ++i) difference[i] = actual[i] - expected[i];
  EXPECT_LE(norm(difference), relative * norm(size)) << what;
}

inline void expect_matches(const Case& c, DType dtype, uint64_t seed) {
  SCOPED_TRACE(c.name() + " " + dtype_name(dtype));
  Problem p(c, dtype, seed);
  const Reference ref = reference(p);
  p.forward();
  p.backward();
  EXPECT_TRUE(p.intact());
  const double bound = tolerance(c, dtype);
  expect_close(p.out.values(), ref.out, bound, "out");
  const auto expect_statistic = [&](const Values& actual, const Values& expected) {
    for (size_t i = 0; i < actual.size(); ++i) {
      if (expected[i] == -kInf) {
        EXPECT_EQ(actual[i], -kInf);
      } else {
        EXPECT_NEAR(actual[i], expected[i], tolerance(c, DType::f32) * 10);
      }
    }
  };
  expect_statistic(p.lse.values(), ref.lse);
  if (c.max_logit) expect_statistic(p.max_logit.values(), ref.max_logit);
  // In 16 bits `out` is saved rounded and enters every gradient.
  const double gradient_bound = bound * 2;
  expect_within(p.d_q.values(), ref.d_q, ref.size_q, gradient_bound, "d_q");
  expect_within(p.d_kv.values(), ref.d_kv, ref.size_kv, gradient_bound, "d_k, d_v");
}

// Documents of the given lengths in a row, as first keys.
inline std::vector<int32_t> documents(const std::vector<int64_t>& lengths, int64_t total) {
  std::vector<int32_t> first;
  for (int64_t length : lengths) {
    const auto begin = static_cast<int32_t>(first.size());
    for (int64_t i = 0; i < length && static_cast<int64_t>(first.size()) < total; ++i) first.push_back(begin);
  }
  const auto begin = static_cast<int32_t>(first.size());
  while (static_cast<int64_t>(first.size()) < total) first.push_back(begin);
  return first;
}

}  // namespace loam::testing
