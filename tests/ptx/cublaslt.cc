// Stands in for cuBLASLt: products on the CPU with sums in double, and checks of what a caller asks
// for. It takes what kernels/gpu/cuda/cublaslt.cu asks of the library and nothing else; whether the
// real library does the same it cannot tell.
#include <cublasLt.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "numbers.h"
#include "report.h"
#include "runtime.h"

namespace kvcal::ptx {
namespace {

struct Description {
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  const float *a_scale = nullptr, *b_scale = nullptr;
};
struct Layout {
  cudaDataType_t type;
  uint64_t rows, columns;  ///< columns lie one behind the other
  int64_t stride;
};
/// A product as it was asked for; d [M, N] = aᵀ [K, M]ᵀ · b [K, N].
struct Product {
  Description description;
  Layout a, b, d;
  const void *a_data, *b_data, *c_data;
  void* d_data;
  float alpha, beta;
};

Description& description_of(cublasLtMatmulDesc_t handle) {
  return *reinterpret_cast<Description*>(handle);
}
const Layout& layout_of(cublasLtMatrixLayout_t handle) {
  return *reinterpret_cast<const Layout*>(handle);
}

size_t bytes_of(cudaDataType_t type) {
  return type == CUDA_R_32F ? 4 : type == CUDA_R_8F_E4M3 ? 1 : 2;
}

float element(const void* data, cudaDataType_t type, size_t i) {
  const auto* const bytes = static_cast<const uint8_t*>(data) + i * bytes_of(type);
  uint16_t half = 0;
  float value = 0.0f;
  switch (type) {
    case CUDA_R_32F:
      std::memcpy(&value, bytes, sizeof value);
      return value;
    case CUDA_R_8F_E4M3:
      return float_of_e4m3(*bytes);
    default:
      break;
  }
  std::memcpy(&half, bytes, sizeof half);
  return type == CUDA_R_16F ? float_of_half(half) : float_of_bfloat(half);
}

void set_element(void* data, cudaDataType_t type, size_t i, float value) {
  auto* const bytes = static_cast<uint8_t*>(data) + i * bytes_of(type);
  const uint16_t half = type == CUDA_R_16F ? half_of(value) : bfloat_of(value);
  if (type == CUDA_R_32F)
    std::memcpy(bytes, &value, sizeof value);
  else
    std::memcpy(bytes, &half, sizeof half);
}

/// Whether the real library has such a product. Source: cuBLAS documentation, cublasLtMatmul,
/// "supported data types", and the requirements of FP8 kernels.
bool is_supported(const Description& description, const Layout& a, const Layout& b,
                  const Layout& d) {
  const bool is_fp8 = a.type == CUDA_R_8F_E4M3;
  const bool types_fit = d.type == CUDA_R_32F || d.type == a.type ||
                         (is_fp8 && (d.type == CUDA_R_16BF || d.type == CUDA_R_16F));
  if (a.type != b.type || !types_fit) return false;
  if (description.a != CUBLAS_OP_T || description.b != CUBLAS_OP_N) return false;
  const bool has_bias = description.epilogue == CUBLASLT_EPILOGUE_BIAS;
  return !is_fp8 || (a.rows % 16 == 0 && a.columns % 16 == 0 && d.stride % 16 == 0 && !has_bias);
}

std::vector<float> column_of(const Layout& layout, const void* data, uint64_t column) {
  std::vector<float> values(layout.rows);
  for (uint64_t k = 0; k < layout.rows; ++k)
    values[k] = element(data, layout.type, column * static_cast<uint64_t>(layout.stride) + k);
  return values;
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  constexpr size_t kSums = 8;  // that a processor adds beside each other
  double sums[kSums] = {};
  size_t k = 0;
  for (; k + kSums <= a.size(); k += kSums)
    for (size_t i = 0; i < kSums; ++i) sums[i] += double{a[k + i]} * double{b[k + i]};
  for (; k < a.size(); ++k) sums[0] += double{a[k]} * double{b[k]};
  double sum = 0.0;
  for (const double part : sums) sum += part;
  return sum;
}

void multiply(const Product& product) {
  const Description& description = product.description;
  const double scale = double{product.alpha} *
                       double{description.a_scale ? *description.a_scale : 1.0f} *
                       double{description.b_scale ? *description.b_scale : 1.0f};
  std::vector<std::vector<float>> columns;
  for (uint64_t n = 0; n < product.b.columns; ++n)
    columns.push_back(column_of(product.b, product.b_data, n));
  for (uint64_t m = 0; m < product.a.columns; ++m) {
    const std::vector<float> row = column_of(product.a, product.a_data, m);
    for (uint64_t n = 0; n < product.b.columns; ++n) {
      const size_t at = n * static_cast<uint64_t>(product.d.stride) + m;
      double value = dot(row, columns[n]) * scale;
      if (product.beta != 0.0f)
        value += double{product.beta} * double{element(product.c_data, product.d.type, at)};
      if (description.epilogue == CUBLASLT_EPILOGUE_BIAS)
        value += double{element(description.bias, product.d.type, m)};
      set_element(product.d_data, product.d.type, at, static_cast<float>(value));
    }
  }
}

void check_aligned(const void* data, const char* what) {
  if (reinterpret_cast<uintptr_t>(data) % 16 != 0)
    stop(std::string("cuBLASLt: ") + what + " is not aligned to 16 bytes, as was promised");
}

/// $KVCAL_PTX_PRODUCTS=kernels: the library refuses all products, so that kernels of our own run.
bool refuses_all() {
  const char* const asked = std::getenv("KVCAL_PTX_PRODUCTS");
  const std::string name = asked ? asked : "library";
  if (name != "library" && name != "kernels")
    stop("KVCAL_PTX_PRODUCTS is '" + name + "', expected library or kernels");
  return name == "kernels";
}

template <class T>
void copy_attribute(T& to, const void* from, size_t bytes) {
  if (bytes != sizeof(T)) stop("cuBLASLt: an attribute has a wrong size");
  std::memcpy(&to, from, sizeof(T));
}

}  // namespace
}  // namespace kvcal::ptx

using namespace kvcal::ptx;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(new char);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<char*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion() {
  return 130000;
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : "refused";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* handle, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F)
    stop("cuBLASLt: sums are not in float32");
  *handle = reinterpret_cast<cublasLtMatmulDesc_t>(new Description);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t handle) {
  delete &description_of(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  Description& description = description_of(handle);
  int8_t fast_sums = 0;
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      copy_attribute(description.a, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
      copy_attribute(description.b, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      copy_attribute(description.epilogue, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      copy_attribute(description.bias, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      copy_attribute(description.a_scale, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      copy_attribute(description.b_scale, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
      copy_attribute(fast_sums, value, bytes);
      break;
    default:
      stop("cuBLASLt: unknown attribute " + std::to_string(static_cast<int>(attribute)));
  }
  if (fast_sums != 0) stop("cuBLASLt: sums are not in float32");
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* handle, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t stride) {
  *handle = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, columns, stride});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t handle) {
  delete &layout_of(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* handle) {
  *handle = reinterpret_cast<cublasLtMatmulPreference_t>(new char);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t handle) {
  delete reinterpret_cast<char*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void*, size_t bytes) {
  const size_t expected = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? 8 : 4;
  if (bytes != expected) stop("cuBLASLt: a preference has a wrong size");
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t description,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t*,
                                       cublasLtMatmulHeuristicResult_t* result) {
  *result = {};
  const bool takes = !refuses_all() && is_supported(description_of(description), layout_of(a),
                                                    layout_of(b), layout_of(d));
  result->state = takes ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
  return result->state;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t, int asked, cublasLtMatmulHeuristicResult_t* results, int* found) {
  // Several, which are the same, so that a caller has something to choose from.
  constexpr int kAlgorithms = 2;
  *found = 0;
  for (int i = 0; i < kAlgorithms && i < asked; ++i) {
    const cublasStatus_t status =
        cublasLtMatmulAlgoCheck(handle, description, a, b, c, d, nullptr, &results[i]);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    ++*found;
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t*,
                                                    cublasLtMatmulAlgoConfigAttributes_t,
                                                    void* value, size_t bytes, size_t* written) {
  std::memset(value, 0, bytes);
  *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t*, void* workspace, size_t,
                              cudaStream_t stream) {
  const Product product{description_of(description),
                        layout_of(a_layout),
                        layout_of(b_layout),
                        layout_of(d_layout),
                        a,
                        b,
                        c,
                        d,
                        *static_cast<const float*>(alpha),
                        *static_cast<const float*>(beta)};
  if (product.a.rows != product.b.rows || product.d.rows != product.a.columns ||
      product.d.columns != product.b.columns)
    stop("cuBLASLt: the shapes of a product do not fit");
  if (!workspace) stop("cuBLASLt: a product has no workspace");
  check_aligned(a, "the first factor");
  check_aligned(b, "the second factor");
  check_aligned(d, "the result");
  issue(stream, [product] { multiply(product); });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
