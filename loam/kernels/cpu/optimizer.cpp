#include "loam/kernels/cpu/register.h"

namespace loam {

void register_optimizer_kernels(KernelTable&) {}

}  // namespace loam
