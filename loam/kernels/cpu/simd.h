// The instruction sets that kernels are compiled for: scalar code as the base, then SSE4, AVX2 (with FMA) and AVX-512,
// chosen at run time. Include before any Highway header. AVX-512 machines of any generation use the AVX3 code.
#pragma once

#define HWY_DISABLED_TARGETS HWY_SSSE3
