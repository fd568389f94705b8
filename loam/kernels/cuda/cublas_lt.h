// cuBLASLt, loaded by the first context on a GPU: a program for the CPU does without its half a gigabyte.
#pragma once

#include <cublasLt.h>

#include <span>
#include <string>

namespace loam::cuda {

// The functions that are used, by the names in cublasLt.h, whose inline ones call those that end in Init_internal.
#define LOAM_CUBLAS_LT_FUNCTIONS(FUNCTION)                         \
  FUNCTION(create, cublasLtCreate)                                 \
  FUNCTION(destroy, cublasLtDestroy)                               \
  FUNCTION(status_string, cublasLtGetStatusString)                 \
  FUNCTION(init_layout, cublasLtMatrixLayoutInit_internal)         \
  FUNCTION(init_product, cublasLtMatmulDescInit_internal)          \
  FUNCTION(set_product, cublasLtMatmulDescSetAttribute)            \
  FUNCTION(init_preference, cublasLtMatmulPreferenceInit_internal) \
  FUNCTION(set_preference, cublasLtMatmulPreferenceSetAttribute)   \
  FUNCTION(find_algorithms, cublasLtMatmulAlgoGetHeuristic)        \
  FUNCTION(matmul, cublasLtMatmul)

struct CublasLt {
#define LOAM_MEMBER(member, name) decltype(&name) member = nullptr;
  LOAM_CUBLAS_LT_FUNCTIONS(LOAM_MEMBER)
#undef LOAM_MEMBER
};

// From the first of `places` that can be loaded; it stays for good. Error{kUnavailable} that says what is wrong with
// it.
CublasLt load_cublas_lt(std::span<const std::string> places);

// The library of the header's version, loaded once: by its name (LD_LIBRARY_PATH and where the system looks), else from
// ../lib of the program, the toolkit that it was built with, /usr/local/cuda. Thread safety: may be called from any
// thread.
const CublasLt& cublas_lt();

}  // namespace loam::cuda
