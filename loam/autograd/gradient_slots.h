// The gradients of the values of one tape, and who shares memory with whom. Inner workings of Tape.
//
// A region is a piece of gradient memory that is written as a whole. The values of ops have regions of their own
// (roots); a part of a value has a region within its parent's, at the same place and with the same strides as the part
// has in the parent's value. Values that cover the same elements (a reshaped view) share one region.
#pragma once

#include <cstdint>
#include <vector>

#include "loam/autograd/context.h"
#include "loam/autograd/param.h"

namespace loam {

class GradientSlots {
 public:
  int32_t add(const Tensor& value);
  int32_t add_part(int32_t parent, const Tensor& parent_value, const Tensor& view);
  void mark_leaf(int32_t id) { region_of(id).leaf = true; }

  int32_t size() const { return static_cast<int32_t>(values_.size()); }
  // Drops the values from `size` on. REQUIRES: they have regions of their own.
  void truncate(int32_t size);
  void clear();

  // True if writing the gradient of one changes that of the other.
  bool overlap(int32_t a, int32_t b) const;

  // Where the next contribution to a gradient goes; it counts as written.
  GradTarget target(const Context& ctx, int32_t id);
  // Adds a contribution that is at hand. The first one of a root is shared, not copied, and never written to: who adds
  // to it later does so in a copy, unless nobody else holds it.
  void contribute(const Context& ctx, int32_t id, const Tensor& gradient);
  // A contiguous buffer like the value's gradient, uninitialised.
  Tensor buffer(const Context& ctx, int32_t id) const;

  // The whole gradient of a root, contiguous; empty if none came. take() leaves the slot empty.
  Tensor take(const Context& ctx, int32_t id);
  Tensor peek(int32_t id) const { return region_of(id).gradient; }
  // Frees all gradients but those of leaves, and fills the gaps in those.
  void finish(const Context& ctx);

 private:
  enum class Fill : uint8_t { none, some, all };  // some: its first `tiles` parts know

  struct Region {
    int32_t parent = -1, root = -1;
    int64_t offset = 0;  // of the first element in the root's buffer
    Shape shape;
    Dims strides;
    Fill fill = Fill::none;
    bool leaf = false;
    std::vector<int32_t> parts;
    size_t tiles = 0;  // parts at the time it was opened, which cover it; a segment run again may add others
    Tensor gradient;   // of roots only
  };
  struct Value {
    int32_t region = -1;
    Shape shape;
    Dims strides;
    DType dtype = DType::f32;
  };

  const Value& value(int32_t id) const { return values_[static_cast<size_t>(id)]; }
  Region& region(int32_t index) { return regions_[static_cast<size_t>(index)]; }
  const Region& region(int32_t index) const { return regions_[static_cast<size_t>(index)]; }
  Region& region_of(int32_t id) { return region(value(id).region); }
  const Region& region_of(int32_t id) const { return region(value(id).region); }

  bool within(int32_t inner, int32_t outer) const;
  void own_memory(const Context& ctx, int32_t root, DType dtype);
  void open(const Context& ctx, int32_t index);
  void complete(const Context& ctx, int32_t index);
  Tensor memory(int32_t index) const;

  std::vector<Value> values_;
  std::vector<Region> regions_;
};

}  // namespace loam
