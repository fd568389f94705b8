#include "tests/harness/op_harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "loam/base/philox.h"
#include "loam/kernels/kernel_table.h"
#include "tests/harness/cuda_mirror.h"
#include "tests/harness/gradcheck.h"
#include "tests/harness/test_params.h"

namespace loam::testing {
namespace {

double element(const View& v, int64_t at) {
  if (v.dtype == DType::i32) return v.ptr<int32_t>()[at];
  return visit_float(v.dtype, "test",
                     [&](auto type) { return static_cast<double>(static_cast<float>(v.ptr<decltype(type)>()[at])); });
}

bool same_bits(std::span<const double> a, std::span<const double> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

// What is drawn once for a case and a dtype.
struct Draw {
  DType dtype;
  std::vector<Values> inputs, params;
  std::vector<Values> weights;  // of the results in the scalar that is differentiated
};

struct Mode {
  int threads = 1;
  bool tape = true;
  bool strided = false;
  bool recompute = false;
  bool halves = false;
  int uses = 1, passes = 1;
};

struct Result {
  std::vector<Values> values, input_grads, param_grads;
  std::vector<DType> dtypes;
  std::vector<bool> differentiable;
};

DType param_dtype(const Operand& operand, DType dtype) { return operand.shape.rank() == 1 ? DType::f32 : dtype; }

// Rounds to what the dtype can hold, so that op and reference see the same numbers.
Values draw_values(const Operand& operand, DType dtype, uint64_t site) {
  Values values = random_values(operand.shape.product(), site, operand.scale, operand.mean);
  visit_float(dtype, "test", [&](auto type) {
    for (double& v : values) v = static_cast<float>(decltype(type)(static_cast<float>(v)));
  });
  return values;
}

// A leaf with these values, or the middle of a wider one.
Var make_input(const Context& ctx, const Operand& operand, const Values& values, DType dtype, bool strided,
               Var& parent) {
  constexpr int64_t kBefore = 3, kAfter = 5;
  Tensor tensor = tensor_of(ctx, operand.shape, dtype, values);
  if (strided) {
    Shape wide = operand.shape;
    const int64_t width = wide[-1];
    wide[-1] += kBefore + kAfter;
    const Tensor whole = ctx.empty(wide, dtype);
    const Tensor middle = whole.narrow(-1, kBefore, width);
    ctx.kernels->copy(ctx, {tensor, middle});
    parent = ctx.tape ? ctx.tape->leaf(whole) : Var(whole);
    return ctx.tape ? ctx.tape->part(parent, middle) : Var(middle);
  }
  parent = ctx.tape ? ctx.tape->leaf(tensor) : Var(tensor);
  return parent;
}

// The gradient of an input from that of its leaf; all else must be 0.
Values input_gradient(const Tape& tape, const Var& parent, const Var& input, const std::string& name) {
  const Tensor whole = tape.grad(parent);
  if (!whole) return Values(static_cast<size_t>(input.value.numel()), 0.0);
  const int64_t wide = parent.value.dim(-1), width = input.value.dim(-1);
  if (wide == width) return values_of(whole);
  double all = 0, inside = 0;
  for (double v : values_of(whole)) all += std::abs(v);
  const Values values = values_of(whole.narrow(-1, 3, width));
  for (double v : values) inside += std::abs(v);
  EXPECT_NEAR(all, inside, 1e-12 * inside) << name << ": gradient beside the slice";
  return values;
}

void run_backward(const OpCase& c, const Draw& draw, const Context& ctx, const std::vector<Var>& results, bool halves) {
  std::vector<Var> roots;
  std::vector<Tensor> gradients;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!ctx.tape->wants_grad(results[i])) continue;
    roots.push_back(results[i]);
    const size_t count = static_cast<size_t>(results[i].value.numel());
    gradients.push_back(
        tensor_of(ctx, results[i].shape(), results[i].dtype(), c.unit_gradient ? Values(count, 1.0) : draw.weights[i]));
  }
  Tape::BackwardOptions options;
  options.keep_weight_half = halves;
  ctx.tape->backward(ctx, roots, gradients, options);
  if (halves) ctx.tape->backward_weights(ctx);
  EXPECT_EQ(ctx.tape->size(), 0) << c.name;
}

Result execute(const OpCase& c, const Draw& draw, const Mode& mode) {
  const ExecResources resources = guarded_resources(mode.threads);
  Result result;
  {
    TestParams store(resources.context);
    std::vector<ParamRef> params;
    for (size_t i = 0; i < c.params.size(); ++i) {
      const DType dtype = param_dtype(c.params[i], draw.dtype);
      params.push_back(store.add(tensor_of(resources.context, c.params[i].shape, dtype, draw.params[i])));
    }
    for (int pass = 0; pass < mode.passes; ++pass) {
      Tape tape;
      const Context ctx(resources.context, mode.tape ? &tape : nullptr);
      std::vector<Var> inputs, parents(c.inputs.size());
      for (size_t i = 0; i < c.inputs.size(); ++i) {
        inputs.push_back(make_input(ctx, c.inputs[i], draw.inputs[i], draw.dtype, mode.strided, parents[i]));
      }
      const Segment segment = [&](const Context& inner, const std::vector<Var>& in) { return c.op(inner, in, params); };
      std::vector<Var> all;
      for (int use = 0; use < mode.uses; ++use) {
        const std::vector<Var> results = mode.recompute ? recompute(ctx, segment, inputs) : segment(ctx, inputs);
        all.insert(all.end(), results.begin(), results.end());
        result.values.clear();
        result.differentiable.clear();
        result.dtypes.clear();
        for (const Var& r : results) {
          result.values.push_back(values_of(r.value));
          result.dtypes.push_back(r.dtype());
          result.differentiable.push_back(tape.wants_grad(r));
        }
      }
      for (size_t i = 0; i < inputs.size(); ++i) {
        EXPECT_TRUE(same_bits(values_of(inputs[i].value), draw.inputs[i])) << c.name << ": wrote to input " << i;
      }
      if (!mode.tape) {
        EXPECT_EQ(tape.size(), 0) << c.name;
        continue;
      }
      if (mode.recompute) {
        EXPECT_LE(tape.size(), mode.uses) << c.name;
      }
      Draw twice = draw;
      for (int use = 1; use < mode.uses; ++use) {
        twice.weights.insert(twice.weights.end(), draw.weights.begin(), draw.weights.end());
      }
      run_backward(c, twice, ctx, all, mode.halves);
      result.input_grads.clear();
      for (size_t i = 0; i < inputs.size(); ++i) {
        result.input_grads.push_back(input_gradient(tape, parents[i], inputs[i], c.name));
      }
    }
    for (size_t i = 0; i < params.size(); ++i) {
      EXPECT_TRUE(same_bits(values_of(params[i].value()), draw.params[i])) << c.name << ": wrote to parameter " << i;
      if (mode.tape) {
        EXPECT_TRUE(store.gradient(params[i])) << c.name << ": no gradient of parameter " << i;
        if (store.gradient(params[i])) result.param_grads.push_back(values_of(store.gradient(params[i])));
      }
    }
    EXPECT_EQ(resources.arena->broken_guards(), 0) << c.name << ": wrote beside a block";
  }
  EXPECT_EQ(resources.arena->stats().total, 0) << c.name << ": memory is still held";
  return result;
}

// The scalar that is differentiated, in double.
double reference_scalar(const OpCase& c, const Draw& draw, const std::vector<bool>& differentiable) {
  const std::vector<Values> results = c.reference(draw.inputs, draw.params);
  double sum = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    for (size_t j = 0; differentiable[i] && j < results[i].size(); ++j) {
      sum += results[i][j] * (c.unit_gradient ? 1.0 : draw.weights[i][j]);
    }
  }
  return sum;
}

// The gradient of one operand, which lies in `draw`, against central differences: every element of a small one, random
// directions of a large one.
void check_gradient(const OpCase& c, const Draw& draw, const std::vector<bool>& differentiable, Values& operand,
                    const Values& gradient, double tolerance, const std::string& what) {
  const Values at = operand;
  auto scalar = [&](std::span<const double> x) {
    operand.assign(x.begin(), x.end());
    const double value = reference_scalar(c, draw, differentiable);
    operand = at;
    return value;
  };
  constexpr size_t kSmall = 160, kDirections = 24;
  const bool small = at.size() <= kSmall;
  Values got, want;
  for (size_t k = 0; k < (small ? at.size() : kDirections); ++k) {
    Values direction(at.size(), 0.0);
    if (small) {
      direction[k] = 1;
    } else {
      direction = random_values(static_cast<int64_t>(at.size()), 900 + k);
    }
    want.push_back(directional_derivative(scalar, at, direction));
    double along = 0;
    for (size_t i = 0; i < at.size(); ++i) along += gradient[i] * direction[i];
    got.push_back(along);
  }
  double norm = 0;
  for (double v : want) norm += v * v;
  if (std::sqrt(norm) < 1e-8) {  // all zero, up to the noise of the differences
    for (double v : got) EXPECT_LT(std::abs(v), 1e-7) << what;
    return;
  }
  EXPECT_LT(relative_error(got, want), tolerance) << what;
}

// Values and all gradients of a run against the reference.
void check_against_reference(const OpCase& c, Draw& draw, const Result& run) {
  const std::string what = fmt::format("{} {}", c.name, dtype_name(draw.dtype));
  const std::vector<Values> want = c.reference(draw.inputs, draw.params);
  ASSERT_EQ(run.values.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_LT(relative_error(run.values[i], want[i]), c.c * dtype_eps(run.dtypes[i])) << what << ": result " << i;
  }
  const double tolerance = c.c * dtype_eps(draw.dtype);
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    check_gradient(c, draw, run.differentiable, draw.inputs[i], run.input_grads[i], tolerance,
                   fmt::format("{}: gradient of input {}", what, i));
  }
  for (size_t i = 0; i < c.params.size(); ++i) {
    check_gradient(c, draw, run.differentiable, draw.params[i], run.param_grads[i], tolerance,
                   fmt::format("{}: gradient of parameter {}", what, i));
  }
}

// Another way to run the same thing: equal bits (tolerance 0), or gradients that are multiples of the plain ones.
void check_same(const std::string& what, const Result& got, const Result& plain, double input_factor,
                double param_factor, double tolerance) {
  auto compare = [&](const std::vector<Values>& a, const std::vector<Values>& b, double factor, const char* kind) {
    ASSERT_EQ(a.size(), b.size()) << what;
    for (size_t i = 0; i < a.size(); ++i) {
      Values want = b[i];
      for (double& v : want) v *= factor;
      if (tolerance == 0) {
        EXPECT_TRUE(same_bits(a[i], want))
            << what << ": " << kind << " " << i << ", apart by " << relative_error(a[i], want);
      } else {
        EXPECT_LT(relative_error(a[i], want), tolerance) << what << ": " << kind << " " << i;
      }
    }
  };
  compare(got.values, plain.values, 1, "result");
  compare(got.input_grads, plain.input_grads, input_factor, "gradient of input");
  compare(got.param_grads, plain.param_grads, param_factor, "gradient of parameter");
}

// NaN, then infinity, in the middle row of the first input.
void check_bad_rows(const OpCase& c, const Draw& draw, const Result& plain) {
  const int64_t width = c.inputs[0].shape[-1], rows = c.inputs[0].shape.product() / width, row = rows / 2;
  for (double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    Draw poisoned = draw;
    std::fill_n(poisoned.inputs[0].begin() + row * width, width, bad);
    Mode mode;
    mode.tape = false;
    const Result got = execute(c, poisoned, mode);
    for (size_t i = 0; i < got.values.size(); ++i) {
      const size_t columns = got.values[i].size() / static_cast<size_t>(rows);
      for (size_t j = 0; j < got.values[i].size(); ++j) {
        if (static_cast<int64_t>(j / columns) != row) {
          ASSERT_EQ(got.values[i][j], plain.values[i][j]) << c.name << ": " << bad << " spread to element " << j;
        } else if (std::isnan(bad)) {
          ASSERT_TRUE(std::isnan(got.values[i][j])) << c.name << ": NaN was lost at element " << j;
        }
      }
    }
  }
}

Draw make_draw(const OpCase& c, DType dtype) {
  Draw draw{dtype, {}, {}, {}};
  uint64_t site = 1;
  for (const Operand& input : c.inputs) draw.inputs.push_back(draw_values(input, dtype, site++));
  for (const Operand& param : c.params) draw.params.push_back(draw_values(param, param_dtype(param, dtype), site++));
  for (const Values& result : c.reference(draw.inputs, draw.params)) {
    draw.weights.push_back(draw_values({{static_cast<int64_t>(result.size())}}, dtype, site++));
  }
  return draw;
}

void check_dtype(const OpCase& c, DType dtype) {
  const std::string what = fmt::format("{} {}", c.name, dtype_name(dtype));
  Draw draw = make_draw(c, dtype);
  const double tolerance = 2 * dtype_eps(dtype);
  const Result plain = execute(c, draw, {});
  check_against_reference(c, draw, plain);

  check_same(what + " again", execute(c, draw, {}), plain, 1, 1, 0);
  Mode mode;
  mode.threads = 2;
  check_same(what + " with 2 threads", execute(c, draw, mode), plain, 1, 1, tolerance);
  mode = {};
  mode.uses = mode.passes = 2;
  check_same(what + " used twice, two passes", execute(c, draw, mode), plain, 2, 4, tolerance);
  mode = {};
  mode.recompute = true;
  check_same(what + " recomputed", execute(c, draw, mode), plain, 1, 1, 0);
  mode = {};
  mode.halves = true;
  check_same(what + " in halves", execute(c, draw, mode), plain, 1, 1, tolerance);
  if (c.strided && !c.inputs.empty()) {
    mode = {};
    mode.strided = true;
    check_same(what + " strided", execute(c, draw, mode), plain, 1, 1, tolerance);
  }
  mode = {};
  mode.tape = false;
  const Result untaped = execute(c, draw, mode);
  for (size_t i = 0; i < plain.values.size(); ++i) {
    EXPECT_TRUE(same_bits(untaped.values[i], plain.values[i])) << what << " without a tape: result " << i;
  }
  if (c.row_wise) check_bad_rows(c, draw, plain);
}

}  // namespace

void check_op(const OpCase& c) {
  check_dtype(c, DType::f32);
  for (DType dtype : {DType::bf16, DType::f16}) {
    if (c.narrow) check_dtype(c, dtype);
  }
}

void bench_op(const OpCase& c) {
  if (!std::getenv("LOAM_BENCH")) return;
  using Clock = std::chrono::steady_clock;
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    if (dtype != DType::f32 && !c.narrow) continue;
    const Draw draw = make_draw(c, dtype);
    const ExecResources resources = testing::test_resources(2);
    TestParams store(resources.context);
    std::vector<ParamRef> params;
    for (size_t i = 0; i < c.params.size(); ++i) {
      params.push_back(
          store.add(tensor_of(resources.context, c.params[i].shape, param_dtype(c.params[i], dtype), draw.params[i])));
    }
    std::vector<double> forward, backward;
    for (const auto start = Clock::now();
         Clock::now() - start < std::chrono::milliseconds(500) || forward.size() < 5;) {
      Tape tape;
      const Context ctx(resources.context, &tape);
      std::vector<Var> inputs;
      for (size_t i = 0; i < c.inputs.size(); ++i) {
        inputs.push_back(tape.leaf(tensor_of(ctx, c.inputs[i].shape, dtype, draw.inputs[i])));
      }
      const auto t0 = Clock::now();
      const std::vector<Var> results = c.op(ctx, inputs, params);
      const auto t1 = Clock::now();
      run_backward(c, draw, ctx, results, false);
      const auto t2 = Clock::now();
      forward.push_back(std::chrono::duration<double, std::micro>(t1 - t0).count());
      backward.push_back(std::chrono::duration<double, std::micro>(t2 - t1).count());
    }
    auto median = [](std::vector<double>& times) {
      std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2), times.end());
      return times[times.size() / 2];
    };
    fmt::print("{} {}: forward {:.1f} us, backward {:.1f} us\n", c.name, dtype_name(dtype), median(forward),
               median(backward));
  }
}

ExecResources guarded_resources(int threads) {
  ExecResources resources = testing::test_resources(threads);
  Arena::Options options;
  options.segment_bytes = 1 << 20;
  options.guard_bytes = 64;
  resources.arena = Arena::create({}, options);
  resources.context.arena = resources.arena.get();
  return resources;
}

Values values_of(const Tensor& t) {
  const View v = t.view();
  Values values(static_cast<size_t>(t.numel()));
  for (int64_t i = 0; i < t.numel(); ++i) {
    int64_t rest = i, at = 0;
    for (int axis = v.rank() - 1; axis >= 0; --axis) {
      at += rest % v.shape[axis] * v.strides[axis];
      rest /= v.shape[axis];
    }
    values[static_cast<size_t>(i)] = element(v, at);
  }
  return values;
}

Tensor tensor_of(const ExecContext& ctx, const Shape& shape, DType dtype, std::span<const double> values) {
  LOAM_CHECK(shape.product() == static_cast<int64_t>(values.size()), "test: {} values for {}", values.size(),
             shape.str());
  Tensor t = ctx.empty(shape, dtype);
  if (dtype == DType::i32) {
    std::transform(values.begin(), values.end(), t.data<int32_t>(), [](double v) { return static_cast<int32_t>(v); });
    return t;
  }
  visit_float(dtype, "test", [&](auto type) {
    using T = decltype(type);
    std::transform(values.begin(), values.end(), t.data<T>(), [](double v) { return T(static_cast<float>(v)); });
  });
  return t;
}

Values random_values(int64_t count, uint64_t site, double scale, double mean) {
  const PhiloxStream stream{20240607, site};
  Values values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = mean + scale * stream.normal(i);
  return values;
}

double relative_error(std::span<const double> got, std::span<const double> want) {
  if (got.size() != want.size()) return std::numeric_limits<double>::infinity();
  double difference = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i] && std::isinf(want[i])) continue;
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  if (difference == 0) return 0;
  return norm == 0 ? std::numeric_limits<double>::infinity() : std::sqrt(difference / norm);
}

double dtype_eps(DType dtype) { return dtype == DType::bf16 ? 0x1p-7 : dtype == DType::f16 ? 0x1p-10 : 0x1p-23; }

}  // namespace loam::testing
