#include "tests/harness/expect_error.h"
#include "tests/kernels/kernel_testing.h"

namespace loam {
namespace {

using namespace testing;  // NOLINT

TEST(SumSquaresKernel, MatchesF64AndAddsUp) {
  for_each_target([] {
    for (const DType dtype : kFloats) {
      for (const int64_t n : {0, 1, 3, 7, 17, 63, 65, 257, 16384, 16385, 100003}) {
        const Matrix x(dtype, 1, n, 0, random_values(n, 1));
        double out = 0.5, other = 0.5;
        const auto one = cpu(1), three = cpu(3);
        one.context.kernels->sum_squares(one.context, {x.row(), &out});
        three.context.kernels->sum_squares(three.context, {x.row(), &other});
        EXPECT_NEAR(out / (0.5 + std::pow(norm(x.values()), 2)), 1, 1e-13);
        EXPECT_EQ(out, other);
      }
    }
  });
}

// The elements from `begin` on of a run.
View from(View run, int64_t begin) {
  run.data = static_cast<std::byte*>(run.data) + begin * dtype_size(run.dtype);
  run.shape[0] -= begin;
  return run;
}

TEST(SumSquaresKernel, BeginsAnywhere) {
  const auto r = cpu(2);
  for (const DType dtype : kFloats) {
    for (const int64_t begin : {1, 2, 4, 7}) {
      const Matrix x(dtype, 1, 40001, 0, random_values(40001, 1));
      Values values = x.values();
      values.erase(values.begin(), values.begin() + begin);
      double out = 0;
      r.context.kernels->sum_squares(r.context, {from(x.row(), begin), &out});
      EXPECT_NEAR(out / std::pow(norm(values), 2), 1, 1e-13);
    }
  }
}

TEST(SumSquaresKernel, NonFiniteShows) {
  for_each_target([] {
    const auto r = cpu(2);
    for (const double bad : {std::nan(""), static_cast<double>(INFINITY), static_cast<double>(-INFINITY)}) {
      for (const int64_t at : {0, 40000, 50000}) {
        Matrix x(DType::f32, 1, 50001, 0, random_values(50001, 1));
        x.put(0, at, bad);
        double out = 0;
        r.context.kernels->sum_squares(r.context, {x.row(), &out});
        EXPECT_FALSE(std::isfinite(out));
      }
    }
    const Matrix x(DType::f32, 1, 10, 0, Values(10, 1e25));  // squares and sum lie beyond f32
    double out = 0;
    r.context.kernels->sum_squares(r.context, {x.row(), &out});
    EXPECT_NEAR(out / 1e51, 1, 1e-6);
  });
}

struct Group {
  explicit Group(int64_t n, DType weight_type = DType::bf16)
      : master(DType::f32, 1, n, 0, random_values(n, 1)),
        weight(weight_type, 1, n),
        gradient(DType::f32, 1, n, 0, random_values(n, 2, 3)),
        m(DType::f32, 1, n),
        v(DType::f32, 1, n) {}
  AdamwArgs args(bool with_weight) const {
    return {{master.row(), with_weight ? weight.row() : View{}, gradient.row(), 0.5f, 0.1f}, m.row(), v.row()};
  }
  bool weight_is_rounded_master() const {
    Values expected = master.values();
    for (double& w : expected) w = rounded(weight.dtype(), w);
    return weight.values() == expected;
  }
  bool intact() const { return master.intact() && weight.intact() && gradient.intact() && m.intact() && v.intact(); }
  Matrix master, weight, gradient, m, v;
};

StepState step_state(int t) {
  StepState s;
  s.learning_rate = 1e-2f;
  s.updates = t - 1;
  s.gradient_scale = 0.25f;
  return s;
}

TEST(AdamwKernel, ThreeStepsMatchF64) {
  for_each_target([] {
    for (const int64_t n : {1, 3, 7, 17, 63, 65, 257, 10007}) {
      Group g(n, n % 4 == 3 ? DType::f16 : DType::bf16);
      auto r = cpu(2);
      Values w = g.master.values(), m(w.size(), 0), v(w.size(), 0);
      const Values gradient = g.gradient.values();
      for (int t = 1; t <= 3; ++t) {
        const double lr = 1e-2 * 0.5;
        for (size_t i = 0; i < w.size(); ++i) {
          const double scaled = gradient[i] * 0.25;
          m[i] = 0.9 * m[i] + 0.1 * scaled;
          v[i] = 0.95 * v[i] + 0.05 * scaled * scaled;
          const double m_hat = m[i] / (1 - std::pow(0.9, t)), v_hat = v[i] / (1 - std::pow(0.95, t));
          w[i] += -lr * 0.1 * w[i] - lr * m_hat / (std::sqrt(v_hat) + 1e-8);
        }
        StepState state = step_state(t);
        r.context.step = &state;
        r.context.kernels->adamw(r.context, g.args(true));
      }
      // beta and the corrections are themselves rounded to f32: 0.1 and 0.05 as differences are 1e-7 off.
      const double f32 = unit_roundoff(DType::f32);
      expect_close(g.master.values(), w, 4 * f32, "master");
      expect_close(g.m.values(), m, 16 * f32, "m");
      expect_close(g.v.values(), v, 32 * f32, "v");
      EXPECT_TRUE(g.weight_is_rounded_master());
      EXPECT_TRUE(g.intact());
    }
  });
}

TEST(AdamwKernel, SkipChangesNothingAndThreadsAgree) {
  Group a(10007), b(10007);
  const auto before = a.master.memory();
  StepState state = step_state(1);
  state.skip = 1;
  auto one = cpu(1), three = cpu(3);
  one.context.step = three.context.step = &state;
  one.context.kernels->adamw(one.context, a.args(true));
  EXPECT_EQ(a.master.memory(), before);
  EXPECT_EQ(a.m.values(), Values(10007, 0));
  EXPECT_EQ(a.weight.values(), Values(10007, 0));
  state.skip = 0;
  one.context.kernels->adamw(one.context, a.args(false));
  three.context.kernels->adamw(three.context, b.args(true));
  EXPECT_EQ(a.weight.values(), Values(10007, 0)) << "no copy was asked for";
  EXPECT_EQ(a.master.memory(), b.master.memory());
  EXPECT_EQ(a.m.memory(), b.m.memory());
  EXPECT_EQ(a.v.memory(), b.v.memory());
}

// Every rule by its formula, in f64. A case makes one step of the state (s, t) and the parameter w with gradient g.
struct RuleCase {
  const char* name;
  void (*kernel)(const ExecContext& ctx, const Group& group, bool with_weight);
  void (*reference)(double& w, double& s, double& t, double g, double lr, int step);
};

double sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

// A rule's arguments with what all rules have in common.
template <class Args>
Args args_of(const Group& group, bool with_weight) {
  Args args;
  static_cast<UpdateArgs&>(args) = group.args(with_weight);
  return args;
}

const RuleCase kAdamRules[] = {
    {"adam with decay in the gradient",
     [](const ExecContext& ctx, const Group& group, bool with_weight) {
       AdamwArgs args = group.args(with_weight);
       args.form = AdamForm::l2;
       ctx.kernels->adamw(ctx, args);
     },
     [](double& w, double& s, double& t, double g, double lr, int step) {
       g += 0.1 * w;
       s = 0.9 * s + 0.1 * g, t = 0.95 * t + 0.05 * g * g;
       w -= lr * s / (1 - std::pow(0.9, step)) / (std::sqrt(t / (1 - std::pow(0.95, step))) + 1e-8);
     }},
    {"adamw with eps beside the plain root",
     [](const ExecContext& ctx, const Group& group, bool with_weight) {
       AdamwArgs args = group.args(with_weight);
       args.form = AdamForm::course, args.eps = 0.1f;
       ctx.kernels->adamw(ctx, args);
     },
     [](double& w, double& s, double& t, double g, double lr, int step) {
       s = 0.9 * s + 0.1 * g, t = 0.95 * t + 0.05 * g * g;
       w -= lr * std::sqrt(1 - std::pow(0.95, step)) / (1 - std::pow(0.9, step)) * s / (std::sqrt(t) + 0.1);
       w -= lr * 0.1 * w;
     }},
};

const RuleCase kSgdRules[] = {
    {"sgd",
     [](const ExecContext& ctx, const Group& group, bool with_weight) {
       auto args = args_of<SgdArgs>(group, with_weight);
       ctx.kernels->sgd(ctx, args);
     },
     [](double& w, double&, double&, double g, double lr, int) { w -= lr * (g + 0.1 * w); }},
    {"sgd with damped momentum",
     [](const ExecContext& ctx, const Group& group, bool with_weight) {
       auto args = args_of<SgdArgs>(group, with_weight);
       args.buffer = group.m.row(), args.momentum = 0.8f, args.dampening = 0.3;
       ctx.kernels->sgd(ctx, args);
     },
     [](double& w, double& s, double&, double g, double lr, int step) {
       g += 0.1 * w;
       s = step == 1 ? g : 0.8 * s + 0.7 * g;
       w -= lr * s;
     }},
    {"sgd with Nesterov's momentum",
     [](const ExecContext& ctx, const Group& group, bool with_weight) {
       auto args = args_of<SgdArgs>(group, with_weight);
       args.buffer = group.m.row(), args.momentum = 0.8f, args.nesterov = true;
       ctx.kernels->sgd(ctx, args);
     },
     [](double& w, double& s, double&, double g, double lr, int) {
       g += 0.1 * w;
       s = 0.8 * s + g;
       w -= lr * (g + 0.8 * s);
     }},
};

const RuleCase kRootRules[] = {
    {"adagrad",
     [](const ExecContext& ctx, const Group& group, bool with_weight) {
       auto args = args_of<AdagradArgs>(group, with_weight);
       args.sum = group.v.row();
       ctx.kernels->adagrad(ctx, args);
     },
     [](double& w, double&, double& t, double g, double lr, int) {
       g += 0.1 * w;
       t += g * g;
       w -= lr * g / (std::sqrt(t) + 1e-8);
     }},
    {"rmsprop",
     [](const ExecContext& ctx, const Group& group, bool with_weight) {
       auto args = args_of<RmspropArgs>(group, with_weight);
       args.v = group.v.row(), args.alpha = 0.7;
       ctx.kernels->rmsprop(ctx, args);
     },
     [](double& w, double&, double& t, double g, double lr, int) {
       g += 0.1 * w;
       t = 0.7 * t + 0.3 * g * g;
       w -= lr * g / (std::sqrt(t) + 1e-8);
     }},
    {"rmsprop with momentum",
     [](const ExecContext& ctx, const Group& group, bool with_weight) {
       auto args = args_of<RmspropArgs>(group, with_weight);
       args.v = group.v.row(), args.alpha = 0.7, args.buffer = group.m.row(), args.momentum = 0.8f;
       ctx.kernels->rmsprop(ctx, args);
     },
     [](double& w, double& s, double& t, double g, double lr, int) {
       g += 0.1 * w;
       t = 0.7 * t + 0.3 * g * g;
       s = 0.8 * s + g / (std::sqrt(t) + 1e-8);
       w -= lr * s;
     }},
};

const RuleCase kSignRules[] = {
    {"lion",
     [](const ExecContext& ctx, const Group& group, bool with_weight) {
       auto args = args_of<LionArgs>(group, with_weight);
       args.m = group.m.row();
       ctx.kernels->lion(ctx, args);
     },
     [](double& w, double& s, double&, double g, double lr, int) {
       w -= lr * (sign(0.9 * s + 0.1 * g) + 0.1 * w);
       s = 0.99 * s + 0.01 * g;
     }},
};

std::vector<RuleCase> all_rules() {
  std::vector<RuleCase> rules;
  for (const std::span<const RuleCase> some :
       {std::span<const RuleCase>(kAdamRules), std::span<const RuleCase>(kSgdRules),
        std::span<const RuleCase>(kRootRules), std::span<const RuleCase>(kSignRules)}) {
    rules.insert(rules.end(), some.begin(), some.end());
  }
  return rules;
}

TEST(UpdateKernels, ThreeStepsMatchF64) {
  for_each_target([] {
    for (const RuleCase& rule : all_rules()) {
      SCOPED_TRACE(rule.name);
      for (const int64_t n : {1, 7, 65, 10007}) {
        Group group(n, n % 4 == 3 ? DType::f16 : DType::bf16);
        auto r = cpu(2);
        if (n > 1) group.gradient.put(0, 1, 0);
        Values w = group.master.values(), s(w.size(), 0), t(w.size(), 0);
        const Values gradient = group.gradient.values();
        for (int step = 1; step <= 3; ++step) {
          StepState state = step_state(step);
          r.context.step = &state;
          rule.kernel(r.context, group, true);
          for (size_t i = 0; i < w.size(); ++i) rule.reference(w[i], s[i], t[i], 0.25 * gradient[i], 0.5e-2, step);
        }
        // As of AdamW above: betas and the like are rounded to f32, and a step is a few thousandths of a parameter.
        const double f32 = unit_roundoff(DType::f32);
        expect_close(group.master.values(), w, 4 * f32, "master");
        if (norm(s) > 0) expect_close(group.m.values(), s, 32 * f32, "first state");
        if (norm(t) > 0) expect_close(group.v.values(), t, 32 * f32, "second state");
        EXPECT_TRUE(group.weight_is_rounded_master());
        EXPECT_TRUE(group.intact());
      }
    }
  });
}

TEST(UpdateKernels, SkipChangesNothingAndThreadsAgree) {
  for (const RuleCase& rule : all_rules()) {
    SCOPED_TRACE(rule.name);
    Group a(10007), b(10007);
    const auto before = a.master.memory();
    StepState state = step_state(1);
    state.skip = 1;
    auto one = cpu(1), three = cpu(3);
    one.context.step = three.context.step = &state;
    rule.kernel(one.context, a, true);
    EXPECT_EQ(a.master.memory(), before);
    EXPECT_EQ(a.m.values(), Values(10007, 0));
    EXPECT_EQ(a.v.values(), Values(10007, 0));
    EXPECT_EQ(a.weight.values(), Values(10007, 0));
    state.skip = 0;
    rule.kernel(one.context, a, false);
    rule.kernel(three.context, b, true);
    EXPECT_NE(a.master.memory(), before);
    EXPECT_EQ(a.weight.values(), Values(10007, 0)) << "no copy was asked for";
    EXPECT_EQ(a.master.memory(), b.master.memory());
    EXPECT_EQ(a.m.memory(), b.m.memory());
    EXPECT_EQ(a.v.memory(), b.v.memory());
    one.context.step = nullptr;
    EXPECT_LOAM_ERROR(rule.kernel(one.context, a, false), ErrorCode::kInvalidArgument, "step state");
  }
}

// A part of a run, wherever it begins, changes as it does within the whole, and nothing else changes.
TEST(UpdateKernels, PartsChangeAsTheWhole) {
  auto r = cpu(2);
  StepState state = step_state(1);
  r.context.step = &state;
  for (const int64_t begin : {1, 2, 4}) {
    constexpr int64_t kSize = 103;
    const DType dtype = begin == 2 ? DType::f16 : DType::bf16;
    Group whole(kSize, dtype), part(kSize, dtype);
    const Group given(kSize, dtype);
    AdamwArgs args = part.args(true);
    for (View* v : {&args.master, &args.weight, &args.gradient, &args.m, &args.v}) *v = from(*v, begin);
    r.context.kernels->adamw(r.context, whole.args(true));
    r.context.kernels->adamw(r.context, args);
    for (int64_t i = 0; i < kSize; ++i) {
      const Group& expected = i < begin ? given : whole;
      EXPECT_EQ(part.master.get(0, i), expected.master.get(0, i));
      EXPECT_EQ(part.weight.get(0, i), expected.weight.get(0, i));
      EXPECT_EQ(part.m.get(0, i), expected.m.get(0, i));
      EXPECT_EQ(part.v.get(0, i), expected.v.get(0, i));
    }
    EXPECT_TRUE(part.intact());
  }
}

TEST(MuonKernels, MomentumAndUpdateMatchF64) {
  for_each_target([] {
    for (const bool nesterov : {false, true}) {
      constexpr int64_t kSize = 67;
      Group group(kSize, nesterov ? DType::bf16 : DType::f16);
      Matrix out(DType::f32, 1, kSize);
      auto r = cpu(2);
      StepState state = step_state(1);
      r.context.step = &state;
      const Values g = group.gradient.values();
      Values w = group.master.values(), m(kSize, 0), expected(kSize, 0);
      for (int step = 0; step < 3; ++step) {
        for (size_t i = 0; i < kSize; ++i) {
          m[i] = 0.9 * m[i] + 0.1 * 0.25 * g[i];
          expected[i] = nesterov ? 0.9 * m[i] + 0.1 * 0.25 * g[i] : m[i];
          w[i] = w[i] - 0.5e-2 * 0.1 * w[i] - 0.5e-2 * 3 * expected[i];
        }
        r.context.kernels->muon_momentum(r.context, {group.gradient.row(), group.m.row(), out.row(), 0.9, nesterov});
        expect_close(out.values(), expected, 16 * unit_roundoff(DType::f32), "out");
        MuonApplyArgs apply;
        static_cast<UpdateArgs&>(apply) = group.args(true);
        apply.update = out.row(), apply.scale = 3;
        r.context.kernels->muon_apply(r.context, apply);
      }
      expect_close(group.m.values(), m, 16 * unit_roundoff(DType::f32), "m");
      expect_close(group.master.values(), w, 4 * unit_roundoff(DType::f32), "master");
      EXPECT_TRUE(group.weight_is_rounded_master());
      const auto before = group.master.memory(), state_before = group.m.memory();
      state.skip = 1;
      r.context.kernels->muon_momentum(r.context, {group.gradient.row(), group.m.row(), out.row(), 0.9, nesterov});
      EXPECT_EQ(out.values(), Values(kSize, 0));
      EXPECT_EQ(group.m.memory(), state_before);
      EXPECT_EQ(group.master.memory(), before);
      EXPECT_TRUE(out.intact() && group.intact());
    }
  });
}

using Square = std::vector<Values>;
Square product(const Square& a, const Square& b) {
  Square c(a.size(), Values(b[0].size(), 0));
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t k = 0; k < b.size(); ++k) {
      for (size_t j = 0; j < b[0].size(); ++j) c[i][j] += a[i][k] * b[k][j];
    }
  }
  return c;
}
Square transposed(const Square& a) {
  Square t(a[0].size(), Values(a.size()));
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a[0].size(); ++j) t[j][i] = a[i][j];
  }
  return t;
}

// The published lines of Muon (zeropower_via_newtonschulz5) in f64.
Values orthogonalized(const Values& values, int64_t rows, int64_t cols, int steps) {
  Square x(static_cast<size_t>(rows), Values(static_cast<size_t>(cols)));
  for (size_t i = 0; i < values.size(); ++i) {
    x[i / static_cast<size_t>(cols)][i % static_cast<size_t>(cols)] = values[i] / std::max(norm(values), 1e-7);
  }
  if (rows > cols) x = transposed(x);
  for (int s = 0; s < steps; ++s) {
    const Square a = product(x, transposed(x)), aa = product(a, a);
    Square b = a;
    for (size_t i = 0; i < a.size(); ++i) {
      for (size_t j = 0; j < a.size(); ++j) b[i][j] = -4.7750 * a[i][j] + 2.0315 * aa[i][j];
    }
    const Square bx = product(b, x);
    for (size_t i = 0; i < x.size(); ++i) {
      for (size_t j = 0; j < x[0].size(); ++j) x[i][j] = 3.4445 * x[i][j] + bx[i][j];
    }
  }
  if (rows > cols) x = transposed(x);
  Values out;
  for (const Values& row : x) out.insert(out.end(), row.begin(), row.end());
  return out;
}

TEST(MuonKernels, OrthogonalizesAsThePublishedLinesInF64) {
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 1}, {1, 9}, {9, 1}, {5, 5}, {24, 40}, {48, 16}}) {
    for (const int steps : {1, 4, 5}) {
      for (const double size : {1e-3, 1.0, 1e3}) {
        const Values start = random_values(rows * cols, 5, size);
        Matrix one(DType::f32, rows, cols, 0, start), three(DType::f32, rows, cols, 0, start);
        const Values expected = orthogonalized(one.values(), rows, cols, steps);
        auto a = cpu(1), b = cpu(3);
        a.context.kernels->orthogonalize(a.context, {one.view(), steps});
        b.context.kernels->orthogonalize(b.context, {three.view(), steps});
        // A step takes a small singular value, and its error, up to 3.4445 times further.
        expect_close(one.values(), expected, 1e-7 * std::pow(3.4445, steps), "x");
        expect_close(three.values(), expected, 1e-7 * std::pow(3.4445, steps), "x");
        EXPECT_TRUE(one.intact() && three.intact());
      }
    }
  }
}

TEST(MuonKernels, NothingStaysNothing) {
  Matrix x(DType::f32, 4, 6);
  const auto r = cpu(1);
  r.context.kernels->orthogonalize(r.context, {x.view(), 5});
  EXPECT_EQ(x.values(), Values(24, 0));
}

TEST(AdamwKernel, NeedsStepState) {
  Group g(3);
  const auto r = cpu();
  EXPECT_LOAM_ERROR(r.context.kernels->adamw(r.context, g.args(false)), ErrorCode::kInvalidArgument, "step state");
}

}  // namespace
}  // namespace loam
