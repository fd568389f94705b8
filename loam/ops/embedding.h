#pragma once

#include "loam/autograd/context.h"
#include "loam/autograd/param.h"

namespace loam::ops {

// ids (any shape [...], i32) and table [V,C] -> [..., C]. Error{kInvalidArgument} that names the id and V if an id is
// outside [0, V).
Var embedding(const Context& ctx, const Tensor& ids, const ParamRef& table);

// The same of a table that is no parameter; records nothing.
Tensor table_rows(const Context& ctx, const Tensor& ids, const Tensor& table);

}  // namespace loam::ops
