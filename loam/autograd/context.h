// The context of an op: an ExecContext plus the tape it records on.
#pragma once

#include "loam/kernels/exec_context.h"
#include "loam/kernels/profile.h"
#include "loam/tensor/tensor.h"

namespace loam {

class Tape;

// A tensor together with its place on a tape. Without a place (id < 0) no gradient flows to it. A place means something
// on the tape that gave it only.
struct Var {
  Tensor value;
  int32_t id = -1;

  Var() = default;
  explicit Var(Tensor tensor, int32_t place = -1) : value(std::move(tensor)), id(place) {}
  const Shape& shape() const { return value.shape(); }
  DType dtype() const { return value.dtype(); }
};

// First argument of every op. `tape` null: nothing is recorded (validation, generation).
struct Context : ExecContext {
  Tape* tape = nullptr;

  Context() = default;
  explicit Context(const ExecContext& exec, Tape* recorder = nullptr) : ExecContext(exec), tape(recorder) {}
};

// The part of the model that works until the end of a scope, for a profile: "layers", 3, and within it "attention".
class ModuleScope {
 public:
  ModuleScope(const ExecContext& ctx, const char* part) : ModuleScope(ctx) {
    if (profile_) profile_->enter(part);
  }
  ModuleScope(const ExecContext& ctx, const char* part, int index) : ModuleScope(ctx) {
    if (profile_) profile_->enter(fmt::format("{}.{}", part, index));
  }
  // As KernelProfile::module() gave it.
  ModuleScope(const ExecContext& ctx, int32_t module) : ModuleScope(ctx) {
    if (profile_) profile_->set_module(module);
  }
  ~ModuleScope() {
    if (profile_) profile_->set_module(before_);
  }
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

 private:
  explicit ModuleScope(const ExecContext& ctx) : profile_(ctx.profile), before_(profile_ ? profile_->module() : 0) {}

  KernelProfile* profile_;
  int32_t before_;
};

}  // namespace loam
