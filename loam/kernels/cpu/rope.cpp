#include "loam/kernels/cpu/register.h"

namespace loam {

void register_rope_kernels(KernelTable&) {}

}  // namespace loam
