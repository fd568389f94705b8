// The instruction sets that kernels are compiled for: scalar code as the base, then SSE4, AVX2 (with FMA) and AVX-512,
// chosen at run time. Include before any Highway header. AVX-512 machines of any generation use the AVX3 code.
#pragma once

#ifdef LOAM_STD_THREADS  // for ThreadSanitizer threads do the same with every instruction set, and two build sooner
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3)
#else
#define HWY_DISABLED_TARGETS HWY_SSSE3
#endif
