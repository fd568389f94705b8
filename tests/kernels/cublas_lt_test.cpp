#include "loam/kernels/cuda/cublas_lt.h"

#include <gtest/gtest.h>

#include "loam/base/file.h"
#include "tests/harness/expect_error.h"
#include "tests/harness/temp_dir.h"

namespace loam::cuda {
namespace {

CublasLt load(const std::vector<std::string>& places) { return load_cublas_lt(places); }

TEST(CublasLt, OneErrorSaysWhatIsMissingAndWhereItComesFrom) {
  const std::string missing = "/nowhere/libcublasLt.so.13";
  EXPECT_LOAM_ERROR(load({missing, "/elsewhere/it"}), ErrorCode::kUnavailable, missing);
  EXPECT_LOAM_ERROR(load({missing}), ErrorCode::kUnavailable, "nvidia-cublas");
  EXPECT_LOAM_ERROR(load({missing}), ErrorCode::kUnavailable, "LD_LIBRARY_PATH");
  const testing::TempDir directory;
  const Path damaged = directory / "damaged.so";
  write_file_atomic(damaged, "no library");
  EXPECT_LOAM_ERROR(load({missing, damaged, "/elsewhere/it"}), ErrorCode::kUnavailable, damaged.string());
  EXPECT_LOAM_ERROR(load({missing, "libm.so.6"}), ErrorCode::kUnavailable, "cublasLtCreate");  // another library
}

// What its documentation says, as far as it goes without a GPU.
TEST(CublasLt, ItsFunctionsAreTheHeaders) {
  const CublasLt* lt = nullptr;
  try {
    lt = &cublas_lt();
  } catch (const Error& error) {
    if (std::string_view(error.what()).find("No such file") == std::string_view::npos) throw;
    GTEST_SKIP() << error.what();
  }
  EXPECT_STRNE(lt->status_string(CUBLAS_STATUS_NOT_SUPPORTED), lt->status_string(CUBLAS_STATUS_SUCCESS));
  cublasLtMatmulDescOpaque_t product{};
  EXPECT_EQ(lt->init_product(&product, 1, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_ALLOC_FAILED);
  EXPECT_EQ(lt->init_product(&product, sizeof product, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  const int32_t value = 0;
  EXPECT_EQ(lt->set_product(&product, CUBLASLT_MATMUL_DESC_TRANSA, &value, 1), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(lt->set_product(&product, CUBLASLT_MATMUL_DESC_TRANSA, &value, sizeof value), CUBLAS_STATUS_SUCCESS);
}

}  // namespace
}  // namespace loam::cuda
