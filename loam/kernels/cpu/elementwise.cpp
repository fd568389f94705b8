#include "loam/kernels/cpu/register.h"

namespace loam {

void register_elementwise_kernels(KernelTable&) {}

}  // namespace loam
