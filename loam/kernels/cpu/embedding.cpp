#include "loam/kernels/cpu/register.h"

namespace loam {

void register_embedding_kernels(KernelTable&) {}

}  // namespace loam
