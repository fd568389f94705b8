#include "loam/tensor/tensor.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/harness/expect_error.h"

namespace loam {
namespace {

// 0, 1, 2, ... in row-major order
Tensor counting(Arena& arena, const Shape& shape) {
  std::vector<int32_t> values(static_cast<size_t>(shape.product()));
  std::iota(values.begin(), values.end(), 0);
  return Tensor::from<int32_t>(arena, shape, values);
}

int32_t at(const Tensor& t, std::initializer_list<int64_t> index) {
  const View v = t.view();
  int64_t offset = 0;
  int axis = 0;
  for (int64_t i : index) offset += i * v.stride(axis++);
  return v.ptr<int32_t>()[offset];
}

TEST(Shape, Basics) {
  const Shape s{2, 3, 4};
  EXPECT_EQ(s.str(), "[2, 3, 4]");
  EXPECT_EQ(s[-1], 4);
  EXPECT_EQ(s.product(), 24);
  EXPECT_EQ(contiguous_strides(s), (Dims{12, 4, 1}));
  EXPECT_EQ(Shape{}.product(), 1);
  EXPECT_EQ(Shape{}.str(), "[]");
  EXPECT_FALSE((Shape{2, 3} == Shape{2, 3, 1}));
  EXPECT_LOAM_ERROR((Shape{1, 1, 1, 1, 1, 1, 1}), ErrorCode::kInvalidArgument, "7 axes");
}

TEST(Tensor, ViewsShareMemory) {
  const auto arena = Arena::create({});
  const Tensor t = counting(*arena, {2, 3, 4});
  EXPECT_TRUE(t.is_contiguous());
  const Tensor row = t.narrow(1, 1, 2);
  EXPECT_EQ(row.shape(), (Shape{2, 2, 4}));
  EXPECT_EQ(at(row, {1, 0, 3}), 12 + 4 + 3);
  EXPECT_FALSE(row.is_contiguous());
  const Tensor turned = t.transpose(0, -1);
  EXPECT_EQ(turned.shape(), (Shape{4, 3, 2}));
  EXPECT_EQ(at(turned, {3, 2, 1}), 23);
  EXPECT_EQ(at(t.reshape({6, 4}), {5, 0}), 20);
  const Tensor diagonal = t.as_strided({3}, {5}, 1);
  EXPECT_EQ(at(diagonal, {2}), 11);
  EXPECT_EQ(at(row.narrow(0, 1, 1).narrow(2, 2, 1), {0, 1, 0}), 12 + 8 + 2);
  t.data<int32_t>()[23] = 99;
  EXPECT_EQ(at(turned, {3, 2, 1}), 99);
}

TEST(Tensor, MisuseIsRefused) {
  const auto arena = Arena::create({});
  const Tensor t = counting(*arena, {2, 3, 4});
  EXPECT_LOAM_ERROR(t.narrow(1, 2, 2), ErrorCode::kInvalidArgument, "[2, 4) is outside axis 1");
  EXPECT_LOAM_ERROR(t.narrow(1, -1, 1), ErrorCode::kInvalidArgument, "outside");
  EXPECT_LOAM_ERROR(t.narrow(3, 0, 1), ErrorCode::kInvalidArgument, "no axis 3");
  EXPECT_LOAM_ERROR(t.transpose(0, -4), ErrorCode::kInvalidArgument, "no axis -4");
  EXPECT_LOAM_ERROR(t.reshape({5, 5}), ErrorCode::kInvalidArgument, "cannot reshape [2, 3, 4] into [5, 5]");
  EXPECT_LOAM_ERROR(t.transpose(0, 1).reshape({24}), ErrorCode::kInvalidArgument, "not contiguous");
  EXPECT_LOAM_ERROR(t.transpose(0, 1).span<int32_t>(), ErrorCode::kInvalidArgument, "not contiguous");
  EXPECT_LOAM_ERROR(t.as_strided({4}, {8}, 0), ErrorCode::kInvalidArgument, "leaves a storage of 24");
  EXPECT_LOAM_ERROR(t.as_strided({1}, {1}, -1), ErrorCode::kInvalidArgument, "leaves a storage");
  EXPECT_LOAM_ERROR(t.dims<2>(), ErrorCode::kInvalidArgument, "expected 2 axes, got shape [2, 3, 4]");
  EXPECT_LOAM_ERROR(Tensor::empty(*arena, {2, -3}, DType::f32), ErrorCode::kInvalidArgument, "negative size");
  EXPECT_LOAM_ERROR(Tensor::empty(*arena, {int64_t{1} << 40, int64_t{1} << 40}, DType::u8), ErrorCode::kInvalidArgument,
                    "too large");
  const std::vector<float> two{1, 2};
  EXPECT_LOAM_ERROR(Tensor::from<float>(*arena, {3}, two), ErrorCode::kInvalidArgument, "2 values for shape [3]");
}

TEST(Tensor, LifetimeOfBlocksAndOwners) {
  const auto arena = Arena::create({});
  Tensor t = Tensor::zeros(*arena, {100}, DType::f32, MemoryKind::cache);
  for (float f : t.span<float>()) EXPECT_EQ(f, 0);
  Tensor part = t.narrow(0, 10, 10);
  t = Tensor();
  EXPECT_FALSE(t);
  EXPECT_GT(arena->stats().total, 0);
  part = Tensor();
  EXPECT_EQ(arena->stats().total, 0);

  const auto owner = std::make_shared<std::vector<float>>(6, 2.0f);
  {
    const Tensor wrapped = Tensor::wrap(owner, owner->data(), {2, 3}, DType::f32, {});
    EXPECT_EQ(owner.use_count(), 2);
    EXPECT_EQ(wrapped.data<float>()[5], 2);
  }
  EXPECT_EQ(owner.use_count(), 1);
}

TEST(View, RowsFoldLeadingAxes) {
  const auto arena = Arena::create({});
  const Tensor t = counting(*arena, {2, 3, 8});
  const Rows whole = as_rows(t, "test");
  EXPECT_EQ(whole.rows, 6);
  EXPECT_EQ(whole.cols, 8);
  EXPECT_EQ(whole.stride, 8);
  const Rows slice = as_rows(t.narrow(2, 4, 4), "test");
  EXPECT_EQ(slice.rows, 6);
  EXPECT_EQ(slice.cols, 4);
  EXPECT_EQ(slice.stride, 8);
  const Rows one = as_rows(t.narrow(1, 1, 1), "test");
  EXPECT_EQ(one.rows, 2);
  EXPECT_EQ(one.stride, 24);
  EXPECT_EQ(as_rows(t.reshape({48}), "test").rows, 1);
  EXPECT_LOAM_ERROR(as_rows(t.narrow(1, 0, 2), "test"), ErrorCode::kInvalidArgument, "test: shape [2, 2, 8]");
  EXPECT_LOAM_ERROR(as_rows(t.transpose(1, 2), "test"), ErrorCode::kInvalidArgument, "has stride 8, not 1");
  EXPECT_EQ(as_rows(t.narrow(0, 0, 0), "test").rows, 0);
}

}  // namespace
}  // namespace loam
