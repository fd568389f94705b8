// Parameters held by a test.
#pragma once

#include <string>
#include <vector>

#include "loam/autograd/param.h"
#include "loam/kernels/exec_context.h"

namespace loam::testing {

class TestParams final : public ParamSource {
 public:
  explicit TestParams(const ExecContext& ctx) : ctx_(ctx) {}

  ParamRef add(const Tensor& value, bool trainable = true) {
    params_.push_back({value, {}, trainable, fmt::format("param{}", params_.size())});
    return {this, static_cast<int32_t>(params_.size()) - 1};
  }
  Tensor gradient(const ParamRef& ref) const { return params_[static_cast<size_t>(ref.index)].gradient; }
  void clear_gradients() {
    for (Param& p : params_) p.gradient = {};
  }

  Tensor value(int32_t index) override { return at(index).value; }
  bool trainable(int32_t index) const override { return params_[static_cast<size_t>(index)].trainable; }
  GradTarget grad_target(int32_t index) override {
    Param& p = at(index);
    const bool fresh = !p.gradient;
    if (fresh) p.gradient = ctx_.empty(p.value.shape(), DType::f32, MemoryKind::gradients);
    return {p.gradient, !fresh};
  }
  const std::string& name(int32_t index) const override { return params_[static_cast<size_t>(index)].name; }

 private:
  struct Param {
    Tensor value, gradient;
    bool trainable;
    std::string name;
  };
  Param& at(int32_t index) { return params_[static_cast<size_t>(index)]; }

  ExecContext ctx_;
  std::vector<Param> params_;
};

}  // namespace loam::testing
