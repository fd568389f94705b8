// The parameters of a model: declared by modules, laid out in contiguous groups, seen by the tape through ParamRef.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "loam/autograd/context.h"
#include "loam/autograd/param.h"
#include "loam/tensor/tensor.h"

namespace loam {

// What a parameter is decides its dtype and its optimizer group.
enum class ParamKind : uint8_t {
  matrix,     // compute dtype, decayed
  embedding,  // compute dtype, decayed; rows are looked up
  vector,     // norm weights and biases: f32, not decayed
};

struct ParamInit {
  // truncated_normal: drawn again beyond 3 standard deviations.
  enum class Kind : uint8_t { normal, truncated_normal, ones, zeros } kind = Kind::normal;
  double std = 0.02;
};

// Rows [begin, begin + rows) of a fused parameter, under the name that files use.
struct RowSlice {
  std::string name;
  int64_t begin, rows;
  double std = 0;  // of its initial values; 0: the parameter's
};

struct ParamSpec {
  std::string name;  // "layers.3.attention.qkv"
  Shape shape;
  ParamKind kind = ParamKind::matrix;
  int layer = -1;  // -1: outside the layers
  ParamInit init;
  bool trainable = true;
  double lr_scale = 1;           // of its learning rate
  std::vector<RowSlice> slices;  // empty, or a cut of all rows in order
};

// Parameters of one (layer, kind, trainable), contiguous, each aligned to 64 bytes; padding elements are 0 in weight
// and gradient.
struct ParamGroup {
  int layer;
  ParamKind kind;
  bool trainable;
  DType dtype;
  std::vector<int32_t> params;
  Tensor weight;    // [n] in dtype
  Tensor gradient;  // [n] f32; empty if frozen or without gradients
};

// The handles that value() and gradient() give share the group's memory: writing to them changes the parameter.
// Thread safety: as ParamSource; declare(), allocate(), initialize(), clear_gradients() and finish_gradients() by one
// thread, with no other at work.
class ParamStore : public ParamSource {
 public:
  ParamStore() = default;
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;

  // Before allocate(). Error for a repeated name, or for slices that do not cut all rows in order.
  ParamRef declare(ParamSpec spec);
  // Once, after all declarations: weights and gradients of every group, all 0. After an Error{kOutOfMemory} the store
  // can only be destroyed.
  void allocate(const ExecContext& ctx, DType compute_dtype, bool with_gradients);
  // Fills the weights from their ParamInit: Philox keyed by (seed, hash of the name), one element an index, so that
  // values depend on neither threads nor layout.
  void initialize(uint64_t seed);

  int64_t size() const { return static_cast<int64_t>(specs_.size()); }
  const ParamSpec& spec(int32_t index) const { return specs_[static_cast<size_t>(index)]; }
  ParamRef ref(int32_t index) { return {this, index}; }
  ParamRef find(const std::string& name);  // Error{kNotFound} with the nearest name
  std::span<ParamGroup> groups() { return groups_; }
  Tensor gradient(int32_t index) const;  // [shape] f32; empty if it has none
  // The part of a group's 1-d tensor (gradient, master, moment) that belongs to a parameter, in its shape.
  Tensor part_of_group(const Tensor& group_tensor, int32_t index) const;
  int32_t group_of(int32_t index) const;
  int64_t offset_in_group(int32_t index) const { return offsets_[static_cast<size_t>(index)]; }  // in elements
  int64_t parameter_count() const;  // elements, without padding

  // Gradients: marks all as empty; the first contribution overwrites.
  void clear_gradients();
  // Zero-fills the gradients that got no contribution since then.
  void finish_gradients(const ExecContext& ctx);

  // Grows by one with every change of the weights, so that users of pre-packed copies know when to refresh.
  int64_t generation() const { return generation_; }
  void mark_changed() { ++generation_; }

  // ParamSource
  Tensor value(int32_t index) override;
  bool trainable(int32_t index) const override;  // false too for a store without gradients
  GradTarget grad_target(int32_t index) override;
  const std::string& name(int32_t index) const override { return spec(index).name; }

 private:
  const ParamGroup& group(int32_t index) const;

  std::vector<ParamSpec> specs_;
  std::unordered_map<std::string, int32_t> by_name_;
  std::vector<int64_t> offsets_;  // of each parameter in its group, in elements
  std::vector<int32_t> group_of_;
  std::vector<bool> fresh_;  // no contribution since clear_gradients()
  std::vector<ParamGroup> groups_;
  int64_t generation_ = 0;
  int threads_ = 1;
};

}  // namespace loam
