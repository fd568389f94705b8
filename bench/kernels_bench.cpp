// Legend: B rows of T tokens, N = B T, C width, H heads of D, F hidden width, V vocabulary.
#include "bench/kernels_bench.h"

#include <algorithm>
#include <vector>

#include "loam/base/clock.h"
#include "loam/base/philox.h"
#include "loam/kernels/cpu/gemm.h"
#include "loam/kernels/cpu/matmul_dnnl.h"
#include "loam/kernels/kernel_table.h"

namespace loam {
namespace {

constexpr int64_t B = 4, T = 256, N = B * T, C = 768, H = 12, D = C / H, F = 4 * C, V = 50257;
constexpr int64_t kGroup = int64_t{1} << 24;  // parameters of an optimizer group
constexpr int64_t kRotated = int64_t{256} << 20, kMostSets = 64;
constexpr size_t kNoise = 1 << 16;

struct Variant {
  const char* name;
  std::function<void(size_t set)> run;
};

class Bench {
 public:
  Bench(const ExecContext& ctx, const KernelsBenchOptions& options,
        const std::function<void(const KernelsBenchResult&)>& report)
      : ctx_(ctx), options_(options), report_(report), noise_(kNoise) {
    const PhiloxStream random{1, 1};
    for (size_t i = 0; i < noise_.size(); ++i) noise_[i] = static_cast<float>(random.normal(i));
  }

  void run() {
    matmuls("qkv", 3 * C);
    matmuls("out", C);
    matmuls("up", F);
    matmuls("down", C, F);
    head();
    elementwise();
    norms();
    activations();
    attention();
    embedding();
    cross_entropy();
    optimizer();
  }

 private:
  using Sets = std::vector<Tensor>;

  bool wanted(const std::string& op) const { return op.starts_with(options_.only); }

  // As many tensors of normal noise as rotation wants when one call moves `bytes` in all.
  Sets noise(const Shape& shape, DType dtype, int64_t bytes, float scale = 1) {
    Sets sets(static_cast<size_t>(std::clamp<int64_t>(kRotated / bytes, 1, kMostSets)));
    for (Tensor& t : sets) {
      t = ctx_.empty(shape, dtype);
      for (int64_t i = 0; i < t.numel(); ++i) {
        // A stride that is odd against the table's size, so that no two rows are alike.
        const float value = scale * noise_[static_cast<size_t>(i + i / 40961) % kNoise];
        visit_float(dtype, "noise", [&](auto type) { t.data<decltype(type)>()[i] = decltype(type)(value); });
      }
    }
    return sets;
  }
  Sets noise(const Shape& shape, int64_t bytes) { return noise(shape, options_.dtype, bytes); }
  Tensor vector(int64_t n) { return noise({n}, DType::f32, kRotated)[0]; }
  Tensor ids(int64_t n, int64_t limit) {
    const PhiloxStream random{1, 2};
    Tensor t = ctx_.empty({n}, DType::i32);
    for (int64_t i = 0; i < n; ++i) {
      t.data<int32_t>()[i] = static_cast<int32_t>(random.below(static_cast<uint64_t>(i), static_cast<uint64_t>(limit)));
    }
    return t;
  }
  int64_t size(int64_t elements) const { return elements * dtype_size(options_.dtype); }

  void measure(const std::string& op, size_t sets, double flops, int64_t bytes, const std::vector<Variant>& variants) {
    std::vector<std::vector<double>> seconds(variants.size());
    size_t set = 0;
    for (const Variant& v : variants) v.run(0);
    const Stopwatch total;
    const double limit = options_.seconds * static_cast<double>(variants.size());
    while (total.seconds() < limit || seconds[0].size() < 5) {
      for (size_t i = 0; i < variants.size(); ++i) {
        const Stopwatch watch;
        variants[i].run(set++ % sets);
        seconds[i].push_back(watch.seconds());
      }
    }
    for (size_t i = 0; i < variants.size(); ++i) {
      std::vector<double>& s = seconds[i];
      std::sort(s.begin(), s.end());
      report_({op, variants[i].name, s[s.size() / 2], s[0], flops, static_cast<double>(bytes),
               static_cast<int64_t>(s.size())});
    }
  }
  void measure(const std::string& op, size_t sets, int64_t bytes, std::function<void(size_t)> run) {
    measure(op, sets, 0, bytes, {{"table", std::move(run)}});
  }

  // args(set) describes one product.
  void matmul(const std::string& op, size_t sets, double flops, const std::function<MatmulArgs(size_t)>& args) {
    std::vector<Variant> variants = {{"table", [&](size_t i) { ctx_.kernels->matmul(ctx_, args(i)); }},
                                     {"gemm", [&](size_t i) { cpu::gemm(ctx_, args(i)); }}};
    if (cpu::dnnl_matmul(ctx_, args(0))) {
      variants.push_back({"dnnl", [&](size_t i) { cpu::dnnl_matmul(ctx_, args(i)); }});
    }
    measure(op, sets, flops, 0, variants);
  }

  // The three products of a linear layer of `out` from `in`.
  void matmuls(const std::string& name, int64_t out, int64_t in = C) {
    const double flops = 2.0 * static_cast<double>(N * in * out);
    const int64_t bytes = size(N * in + N * out + out * in);
    if (!wanted(name + "_fwd") && !wanted(name + "_dx") && !wanted(name + "_dw")) return;
    const Sets x = noise({N, in}, bytes), y = noise({N, out}, bytes), w = noise({out, in}, bytes);
    const Tensor bias = vector(out), d_w = noise({out, in}, DType::f32, kRotated)[0];
    if (wanted(name + "_fwd")) {
      matmul(name + "_fwd", x.size(), flops,
             [&](size_t i) { return MatmulArgs{.a = x[i], .b = w[i], .transpose_b = true, .c = y[i], .bias = bias}; });
    }
    if (wanted(name + "_dx")) {
      matmul(name + "_dx", x.size(), flops,
             [&](size_t i) { return MatmulArgs{.a = y[i], .b = w[i], .c = x[i], .bias = {}}; });
    }
    if (wanted(name + "_dw")) {
      matmul(name + "_dw", x.size(), flops, [&](size_t i) {
        return MatmulArgs{.a = y[i], .transpose_a = true, .b = x[i], .c = d_w, .bias = {}, .accumulate = true};
      });
    }
  }

  // The whole head, forward and backward, by chunks of rows; f32 logits.
  void head() {
    for (const int64_t rows : {64, 128, 256, 333, 512, 1024}) {
      const std::string op = fmt::format("head_rows_{}", rows);
      if (!wanted(op)) continue;
      const Tensor x = noise({N, C}, kRotated)[0], d_x = noise({N, C}, kRotated)[0];
      const Tensor w = noise({V, C}, options_.dtype, kRotated, 0.05f)[0];
      const Tensor d_w = noise({V, C}, DType::f32, kRotated)[0], logits = ctx_.empty({rows, V}, DType::f32);
      const Tensor narrow = ctx_.empty({rows, V}, options_.dtype), targets = ids(N, V);
      const Tensor loss = vector(N);
      measure(op, 1, 6.0 * static_cast<double>(N * C * V), 0,
              {{"table", [&](size_t) {
                  for (int64_t begin = 0; begin < N; begin += rows) {
                    const int64_t n = std::min(rows, N - begin);
                    const auto part = [&](const Tensor& t) { return t.narrow(0, begin, n); };
                    const Tensor chunk = logits.narrow(0, 0, n), g = narrow.narrow(0, 0, n);
                    ctx_.kernels->matmul(ctx_, {.a = part(x), .b = w, .transpose_b = true, .c = chunk, .bias = {}});
                    ctx_.kernels->cross_entropy_rows(ctx_, {chunk, part(targets), 1e-3f, true, 0, 0, part(loss), {}});
                    if (options_.dtype != DType::f32) ctx_.kernels->copy(ctx_, {chunk, g});
                    const Tensor& d = options_.dtype == DType::f32 ? chunk : g;
                    ctx_.kernels->matmul(ctx_, {.a = d, .b = w, .c = part(d_x), .bias = {}});
                    ctx_.kernels->matmul(
                        ctx_,
                        {.a = d, .transpose_a = true, .b = part(x), .c = d_w, .bias = {}, .accumulate = begin > 0});
                  }
                }}});
    }
  }

  void elementwise() {
    const KernelTable& k = *ctx_.kernels;
    const int64_t bytes = size(3 * N * C);
    if (wanted("add")) {
      const Sets a = noise({N, C}, bytes), b = noise({N, C}, bytes), out = noise({N, C}, bytes);
      measure("add", a.size(), bytes, [&](size_t i) { k.add(ctx_, {a[i], b[i], out[i]}); });
    }
    if (wanted("sum_rows")) {
      const Sets in = noise({N, F}, size(N * F));
      const Tensor out = vector(F);
      measure("sum_rows", in.size(), size(N * F), [&](size_t i) { k.sum_rows(ctx_, {in[i], out, true}); });
    }
    if (wanted("fill")) {
      const Sets out = noise({kGroup}, DType::f32, kGroup * 4);
      measure("fill", out.size(), kGroup * 4, [&](size_t i) { k.fill(ctx_, {out[i], 0.0f}); });
    }
  }

  void norms() {
    const KernelTable& k = *ctx_.kernels;
    if (!wanted("layer_norm_fwd") && !wanted("layer_norm_bwd") && !wanted("rms_norm_fwd") && !wanted("rms_norm_bwd"))
      return;
    const int64_t bytes = size(2 * N * C);
    const Sets x = noise({N, C}, bytes), y = noise({N, C}, bytes), d_x = noise({N, C}, bytes);
    const Tensor w = vector(C), b = vector(C), mean = vector(N), rstd = vector(N), d_w = vector(C), d_b = vector(C);
    if (wanted("layer_norm_fwd")) {
      measure("layer_norm_fwd", x.size(), bytes, [&](size_t i) {
        k.layer_norm_fwd(ctx_, {x[i], w, b, 1e-5f, y[i], mean, rstd});
      });
    }
    if (wanted("layer_norm_bwd")) {
      measure("layer_norm_bwd", x.size(), size(3 * N * C), [&](size_t i) {
        k.layer_norm_bwd(ctx_, {x[i], w, mean, rstd, y[i], d_x[i], false, d_w, d_b, true});
      });
    }
    if (wanted("rms_norm_fwd")) {
      measure("rms_norm_fwd", x.size(), bytes, [&](size_t i) { k.rms_norm_fwd(ctx_, {x[i], w, 1e-5f, y[i], rstd}); });
    }
    if (wanted("rms_norm_bwd")) {
      measure("rms_norm_bwd", x.size(), size(3 * N * C), [&](size_t i) {
        k.rms_norm_bwd(ctx_, {x[i], w, rstd, y[i], d_x[i], false, d_w, true});
      });
    }
  }

  void activations() {
    const KernelTable& k = *ctx_.kernels;
    const int64_t bytes = size(3 * N * F);
    if (wanted("gelu_tanh_fwd") || wanted("gelu_tanh_bwd")) {
      const Sets x = noise({N, F}, bytes), y = noise({N, F}, bytes), d_x = noise({N, F}, bytes);
      if (wanted("gelu_tanh_fwd")) {
        measure("gelu_tanh_fwd", x.size(), size(2 * N * F), [&](size_t i) {
          k.activation_fwd(ctx_, {Activation::gelu_tanh, x[i], y[i]});
        });
      }
      if (wanted("gelu_tanh_bwd")) {
        measure("gelu_tanh_bwd", x.size(), bytes, [&](size_t i) {
          k.activation_bwd(ctx_, {Activation::gelu_tanh, x[i], y[i], d_x[i]});
        });
      }
    }
    if (wanted("gated_silu_fwd") || wanted("gated_silu_bwd")) {
      const Sets x = noise({N, 2 * F}, bytes), y = noise({N, F}, bytes), d_x = noise({N, 2 * F}, bytes);
      if (wanted("gated_silu_fwd")) {
        measure("gated_silu_fwd", x.size(), bytes, [&](size_t i) {
          k.gated_fwd(ctx_, {Activation::silu, x[i], y[i]});
        });
      }
      if (wanted("gated_silu_bwd")) {
        measure("gated_silu_bwd", x.size(), size(5 * N * F), [&](size_t i) {
          k.gated_bwd(ctx_, {Activation::silu, x[i], y[i], d_x[i]});
        });
      }
    }
  }

  void attention() {
    const KernelTable& k = *ctx_.kernels;
    const int64_t bytes = size(4 * N * C);
    const double flops = 2.0 * static_cast<double>(N * T * C);  // two products over half of T x T
    const auto part = [](const Tensor& qkv, int64_t which) {
      return qkv.as_strided({B, T, H, D}, {T * 3 * C, 3 * C, D, 1}, which * C);
    };
    if (wanted("attention_fwd") || wanted("attention_bwd")) {
      const Sets qkv = noise({N, 3 * C}, bytes), out = noise({B, T, H, D}, bytes), d_qkv = noise({N, 3 * C}, bytes);
      const Sets lse = noise({B, H, T}, DType::f32, bytes);
      const Tensor d_out = noise({B, T, H, D}, kRotated)[0];
      const auto forward = [&](size_t i) {
        k.attention_fwd(
            ctx_, {part(qkv[i], 0), part(qkv[i], 1), part(qkv[i], 2), {}, {0.125f, 0, {}}, {}, out[i], lse[i], {}});
      };
      if (wanted("attention_fwd")) measure("attention_fwd", qkv.size(), flops, bytes, {{"table", forward}});
      if (wanted("attention_bwd")) {
        for (size_t i = 0; i < qkv.size(); ++i) forward(i);
        const auto backward = [&](size_t i) {
          k.attention_bwd(ctx_, {part(qkv[i], 0),
                                 part(qkv[i], 1),
                                 part(qkv[i], 2),
                                 out[i],
                                 lse[i],
                                 d_out,
                                 {},
                                 {0.125f, 0, {}},
                                 {},
                                 part(d_qkv[i], 0),
                                 part(d_qkv[i], 1),
                                 part(d_qkv[i], 2)});
        };
        measure("attention_bwd", qkv.size(), 2.5 * flops, 2 * bytes, {{"table", backward}});
      }
    }
    if (wanted("rope")) {
      const Sets x = noise({N, H, D}, size(2 * N * C)), y = noise({N, H, D}, size(2 * N * C));
      const Tensor positions = ids(N, T), frequency = vector(D / 2);
      measure("rope", x.size(), size(2 * N * C), [&](size_t i) {
        k.rope(ctx_, {x[i], positions, frequency, RopeLayout::half, false, y[i]});
      });
    }
    // One token after 1024 others.
    if (wanted("attention_decode")) {
      constexpr int64_t S = 1024;
      const Sets keys = noise({1, S, H, D}, size(2 * S * C)), values = noise({1, S, H, D}, size(2 * S * C));
      const Tensor q = noise({1, 1, H, D}, kRotated)[0], y = noise({1, 1, H, D}, kRotated)[0];
      measure("attention_decode", keys.size(), size(2 * S * C), [&](size_t i) {
        k.attention_fwd(ctx_, {q, keys[i], values[i], {}, {0.125f, 0, {}}, {}, y, {}, {}});
      });
    }
  }

  void embedding() {
    const KernelTable& k = *ctx_.kernels;
    if (!wanted("embedding_fwd") && !wanted("embedding_bwd")) return;
    const Tensor table = noise({V, C}, kRotated)[0], d_table = noise({V, C}, DType::f32, kRotated)[0];
    const Tensor some = ids(N, V), y = noise({N, C}, kRotated)[0];
    if (wanted("embedding_fwd")) {
      measure("embedding_fwd", 1, size(2 * N * C), [&](size_t) { k.embedding_fwd(ctx_, {some, table, y}); });
    }
    if (wanted("embedding_bwd")) {
      measure("embedding_bwd", 1, size(N * C) + 8 * N * C, [&](size_t) {
        k.embedding_bwd(ctx_, {some, y, d_table, true});
      });
    }
  }

  void cross_entropy() {
    if (!wanted("cross_entropy_rows")) return;
    constexpr int64_t kRows = 256;
    const Sets logits = noise({kRows, V}, DType::f32, kRows * V * 4);
    const Tensor targets = ids(kRows, V), loss = vector(kRows);
    measure("cross_entropy_rows", logits.size(), 2 * kRows * V * 4, [&](size_t i) {
      ctx_.kernels->cross_entropy_rows(ctx_, {logits[i], targets, 1.0f, true, 0, 0, loss, {}});
    });
  }

  void optimizer() {
    const KernelTable& k = *ctx_.kernels;
    const auto group = [&](DType dtype) { return noise({kGroup}, dtype, kRotated)[0]; };
    if (wanted("adamw")) {
      const bool narrow = options_.dtype != DType::f32;
      const Tensor master = group(DType::f32), gradient = group(DType::f32), m = group(DType::f32),
                   v = group(DType::f32), weight = narrow ? group(options_.dtype) : Tensor();
      k.fill(ctx_, {v, 1.0f});
      StepState state;
      state.learning_rate = 1e-4f;
      ExecContext ctx = ctx_;
      ctx.step = &state;
      measure("adamw", 1, kGroup * (narrow ? 30 : 28), [&](size_t) {
        AdamwArgs args;
        args.master = master;
        if (weight) args.weight = weight;
        args.gradient = gradient;
        args.m = m;
        args.v = v;
        k.adamw(ctx, args);
      });
    }
    if (wanted("sum_squares")) {
      const Tensor x = group(DType::f32);
      double sum = 0;
      measure("sum_squares", 1, kGroup * 4, [&](size_t) { k.sum_squares(ctx_, {x, &sum}); });
    }
    if (wanted("cast")) {
      const Tensor from = group(DType::f32), to = group(DType::bf16);
      measure("cast", 1, kGroup * 6, [&](size_t) { k.copy(ctx_, {from, to}); });
    }
  }

  const ExecContext& ctx_;
  const KernelsBenchOptions& options_;
  const std::function<void(const KernelsBenchResult&)>& report_;
  std::vector<float> noise_;
};

}  // namespace

void bench_kernels(const ExecContext& ctx, const KernelsBenchOptions& options,
                   const std::function<void(const KernelsBenchResult&)>& report) {
  Bench(ctx, options, report).run();
}

}  // namespace loam
