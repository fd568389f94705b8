// The harness must fail when an op is wrong: one broken op for each thing it claims to see.
#include "tests/harness/op_harness.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cmath>

#include "loam/ops/basic.h"
#include "loam/ops/op.h"
#include "tests/harness/test_params.h"

namespace loam::testing {
namespace {

// y = 2 x, with faults to be chosen.
struct Faults {
  float gradient = 2;
  bool forgets_to_accumulate = false;
  bool writes_input = false;
  bool writes_beside = false;
  bool reads_neighbour = false;
};

struct FaultyNode final : Node {
  Faults faults;
  const char* name() const override { return "faulty"; }
  void backward_input(const Context& ctx, BackwardScope& scope) override {
    const GradTarget d_x = scope.input_grad(0);
    const Tensor d = ctx.empty(d_x.view.shape, d_x.view.dtype, MemoryKind::gradients);
    ctx.kernels->scale(ctx, {scope.output_grad(0), faults.gradient, d});
    ctx.kernels->copy(ctx, {d, d_x.view, d_x.accumulate && !faults.forgets_to_accumulate});
  }
  void visit_saved(const ops::SavedVisitor&) const override {}
};

OpCase faulty_case(const Faults& faults) {
  OpCase c;
  c.name = "faulty";
  c.inputs = {{{4, 3}}};
  c.narrow = false;
  c.strided = false;
  c.row_wise = true;
  c.op = [faults](const Context& ctx, std::span<const Var> in, std::span<const ParamRef>) {
    Var out(ctx.empty(in[0].shape(), in[0].dtype()));
    ctx.kernels->scale(ctx, {in[0].value, 2.0f, out.value});
    if (faults.writes_input) in[0].value.data<float>()[0] += 1;
    if (faults.writes_beside) out.value.data<float>()[out.value.numel()] = 0;
    if (faults.reads_neighbour) {
      float* y = out.value.data<float>();
      for (int64_t i = 0; i < out.value.numel(); ++i) y[i] += 0 * y[0] + 0 * y[out.value.numel() / 2];
    }
    FaultyNode node;
    node.faults = faults;
    ops::record(ctx, std::move(node), {in[0]}, {&out});
    return std::vector<Var>{out};
  };
  c.reference = [](std::span<const Values> in, std::span<const Values>) {
    Values y = in[0];
    for (double& v : y) v *= 2;
    return std::vector<Values>{y};
  };
  return c;
}

// The failures that check_op reports, as one text.
std::string failures_of(const OpCase& c) {
  ::testing::TestPartResultArray results;
  {
    const ::testing::ScopedFakeTestPartResultReporter reporter(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
    check_op(c);
  }
  std::string text;
  for (int i = 0; i < results.size(); ++i) text += std::string(results.GetTestPartResult(i).message()) + "\n";
  return text;
}

TEST(OpHarness, SeesFaults) {
  EXPECT_EQ(failures_of(faulty_case({})), "");
  auto expect = [](const Faults& faults, const char* what) {
    const std::string text = failures_of(faulty_case(faults));
    EXPECT_NE(text.find(what), std::string::npos) << "wanted: " << what << "\ngot: " << text;
  };
  Faults faults;
  faults.gradient = 2.00001f;
  expect(faults, "gradient of input 0");
  faults = {};
  faults.forgets_to_accumulate = true;
  expect(faults, "used twice, two passes: gradient of input 0");
  faults = {};
  faults.writes_input = true;
  expect(faults, "wrote to input 0");
  faults = {};
  faults.reads_neighbour = true;
  expect(faults, "spread to element");
#if !defined(__SANITIZE_ADDRESS__)  // which ends the program there, rightly
  faults = {};
  faults.writes_beside = true;
  expect(faults, "wrote beside a block");
#endif
}

TEST(OpHarness, SeesAWrongValue) {
  OpCase c = faulty_case({});
  c.reference = [](std::span<const Values> in, std::span<const Values>) {
    Values y = in[0];
    for (double& v : y) v *= 2;
    y[5] *= 1.0001;
    return std::vector<Values>{y};
  };
  EXPECT_NE(failures_of(c).find("result 0"), std::string::npos);
}

TEST(OpHarness, RelativeError) {
  EXPECT_DOUBLE_EQ(relative_error(Values{3, 4.5}, Values{3, 4}), 0.1);
  EXPECT_EQ(relative_error(Values{1, INFINITY}, Values{1, INFINITY}), 0);
  EXPECT_TRUE(std::isinf(relative_error(Values{1}, Values{0})));
  EXPECT_FALSE(relative_error(Values{NAN}, Values{1}) < 1e30);
}

}  // namespace
}  // namespace loam::testing
