#include "loam/nn/param_store.h"

#include <algorithm>
#include <cmath>

#include "loam/base/hash.h"
#include "loam/base/philox.h"
#include "loam/base/suggest.h"
#include "loam/ops/basic.h"

namespace loam {
namespace {

// Parameters start at multiples of this many elements: 64 bytes in the narrowest dtype, so that the weights of any
// dtype and the f32 gradients share one layout.
constexpr int64_t kAlignment = 32;

int64_t aligned(int64_t elements) { return (elements + kAlignment - 1) / kAlignment * kAlignment; }

void check_slices(const ParamSpec& spec) {
  int64_t row = 0;
  for (const RowSlice& slice : spec.slices) {
    LOAM_CHECK(slice.begin == row && slice.rows > 0, "parameter {}: slice {} does not begin at row {}", spec.name,
               slice.name, row);
    row += slice.rows;
  }
  LOAM_CHECK(spec.slices.empty() || row == spec.shape[0], "parameter {}: its slices have {} rows of {}", spec.name, row,
             spec.shape[0]);
}

}  // namespace

ParamRef ParamStore::declare(ParamSpec spec) {
  LOAM_CHECK(groups_.empty(), "parameter {}: declared after allocation", spec.name);
  check_slices(spec);
  const auto index = static_cast<int32_t>(specs_.size());
  LOAM_CHECK(by_name_.emplace(spec.name, index).second, "parameter {} is declared twice", spec.name);
  specs_.push_back(std::move(spec));
  return ref(index);
}

void ParamStore::allocate(const ExecContext& ctx, DType compute_dtype, bool with_gradients) {
  LOAM_CHECK(groups_.empty(), "parameters are allocated twice");
  LOAM_CHECK(is_float(compute_dtype), "parameters: compute dtype {} is not f32, bf16 or f16",
             dtype_name(compute_dtype));
  threads_ = ctx.threads;
  std::vector<int64_t> sizes;
  for (int32_t i = 0; i < size(); ++i) {
    const ParamSpec& s = spec(i);
    const auto found = std::find_if(groups_.begin(), groups_.end(), [&](const ParamGroup& g) {
      return g.layer == s.layer && g.kind == s.kind && g.trainable == s.trainable;
    });
    const auto g = static_cast<size_t>(found - groups_.begin());
    if (found == groups_.end()) {
      const DType dtype = s.kind == ParamKind::vector ? DType::f32 : compute_dtype;
      groups_.push_back({s.layer, s.kind, s.trainable, dtype, {}, {}, {}});
      sizes.push_back(0);
    }
    groups_[g].params.push_back(i);
    group_of_.push_back(static_cast<int32_t>(g));
    offsets_.push_back(sizes[g]);
    sizes[g] += aligned(s.shape.product());
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    ParamGroup& group = groups_[g];
    group.weight = ctx.empty({sizes[g]}, group.dtype, MemoryKind::weights);
    ops::fill(ctx, group.weight, 0);
    if (!with_gradients || !group.trainable) continue;
    group.gradient = ctx.empty({sizes[g]}, DType::f32, MemoryKind::gradients);
    ops::fill(ctx, group.gradient, 0);
  }
  fresh_.assign(specs_.size(), true);
}

namespace {

double initial_value(const ParamInit& init, const PhiloxStream& stream, int64_t index) {
  constexpr double kCut = 3;
  constexpr uint64_t kTry = uint64_t{1} << 48;  // between the numbers of one try and those of the next
  const auto i = static_cast<uint64_t>(index);
  switch (init.kind) {
    case ParamInit::Kind::zeros:
      return 0;
    case ParamInit::Kind::ones:
      return 1;
    case ParamInit::Kind::normal:
      return init.std * stream.normal(i);
    case ParamInit::Kind::truncated_normal:
      break;
  }
  double value = stream.normal(i);
  for (uint64_t again = kTry; std::abs(value) > kCut; again += kTry) value = stream.normal(i + again);
  return init.std * value;
}

template <class T>
void fill_values(const ParamSpec& spec, uint64_t seed, T* out, int threads) {
  constexpr int64_t kGrain = 4096;
  const PhiloxStream stream{seed, hash64(spec.name)};
  const auto fill = [&](const ParamInit& init, int64_t first, int64_t count) {
    parallel_for(threads, count, kGrain, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = first + begin; i < first + end; ++i) {
        out[i] = T(static_cast<float>(initial_value(init, stream, i)));
      }
    });
  };
  if (spec.slices.empty()) return fill(spec.init, 0, spec.shape.product());
  const int64_t width = spec.shape.product() / spec.shape[0];
  for (const RowSlice& slice : spec.slices) {
    fill({spec.init.kind, slice.std > 0 ? slice.std : spec.init.std}, slice.begin * width, slice.rows * width);
  }
}

}  // namespace

void ParamStore::initialize(uint64_t seed) {
  for (int32_t i = 0; i < size(); ++i) {
    Tensor weight = value(i);
    const bool here = weight.device().kind == DeviceKind::cpu;
    const Tensor host = here ? weight : Tensor::empty(*Arena::create({}), weight.shape(), weight.dtype());
    visit_float(weight.dtype(), "parameters",
                [&](auto type) { fill_values(spec(i), seed, host.data<decltype(type)>(), threads_); });
    if (!here) weight.copy_from(host);
  }
  mark_changed();
}

ParamRef ParamStore::find(const std::string& name) {
  if (const auto found = by_name_.find(name); found != by_name_.end()) return ref(found->second);
  std::vector<std::string> names;
  for (const ParamSpec& spec : specs_) names.push_back(spec.name);
  const std::string nearest = nearest_name(name, names);
  fail(ErrorCode::kNotFound, "there is no parameter \"{}\"{}", name,
       nearest.empty() ? "" : fmt::format("; the nearest is \"{}\"", nearest));
}

int32_t ParamStore::group_of(int32_t index) const {
  LOAM_CHECK(!groups_.empty(), "parameters are not allocated yet");
  return group_of_[static_cast<size_t>(index)];
}

const ParamGroup& ParamStore::group(int32_t index) const { return groups_[static_cast<size_t>(group_of(index))]; }

Tensor ParamStore::part_of_group(const Tensor& group_tensor, int32_t index) const {
  LOAM_CHECK(group_tensor.numel() == group(index).weight.numel(), "parameter {}: its group has {} elements, not {}",
             spec(index).name, group(index).weight.numel(), group_tensor.numel());
  const Shape& shape = spec(index).shape;
  return group_tensor.narrow(0, offsets_[static_cast<size_t>(index)], shape.product()).reshape(shape);
}

Tensor ParamStore::value(int32_t index) { return part_of_group(group(index).weight, index); }

Tensor ParamStore::gradient(int32_t index) const {
  const Tensor& gradient = group(index).gradient;
  return gradient ? part_of_group(gradient, index) : Tensor();
}

bool ParamStore::trainable(int32_t index) const { return static_cast<bool>(group(index).gradient); }

GradTarget ParamStore::grad_target(int32_t index) {
  const Tensor target = gradient(index);
  if (!target) return {};
  const bool accumulate = !fresh_[static_cast<size_t>(index)];
  fresh_[static_cast<size_t>(index)] = false;
  return {target, accumulate};
}

int64_t ParamStore::parameter_count() const {
  int64_t count = 0;
  for (const ParamSpec& spec : specs_) count += spec.shape.product();
  return count;
}

void ParamStore::clear_gradients() { fresh_.assign(specs_.size(), true); }

void ParamStore::finish_gradients(const ExecContext& ctx) {
  for (int32_t i = 0; i < size(); ++i) {
    if (!fresh_[static_cast<size_t>(i)]) continue;
    if (const Tensor target = gradient(i)) ops::fill(ctx, target, 0);
    fresh_[static_cast<size_t>(i)] = false;
  }
}

}  // namespace loam
