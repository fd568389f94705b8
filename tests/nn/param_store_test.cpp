#include "loam/nn/param_store.h"

#include <gtest/gtest.h>

#include <cmath>

#include "loam/base/hash.h"
#include "loam/base/philox.h"
#include "tests/harness/expect_error.h"

namespace loam {
namespace {

ParamSpec spec_of(const std::string& name, Shape shape, ParamKind kind, int layer) {
  ParamSpec spec;
  spec.name = name;
  spec.shape = shape;
  spec.kind = kind;
  spec.layer = layer;
  if (kind == ParamKind::vector) spec.init.kind = ParamInit::Kind::ones;
  return spec;
}

void declare_some(ParamStore& store) {
  store.declare(spec_of("table", {5, 7}, ParamKind::embedding, -1));
  store.declare(spec_of("a.w", {3, 7}, ParamKind::matrix, 0));
  store.declare(spec_of("a.norm", {7}, ParamKind::vector, 0));
  store.declare(spec_of("a.w2", {7, 3}, ParamKind::matrix, 0));
  store.declare(spec_of("b.w", {3, 7}, ParamKind::matrix, 1));
}

TEST(ParamStore, GroupsByLayerKindAndTrainable) {
  const ExecResources exec = make_exec_resources(Device{}, 2);
  ParamStore store;
  declare_some(store);
  ParamSpec frozen = spec_of("a.frozen", {4, 4}, ParamKind::matrix, 0);
  frozen.trainable = false;
  const ParamRef frozen_ref = store.declare(frozen);
  store.allocate(exec.context, DType::bf16, true);

  ASSERT_EQ(store.groups().size(), 5u);
  EXPECT_EQ(store.groups()[1].params, (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(store.group_of(3), 1);
  EXPECT_EQ(store.groups()[1].dtype, DType::bf16);
  EXPECT_EQ(store.groups()[2].dtype, DType::f32);  // norm weights
  EXPECT_EQ(store.groups()[1].gradient.dtype(), DType::f32);
  EXPECT_FALSE(store.groups()[4].gradient);
  EXPECT_FALSE(store.trainable(frozen_ref.index));
  EXPECT_FALSE(store.grad_target(frozen_ref.index));
  EXPECT_TRUE(store.trainable(0));
  EXPECT_EQ(store.parameter_count(), 35 + 21 + 7 + 21 + 21 + 16);
  for (int32_t i = 0; i < store.size(); ++i) {
    EXPECT_EQ(store.value(i).shape(), store.spec(i).shape);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(store.value(i).view().data) % 64, 0u) << store.name(i);
    if (const Tensor gradient = store.gradient(i)) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(gradient.view().data) % 64, 0u);
    }
  }
}

TEST(ParamStore, PaddingStaysZero) {
  const ExecResources exec = make_exec_resources(Device{}, 1);
  ParamStore store;
  declare_some(store);
  store.allocate(exec.context, DType::f32, true);
  store.initialize(3);
  const ParamGroup& group = store.groups()[1];  // two matrices of 21 elements
  std::vector<bool> used(static_cast<size_t>(group.weight.numel()));
  for (int32_t i : group.params) {
    const int64_t begin = store.value(i).data<float>() - group.weight.data<float>();
    for (int64_t k = 0; k < 21; ++k) used[static_cast<size_t>(begin + k)] = true;
  }
  int64_t padding = 0;
  for (size_t k = 0; k < used.size(); ++k) {
    if (used[k]) continue;
    ++padding;
    EXPECT_EQ(group.weight.data<float>()[k], 0);
    EXPECT_EQ(group.gradient.data<float>()[k], 0);
  }
  EXPECT_EQ(padding, group.weight.numel() - 42);
  EXPECT_GT(padding, 0);
}

TEST(ParamStore, InitialValuesArePhiloxOfSeedAndName) {
  std::vector<std::vector<float>> found;
  for (int variant = 0; variant < 3; ++variant) {
    const ExecResources exec = make_exec_resources(Device{}, variant + 1);
    ParamStore store;
    if (variant == 2) store.declare(spec_of("another", {9, 9}, ParamKind::matrix, 0));
    ParamSpec spec = spec_of("w", {200, 100}, ParamKind::matrix, variant);
    spec.init.std = 0.5;
    const ParamRef w = store.declare(spec);
    store.allocate(exec.context, DType::f32, variant == 1);
    const int64_t before = store.generation();
    store.initialize(42);
    EXPECT_GT(store.generation(), before);
    const auto span = w.value().span<float>();
    found.emplace_back(span.begin(), span.end());
  }
  EXPECT_EQ(found[0], found[1]);
  EXPECT_EQ(found[0], found[2]);
  const PhiloxStream stream{42, hash64("w")};
  EXPECT_EQ(found[0][777], static_cast<float>(0.5 * stream.normal(777)));
  const ExecResources exec = make_exec_resources(Device{}, 1);
  ParamStore rounded;
  ParamSpec spec = spec_of("w", {200, 100}, ParamKind::matrix, 0);
  spec.init.std = 0.5;
  const ParamRef w = rounded.declare(spec);
  rounded.allocate(exec.context, DType::f16, false);
  rounded.initialize(42);
  EXPECT_EQ(w.value().data<F16>()[777].bits, F16(found[0][777]).bits);
  double sum = 0, squares = 0;
  for (float v : found[0]) sum += v, squares += double{v} * v;
  const double n = 20000;
  EXPECT_NEAR(sum / n, 0, 5 * 0.5 / std::sqrt(n));  // five standard errors
  EXPECT_NEAR(std::sqrt(squares / n), 0.5, 5 * 0.5 / std::sqrt(2 * n));
}

TEST(ParamStore, FirstContributionOverwritesThenAccumulates) {
  const ExecResources exec = make_exec_resources(Device{}, 1);
  ParamStore store;
  declare_some(store);
  store.allocate(exec.context, DType::f32, true);
  EXPECT_FALSE(store.grad_target(1).accumulate);
  EXPECT_TRUE(store.grad_target(1).accumulate);
  store.gradient(1).data<float>()[0] = 5;
  store.gradient(0).data<float>()[0] = 6;
  store.clear_gradients();
  EXPECT_FALSE(store.grad_target(1).accumulate);
  EXPECT_EQ(store.grad_target(1).view.data, store.gradient(1).view().data);
  store.finish_gradients(exec.context);
  EXPECT_EQ(store.gradient(1).data<float>()[0], 5);  // had a contribution
  EXPECT_EQ(store.gradient(0).data<float>()[0], 0);  // had none
}

TEST(ParamStore, Errors) {
  const ExecResources exec = make_exec_resources(Device{}, 1);
  ParamStore store;
  declare_some(store);
  EXPECT_LOAM_ERROR(store.declare(spec_of("a.w", {1}, ParamKind::vector, 0)), ErrorCode::kInvalidArgument,
                    "a.w is declared twice");
  ParamSpec cut = spec_of("cut", {4, 2}, ParamKind::matrix, 0);
  cut.slices = {{"x", 0, 1}, {"y", 2, 2}};
  EXPECT_LOAM_ERROR(store.declare(cut), ErrorCode::kInvalidArgument, "slice y does not begin at row 1");
  cut.slices = {{"x", 0, 1}, {"y", 1, 2}};
  EXPECT_LOAM_ERROR(store.declare(cut), ErrorCode::kInvalidArgument, "3 rows of 4");
  EXPECT_LOAM_ERROR(store.find("a.w3"), ErrorCode::kNotFound, "the nearest is \"a.w");
  EXPECT_LOAM_ERROR(store.value(0), ErrorCode::kInvalidArgument, "not allocated");
  store.allocate(exec.context, DType::f32, false);
  EXPECT_FALSE(store.trainable(0));
  EXPECT_FALSE(store.gradient(0));
  EXPECT_LOAM_ERROR(store.declare(spec_of("late", {1}, ParamKind::vector, 0)), ErrorCode::kInvalidArgument,
                    "after allocation");
}

// A normal distribution cut at 3 standard deviations has the variance 1 - 6 phi(3) / (2 Phi(3) - 1) = 0.97334.
TEST(ParamStore, TruncatedNormalsAndSlices) {
  ParamStore store;
  ParamSpec spec;
  spec.name = "w";
  spec.shape = {400, 250};
  spec.init = {ParamInit::Kind::truncated_normal, 0.5};
  spec.slices = {{"a", 0, 100}, {"b", 100, 300, 2.0}};
  store.declare(spec);
  const ExecResources exec = make_exec_resources({}, 2);
  store.allocate(exec.context, DType::f32, false);
  store.initialize(1);
  const auto deviation = [&](int64_t begin, int64_t rows, double std) {
    double squares = 0;
    for (const float v : store.value(0).narrow(0, begin, rows).span<float>()) {
      EXPECT_LE(std::abs(v), 3 * std);
      squares += double{v} * v;
    }
    return std::sqrt(squares / static_cast<double>(rows * 250)) / std;
  };
  // 25000 values or more: five standard errors of a standard deviation are 5 / sqrt(50000) = 2.2 %.
  EXPECT_NEAR(deviation(0, 100, 0.5), std::sqrt(0.97334), 0.022);
  EXPECT_NEAR(deviation(100, 300, 2.0), std::sqrt(0.97334), 0.022);
}

}  // namespace
}  // namespace loam
