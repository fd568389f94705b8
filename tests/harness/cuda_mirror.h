// Kernels of the GPU under the tests of the CPU's: a context whose tensors lie in the host's memory while each kernel
// call is carried to the GPU and back. With it whatever is tested against an independent reference on the CPU, from one
// kernel to the gradients of a whole model, is tested on the GPU too.
#pragma once

#include "loam/kernels/kernel_table.h"

namespace loam::testing {

// Whether LOAM_TEST_DEVICE=cuda asks for it.
bool on_cuda();

// make_exec_resources({}, threads), with the kernels of the GPU if on_cuda(). Around everything that a call may touch
// the GPU's memory holds marks; one that is gone after the call is a failure of the test.
ExecResources test_resources(int threads = 1, Numerics numerics = Numerics::fast);

}  // namespace loam::testing
