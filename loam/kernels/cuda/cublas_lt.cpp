#include "loam/kernels/cuda/cublas_lt.h"

#include <dlfcn.h>

#include <array>
#include <filesystem>

#include "loam/base/error.h"

namespace loam::cuda {
namespace {

namespace fs = std::filesystem;

std::array<std::string, 4> places_of_cublas_lt() {
  const std::string name = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return {name, program.parent_path().parent_path() / "lib" / name, fs::path(LOAM_CUDA_LIBRARIES) / name,
          "/usr/local/cuda/lib64/" + name};
}

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function) fail(ErrorCode::kUnavailable, "cuda: cuBLASLt: {}", dlerror());
}

}  // namespace

CublasLt load_cublas_lt(std::span<const std::string> places) {
  void* library = nullptr;
  std::string reason;  // of the first, or of the last that is there and no good
  for (const std::string& place : places) {
    library = dlopen(place.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (library) break;
    const std::string why = dlerror();
    std::error_code error;
    if (reason.empty() || fs::exists(place, error)) reason = why;
  }
  if (!library) {
    fail(ErrorCode::kUnavailable,
         "cuda: cuBLASLt, which multiplies matrices there, cannot be loaded: {}; it comes with the CUDA toolkit and "
         "with pip's nvidia-cublas: name the folder that holds it in LD_LIBRARY_PATH",
         reason);
  }
  CublasLt functions;
#define LOAM_FIND(member, name) find(library, #name, functions.member);
  LOAM_CUBLAS_LT_FUNCTIONS(LOAM_FIND)
#undef LOAM_FIND
  return functions;
}

const CublasLt& cublas_lt() {
  static const CublasLt functions = load_cublas_lt(places_of_cublas_lt());
  return functions;
}

}  // namespace loam::cuda
