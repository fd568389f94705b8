// Legend: B rows of T tokens, N = B T, C width, H heads of D, F hidden width, V vocabulary.
#include "bench/kernels_bench.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "loam/base/clock.h"
#include "loam/base/philox.h"
#include "loam/kernels/cpu/gemm.h"
#include "loam/kernels/cpu/matmul_dnnl.h"
#include "loam/kernels/kernel_table.h"
#include "loam/kernels/kernel_work.h"

namespace loam {
namespace {

constexpr int64_t kMostSets = 64;
constexpr int64_t kNoise = 1000008;  // elements before they repeat; no width of a model divides it
constexpr size_t kQueued = 20;       // calls that a GPU is given at a time
constexpr int64_t kHead = 50304;     // rows of the table for matrix products of the head

struct Variant {
  const char* name;
  std::function<void(size_t set)> run;
};

class Bench {
 public:
  Bench(const ExecContext& ctx, const KernelsBenchOptions& options,
        const std::function<void(const KernelsBenchResult&)>& report)
      : ctx_(ctx), k_(*ctx.kernels), options_(options), report_(report), s_(options.sizes), N_(s_.B * s_.T) {
    const PhiloxStream random{1, 1};
    std::vector<float> values(kNoise);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(random.normal(i));
    noise_ = Tensor::from<float>(*ctx_.arena, {kNoise}, values);
    StepState state;
    state.learning_rate = 1e-4f;
    state_ = ctx_.empty({static_cast<int64_t>(sizeof state)}, DType::u8, MemoryKind::other);
    state_.set_bytes(&state);
    ctx_.step = static_cast<StepState*>(state_.view().data);
    sums_ = ctx_.empty({2}, DType::i64, MemoryKind::other);
    k_.fill(ctx_, {sums_, 0.0f});
    if (ctx_.handles) ahead_ = ctx_.empty({int64_t{1} << 28}, DType::f32, MemoryKind::other);
  }

  void run() {
    linear("qkv", N_, 3 * s_.C, s_.C);
    linear("out", N_, s_.C, s_.C);
    linear("up", N_, s_.F, s_.C);
    linear("down", N_, s_.C, s_.F);
    if (ctx_.handles) linear("head", N_ / 4, kHead, s_.C);
    head();
    elementwise();
    norms();
    activations();
    attention();
    embedding();
    cross_entropy();
    optimizers();
    muon();
  }

 private:
  bool wanted(const std::string& name) const { return name.starts_with(options_.only); }

  // Tensors live until the measurement that they are made for is done.
  Tensor own(Tensor tensor) { return owned_.emplace_back(std::move(tensor)); }
  Tensor noise(const Shape& shape, DType dtype, float factor = 1) {
    const Tensor t = own(ctx_.empty(shape, dtype)), flat = t.reshape({t.numel()});
    const int64_t whole = t.numel() / kNoise, rest = t.numel() % kNoise;
    const Tensor repeated = noise_.as_strided({whole, kNoise}, {0, 1}, 0);
    if (whole > 0) k_.copy(ctx_, {repeated, flat.narrow(0, 0, whole * kNoise).reshape({whole, kNoise})});
    if (rest > 0) k_.copy(ctx_, {noise_.narrow(0, 0, rest), flat.narrow(0, whole * kNoise, rest)});
    if (factor != 1) k_.scale(ctx_, {t, factor, t});
    return t;
  }
  Tensor noise(const Shape& shape) { return noise(shape, options_.dtype); }
  Tensor vector(int64_t n) { return noise({n}, DType::f32); }
  Tensor ids(int64_t n, int64_t limit) {
    const PhiloxStream random{1, 2};
    std::vector<int32_t> values(static_cast<size_t>(n));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<int32_t>(random.below(i, static_cast<uint64_t>(limit)));
    return own(Tensor::from<int32_t>(*ctx_.arena, {n}, values));
  }

  // A kernel on as many sets of arguments as rotation wants; make() gives one, of new tensors.
  template <class Args, class Make>
  void measure(const std::string& name, const KernelSlot<Args>& slot, Make make) {
    if (!wanted(name)) return;
    std::vector<Args> sets = {make()};
    const KernelWork work = kernel_work(sets[0]);
    const auto most =
        std::clamp<int64_t>(s_.rotated / std::max<int64_t>(static_cast<int64_t>(work.bytes), 1), 1, kMostSets);
    while (static_cast<int64_t>(sets.size()) < most) sets.push_back(make());
    std::vector<Variant> variants = {{"table", [&](size_t i) { slot(ctx_, sets[i]); }}};
    if constexpr (std::is_same_v<Args, MatmulArgs>) {
      if (ctx_.device.kind == DeviceKind::cpu)
        variants.push_back({"gemm", [&](size_t i) { cpu::gemm(ctx_, sets[i]); }});
      if (ctx_.device.kind == DeviceKind::cpu && cpu::dnnl_matmul(ctx_, sets[0]))
        variants.push_back({"dnnl", [&](size_t i) { cpu::dnnl_matmul(ctx_, sets[i]); }});
    }
    time(name, slot.name, work, sets.size(), variants);
    owned_.clear();
  }

  void time(const std::string& name, const char* kernel, const KernelWork& work, size_t sets,
            const std::vector<Variant>& variants) {
    std::vector<std::vector<double>> seconds(variants.size());
    for (const Variant& v : variants) v.run(0);
    size_t set = 0;
    const Stopwatch total;
    const double limit = options_.seconds * static_cast<double>(variants.size());
    while (total.seconds() < limit || seconds[0].size() < 5) {
      for (size_t i = 0; i < variants.size(); ++i) {
        if (ctx_.handles) {
          time_queued(variants[i], sets, set, seconds[i]);
        } else {
          const Stopwatch watch;
          variants[i].run(set++ % sets);
          seconds[i].push_back(watch.seconds());
        }
      }
    }
    for (size_t i = 0; i < variants.size(); ++i) {
      std::vector<double>& s = seconds[i];
      std::sort(s.begin(), s.end());
      report_({name, kernel, variants[i].name, work, s[s.size() / 2], s[0], static_cast<int64_t>(s.size())});
    }
  }

  // The device has something else to do while it is given the calls, so that it never waits for the next.
  void time_queued(const Variant& variant, size_t sets, size_t& set, std::vector<double>& seconds) {
    DeviceHandles& device = *ctx_.handles;
    device.clear_marks();
    k_.fill(ctx_, {ahead_, 0.0f});
    for (size_t i = 0; i < kQueued; ++i) {
      device.mark();
      variant.run(set++ % sets);
      device.mark();
    }
    device.synchronize();
    for (int64_t i = 0; i < static_cast<int64_t>(kQueued); ++i)
      seconds.push_back(device.seconds_between(2 * i, 2 * i + 1));
  }

  // The three products of a linear layer of `out` from `in`.
  void linear(const std::string& name, int64_t rows, int64_t out, int64_t in) {
    measure(name + "_fwd", k_.matmul, [&] {
      const Tensor x = noise({rows, in}), w = noise({out, in}), y = noise({rows, out});
      return MatmulArgs{.a = x, .b = w, .transpose_b = true, .c = y, .bias = noise({out}, DType::f32)};
    });
    measure(name + "_dx", k_.matmul, [&] {
      return MatmulArgs{.a = noise({rows, out}), .b = noise({out, in}), .c = noise({rows, in}), .bias = {}};
    });
    measure(name + "_dw", k_.matmul, [&] {
      const Tensor dy = noise({rows, out}), x = noise({rows, in}), dw = noise({out, in}, DType::f32);
      return MatmulArgs{.a = dy, .transpose_a = true, .b = x, .c = dw, .bias = {}, .accumulate = true};
    });
  }

  // On a GPU logits are as its matrix product gives them, on the CPU f32.
  DType logits_dtype() const { return ctx_.handles ? options_.dtype : DType::f32; }

  // The whole head, forward and backward, by chunks of rows.
  void head() {
    const int64_t C = s_.C, V = s_.V;
    for (const int64_t rows : s_.head_rows) {
      const std::string name = fmt::format("head_rows_{}", rows);
      if (!wanted(name)) continue;
      const Tensor x = noise({N_, C}), d_x = noise({N_, C}), w = noise({V, C}, options_.dtype, 0.05f);
      const Tensor d_w = noise({V, C}, DType::f32), logits = own(ctx_.empty({rows, V}, logits_dtype()));
      const Tensor narrow = own(ctx_.empty({rows, V}, options_.dtype)), targets = ids(N_, V), loss = vector(N_);
      const auto chunk = [&](int64_t begin) {
        const int64_t n = std::min(rows, N_ - begin);
        const auto part = [&](const Tensor& t) { return t.narrow(0, begin, n); };
        const Tensor l = logits.narrow(0, 0, n), g = narrow.narrow(0, 0, n);
        k_.matmul(ctx_, {.a = part(x), .b = w, .transpose_b = true, .c = l, .bias = {}});
        k_.cross_entropy_rows(ctx_, {l, part(targets), 1e-3f, true, 0, 0, part(loss), {}});
        const bool narrows = logits_dtype() != options_.dtype;
        if (narrows) k_.copy(ctx_, {l, g});
        const Tensor& d = narrows ? g : l;
        k_.matmul(ctx_, {.a = d, .b = w, .c = part(d_x), .bias = {}});
        k_.matmul(ctx_, {.a = d, .transpose_a = true, .b = part(x), .c = d_w, .bias = {}, .accumulate = begin > 0});
      };
      const KernelWork work{fmt::format("{} x {} x {}", N_, V, C), options_.dtype,
                            6.0 * static_cast<double>(N_ * C * V), 0};
      time(name, "", work, 1, {{"table", [&](size_t) {
                                  for (int64_t begin = 0; begin < N_; begin += rows) chunk(begin);
                                }}});
      owned_.clear();
    }
  }

  void elementwise() {
    const Shape rows{N_, s_.C};
    measure("add", k_.add, [&] { return AddArgs{noise(rows), noise(rows), noise(rows)}; });
    measure("scale", k_.scale, [&] { return ScaleArgs{noise(rows), 0.5f, noise(rows)}; });
    measure("sum_rows", k_.sum_rows, [&] { return SumRowsArgs{noise({N_, s_.F}), vector(s_.F), true}; });
    measure("fill", k_.fill, [&] { return FillArgs{vector(s_.group), 0.0f}; });
    measure("cast", k_.copy, [&] { return CopyArgs{vector(s_.group), noise({s_.group}, DType::bf16)}; });
    measure("dropout", k_.dropout, [&] {
      return DropoutArgs{noise({s_.B, s_.T * s_.C}), 0.1f, 1, noise({s_.B, s_.T * s_.C})};
    });
  }

  void norms() {
    const int64_t C = s_.C;
    const Shape rows{N_, C};
    measure("layer_norm_fwd", k_.layer_norm_fwd, [&] {
      return LayerNormFwdArgs{noise(rows), vector(C), vector(C), 1e-5f, noise(rows), vector(N_), vector(N_)};
    });
    measure("layer_norm_bwd", k_.layer_norm_bwd, [&] {
      return LayerNormBwdArgs{noise(rows), vector(C), vector(N_), vector(N_), noise(rows),
                              noise(rows), false,     vector(C),  vector(C),  true};
    });
    measure("rms_norm_fwd", k_.rms_norm_fwd, [&] {
      return RmsNormFwdArgs{noise(rows), vector(C), 1e-5f, noise(rows), vector(N_)};
    });
    measure("rms_norm_bwd", k_.rms_norm_bwd, [&] {
      return RmsNormBwdArgs{noise(rows), vector(C), vector(N_), noise(rows), noise(rows), false, vector(C), true};
    });
  }

  void activations() {
    const Shape rows{N_, s_.F}, pairs{N_, 2 * s_.F};
    measure("gelu_tanh_fwd", k_.activation_fwd, [&] {
      return ActivationFwdArgs{Activation::gelu_tanh, noise(rows), noise(rows)};
    });
    measure("gelu_tanh_bwd", k_.activation_bwd, [&] {
      return ActivationBwdArgs{Activation::gelu_tanh, noise(rows), noise(rows), noise(rows)};
    });
    measure("gated_silu_fwd", k_.gated_fwd, [&] { return GatedFwdArgs{Activation::silu, noise(pairs), noise(rows)}; });
    measure("gated_silu_bwd", k_.gated_bwd, [&] {
      return GatedBwdArgs{Activation::silu, noise(pairs), noise(rows), noise(pairs)};
    });
  }

  // Causal, with q, k and v as parts of one projection.
  AttentionFwdArgs attention_args(int64_t B, int64_t T, int64_t H, int64_t D) {
    const Tensor qkv = noise({B * T, 3 * H * D});
    AttentionFwdArgs args;
    args.q = part(qkv, B, T, H, D, 0);
    args.k = part(qkv, B, T, H, D, 1);
    args.v = part(qkv, B, T, H, D, 2);
    args.logits.scale = 1 / std::sqrt(static_cast<float>(D));
    args.out = noise({B, T, H, D});
    args.lse = own(ctx_.empty({B, H, T}, DType::f32));
    return args;
  }
  static View part(const Tensor& qkv, int64_t B, int64_t T, int64_t H, int64_t D, int64_t which) {
    const int64_t row = 3 * H * D;
    return qkv.as_strided({B, T, H, D}, {T * row, row, D, 1}, which * H * D);
  }
  void attention(const std::string& ending, int64_t B, int64_t T, int64_t H, int64_t D) {
    measure("attention_fwd" + ending, k_.attention_fwd, [&] { return attention_args(B, T, H, D); });
    measure("attention_bwd" + ending, k_.attention_bwd, [&] {
      const AttentionFwdArgs f = attention_args(B, T, H, D);
      k_.attention_fwd(ctx_, f);
      const Tensor d_qkv = noise({B * T, 3 * H * D});
      AttentionBwdArgs args;
      args.q = f.q, args.k = f.k, args.v = f.v, args.out = f.out, args.lse = f.lse, args.logits = f.logits;
      args.d_out = noise({B, T, H, D});
      args.d_q = part(d_qkv, B, T, H, D, 0);
      args.d_k = part(d_qkv, B, T, H, D, 1);
      args.d_v = part(d_qkv, B, T, H, D, 2);
      return args;
    });
  }
  void attention() {
    const int64_t H = s_.H, D = s_.C / H;
    attention("", s_.B, s_.T, H, D);
    for (const auto& a : s_.attention) attention(fmt::format("_b{}_t{}_d{}", a.B, a.T, a.D), a.B, a.T, a.H, a.D);
    measure("attention_decode", k_.attention_fwd, [&] {
      const Shape one{1, 1, H, D}, keys{1, s_.decoded, H, D};
      AttentionFwdArgs args;
      args.q = noise(one), args.k = noise(keys), args.v = noise(keys), args.out = noise(one);
      args.logits.scale = 1 / std::sqrt(static_cast<float>(D));
      return args;
    });
    measure("rope", k_.rope, [&] {
      return RopeArgs{noise({N_, H, D}), ids(N_, s_.T), vector(D / 2), RopeLayout::half, false, noise({N_, H, D})};
    });
  }

  void embedding() {
    measure("embedding_fwd", k_.embedding_fwd, [&] {
      return EmbeddingFwdArgs{ids(N_, s_.V), noise({s_.V, s_.C}), noise({N_, s_.C})};
    });
    measure("embedding_bwd", k_.embedding_bwd, [&] {
      return EmbeddingBwdArgs{ids(N_, s_.V), noise({N_, s_.C}), noise({s_.V, s_.C}, DType::f32), true};
    });
  }

  void cross_entropy() {
    const int64_t n = std::min<int64_t>(N_, ctx_.handles ? 4096 : 256), V = s_.V;
    const auto logits = [&] { return noise({n, V}, logits_dtype()); };
    measure("cross_entropy_rows", k_.cross_entropy_rows,
            [&] { return CrossEntropyRowsArgs{logits(), ids(n, V), 1.0f, true, 0, 0, vector(n), {}}; });
    measure("softcap", k_.softcap, [&] { return SoftcapArgs{logits(), 30}; });
    measure("logit_stats", k_.logit_stats,
            [&] { return LogitStatsArgs{logits(), 0, ids(n, V), true, vector(n), vector(n), vector(n), vector(n)}; });
    measure("log_prob", k_.log_prob, [&] {
      const Tensor sums = vector(n);
      k_.fill(ctx_, {sums, 2.0f});
      return LogProbArgs{vector(n), sums, vector(n), vector(n), ids(n, V), vector(n), vector(n), vector(n)};
    });
    measure("logit_bwd", k_.logit_bwd, [&] {
      const Tensor lse = vector(n);
      k_.fill(ctx_, {lse, 12.0f});
      return LogitBwdArgs{logits(), 0, ids(n, V), lse, vector(n), {}, 0};
    });
  }

  // What every rule updates: f32 masters, and weights of the model's dtype where that is another.
  template <class Args>
  Args update() {
    Args args;
    args.master = vector(s_.group);
    if (options_.dtype != DType::f32) args.weight = noise({s_.group});
    args.gradient = vector(s_.group);
    return args;
  }
  Tensor positive(int64_t n) {
    const Tensor t = vector(n);
    k_.fill(ctx_, {t, 1.0f});
    return t;
  }
  void optimizers() {
    const int64_t n = s_.group;
    measure("adamw", k_.adamw, [&] {
      auto args = update<AdamwArgs>();
      args.m = vector(n), args.v = positive(n);
      return args;
    });
    measure("sgd", k_.sgd, [&] {
      auto args = update<SgdArgs>();
      args.buffer = vector(n), args.momentum = 0.9f;
      return args;
    });
    measure("adagrad", k_.adagrad, [&] {
      auto args = update<AdagradArgs>();
      args.sum = positive(n);
      return args;
    });
    measure("rmsprop", k_.rmsprop, [&] {
      auto args = update<RmspropArgs>();
      args.v = positive(n);
      return args;
    });
    measure("lion", k_.lion, [&] {
      auto args = update<LionArgs>();
      args.m = vector(n);
      return args;
    });
    const auto sum = static_cast<double*>(sums_.view().data);
    measure("sum_squares", k_.sum_squares, [&] { return SumSquaresArgs{vector(n), sum}; });
    measure("clip", k_.clip, [&] { return ClipArgs{sum + 1, nullptr, 1.0}; });
    measure("end_step", k_.end_step, [] { return EndStepArgs{}; });
  }

  void muon() {
    const Shape matrix{s_.F, s_.C};
    measure("muon_momentum", k_.muon_momentum, [&] {
      return MuonMomentumArgs{vector(s_.group), vector(s_.group), vector(s_.group)};
    });
    measure("muon_apply", k_.muon_apply, [&] {
      auto args = update<MuonApplyArgs>();
      args.gradient = {};
      args.update = vector(s_.group);
      return args;
    });
    measure("orthogonalize", k_.orthogonalize, [&] { return OrthogonalizeArgs{noise(matrix, DType::f32)}; });
  }

  ExecContext ctx_;
  const KernelTable& k_;
  const KernelsBenchOptions& options_;
  const std::function<void(const KernelsBenchResult&)>& report_;
  const KernelsBenchSizes& s_;
  const int64_t N_;
  Tensor noise_, state_, sums_, ahead_;
  std::vector<Tensor> owned_;
};

}  // namespace

KernelsBenchSizes kernels_bench_sizes(DeviceKind device) {
  KernelsBenchSizes sizes;
  if (device == DeviceKind::cpu) return sizes;
  sizes.B = 16;
  sizes.T = 1024;
  sizes.V = kHead;
  sizes.group = int64_t{1} << 26;
  sizes.decoded = 16384;
  sizes.head_rows = {4096, 16384};
  for (const int64_t D : {64, 128}) {
    for (int64_t B = 16; B >= 1; B /= 2) sizes.attention.push_back({B, 16384 / B, 12, D});
  }
  return sizes;
}

void bench_kernels(const ExecContext& ctx, const KernelsBenchOptions& options,
                   const std::function<void(const KernelsBenchResult&)>& report) {
  Bench(ctx, options, report).run();
}

}  // namespace loam
