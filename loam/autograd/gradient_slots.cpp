#include "loam/autograd/gradient_slots.h"

#include "loam/kernels/kernel_table.h"

namespace loam {

int32_t GradientSlots::add(const Tensor& tensor) {
  const auto index = static_cast<int32_t>(regions_.size());
  const Dims strides = contiguous_strides(tensor.shape());
  Region root;
  root.root = index;
  root.shape = tensor.shape();
  root.strides = strides;
  regions_.push_back(std::move(root));
  values_.push_back({index, tensor.shape(), strides, tensor.dtype()});
  return size() - 1;
}

int32_t GradientSlots::add_part(int32_t parent, const Tensor& parent_value, const Tensor& view) {
  const Value& whole = value(parent);
  for (int axis = 0; axis < whole.shape.rank(); ++axis) {
    LOAM_CHECK(whole.shape[axis] == 1 || whole.strides[axis] == parent_value.strides()[axis],
               "tape: cannot take a part of shape {} with strides {}: it is not contiguous", whole.shape.str(),
               parent_value.strides().str());
  }
  LOAM_CHECK(view.storage() == parent_value.storage() && view.dtype() == whole.dtype,
             "tape: a part of shape {} does not share the memory of its parent {}", view.shape().str(),
             whole.shape.str());
  const int32_t outer = whole.region;
  int32_t index = -1;
  if (view.numel() == parent_value.numel()) {
    index = outer;
  } else {
    Region part;
    part.parent = outer;
    part.root = region(outer).root;
    part.offset = region(outer).offset + (static_cast<const std::byte*>(view.view().data) -
                                          static_cast<const std::byte*>(parent_value.view().data)) /
                                             dtype_size(view.dtype());
    part.shape = view.shape();
    part.strides = view.strides();
    for (int32_t sibling : region(outer).parts) {
      const Region& s = region(sibling);
      if (s.offset == part.offset && s.shape == part.shape && s.strides == part.strides) index = sibling;
    }
    if (index < 0) {
      index = static_cast<int32_t>(regions_.size());
      regions_.push_back(std::move(part));
      region(outer).parts.push_back(index);
    }
  }
  values_.push_back({index, view.shape(), view.strides(), view.dtype()});
  return size() - 1;
}

void GradientSlots::truncate(int32_t size) {
  while (this->size() > size) {
    regions_.pop_back();
    values_.pop_back();
  }
}

void GradientSlots::clear() {
  values_.clear();
  regions_.clear();
}

bool GradientSlots::within(int32_t inner, int32_t outer) const {
  while (inner >= 0 && inner != outer) inner = region(inner).parent;
  return inner == outer;
}

bool GradientSlots::overlap(int32_t a, int32_t b) const {
  return within(value(a).region, value(b).region) || within(value(b).region, value(a).region);
}

Tensor GradientSlots::memory(int32_t index) const {
  const Region& r = region(index);
  return region(r.root).gradient.as_strided(r.shape, r.strides, r.offset);
}

// Gives a root memory that nobody else reads, with what it held.
void GradientSlots::own_memory(const Context& ctx, int32_t root, DType dtype) {
  Region& r = region(root);
  if (r.gradient && r.gradient.storage().use_count() == 1) return;
  Tensor own = ctx.empty(r.shape, dtype, MemoryKind::gradients);
  if (r.gradient) ctx.kernels->copy(ctx, {r.gradient, own});
  r.gradient = std::move(own);
}

// Prepares a region, of which nothing is written, for its parts to be written one by one.
void GradientSlots::open(const Context& ctx, int32_t index) {
  Region& r = region(index);
  int64_t covered = 0;
  for (int32_t part : r.parts) covered += region(part).shape.product();
  if (covered == r.shape.product()) {
    r.fill = Fill::some;
    r.tiles = r.parts.size();
  } else {
    complete(ctx, index);
  }
}

// Writes zeros wherever nothing was written. The depth of the recursion is that of parts of parts.
void GradientSlots::complete(const Context& ctx, int32_t index) {
  Region& r = region(index);
  if (r.fill == Fill::none) ctx.kernels->fill(ctx, {memory(index), 0.0f});
  if (r.fill == Fill::some) {
    for (size_t i = 0; i < r.tiles; ++i) complete(ctx, r.parts[i]);
  }
  r.fill = Fill::all;
}

GradTarget GradientSlots::target(const Context& ctx, int32_t id) {
  const Value& v = value(id);
  Region& r = region(v.region);
  own_memory(ctx, r.root, v.dtype);
  bool written = false;
  std::vector<int32_t> outer;
  for (int32_t at = r.parent; at >= 0; at = region(at).parent) outer.push_back(at);
  for (auto at = outer.rbegin(); at != outer.rend() && !written; ++at) {
    const Region& o = region(*at);
    if (o.fill == Fill::none) open(ctx, *at);
    // A part that came later lies across the others.
    if (o.fill == Fill::some && o.parts.size() > o.tiles) complete(ctx, *at);
    written = region(*at).fill == Fill::all;
  }
  if (!written && r.fill == Fill::some) complete(ctx, v.region);
  written |= r.fill == Fill::all;
  r.fill = Fill::all;
  const Tensor& whole = region(r.root).gradient;
#ifdef LOAM_DEBUG
  ++whole.storage()->version;
#endif
  return {whole.as_strided(v.shape, v.strides, r.offset), written};
}

void GradientSlots::contribute(const Context& ctx, int32_t id, const Tensor& gradient) {
  const Value& v = value(id);
  Region& r = region(v.region);
  LOAM_CHECK(gradient.shape() == v.shape && gradient.dtype() == v.dtype, "tape: gradient {} {} for a value {} {}",
             dtype_name(gradient.dtype()), gradient.shape().str(), dtype_name(v.dtype), v.shape.str());
  const bool row_major = v.strides == contiguous_strides(v.shape) && gradient.is_contiguous();
  if (r.parent < 0 && r.fill == Fill::none && row_major) {
    r.gradient = gradient.reshape(r.shape);
    r.fill = Fill::all;
    return;
  }
  const GradTarget to = target(ctx, id);
  ctx.kernels->copy(ctx, {gradient, to.view, to.accumulate});
}

Tensor GradientSlots::buffer(const Context& ctx, int32_t id) const {
  return ctx.empty(value(id).shape, value(id).dtype, MemoryKind::gradients);
}

Tensor GradientSlots::take(const Context& ctx, int32_t id) {
  const int32_t index = value(id).region;
  Region& r = region(index);
  if (r.fill == Fill::none) return {};
  complete(ctx, index);
  r.fill = Fill::none;
  for (int32_t part : r.parts) region(part).fill = Fill::none;
  return std::move(r.gradient);
}

void GradientSlots::finish(const Context& ctx) {
  for (size_t i = 0; i < regions_.size(); ++i) {
    Region& r = regions_[i];
    if (r.leaf && r.fill != Fill::none) {
      complete(ctx, static_cast<int32_t>(i));
    } else if (r.parent < 0) {
      r.gradient = {};
    }
  }
}

}  // namespace loam
