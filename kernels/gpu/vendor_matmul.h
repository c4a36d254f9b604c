#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "kernels/gpu/device_memory.h"
#include "kernels/gpu/portability.h"

namespace kvcal::gpu {

/// Factors of the sums of FP8 codes; none where null.
struct ProductScales {
  const float* x = nullptr;       ///< one, or [rows] with per_row
  const float* weight = nullptr;  ///< one, or [out] with per_feature
  bool per_row = false, per_feature = false;
};

/// out[r, n] (+)= sum_k x[r, k] · weight[n, k] + bias[n], summed in float32 and rounded to
/// out_type.
struct MatmulProblem {
  ComputeType type = ComputeType::kFloat32;  ///< of x and weight
  bool is_fp8 = false;                       ///< x and weight are E4M3FN codes; type does not apply
  ProductScales scales = {};                 ///< of FP8
  const void* x = nullptr;                   ///< [rows, in]
  const void* weight = nullptr;              ///< [out, in]
  const float* bias = nullptr;               ///< [out], or null
  void* out = nullptr;  ///< [rows, out] of out_type, with row stride out_stride (elements)
  ComputeType out_type = ComputeType::kFloat32;  ///< another one only for libraries, without a bias
  bool accumulate = false;
  int64_t rows = 0, in = 0, out_features = 0, out_stride = 0;
  bool is_decoding = false;  ///< MatmulArgs::is_decoding

  size_t element_bytes() const { return is_fp8 ? 1 : bytes_of(type); }
  KVCAL_HD float* floats() const { return static_cast<float*>(out); }  ///< out of float32
  /// Where a row of out begins.
  void* out_row(int64_t row) const {
    return static_cast<std::byte*>(out) +
           static_cast<size_t>(row * out_stride) * bytes_of(out_type);
  }
  /// The problem of some of its rows.
  MatmulProblem of_rows(int64_t first, int64_t count) const {
    MatmulProblem part = *this;
    part.x = static_cast<const std::byte*>(x) + static_cast<size_t>(first * in) * element_bytes();
    part.out = out_row(first);
    if (scales.per_row) part.scales.x += first;
    part.rows = count;
    return part;
  }
};

/// The vendor's matrix library, loaded at run time.
class VendorMatmul {
 public:
  virtual ~VendorMatmul() = default;
  virtual std::string name() const = 0;  ///< "cuBLASLt 13.0.2"
  /// Whether it supports a weight of this shape, for any number of rows.
  virtual bool takes(const MatmulProblem& problem) = 0;
  /// Whether products may run on several streams at a time.
  virtual bool runs_side_by_side() const = 0;
  /// Runs the product. A row's bytes depend neither on the other rows nor on their number, unless
  /// is_decoding.
  virtual void run(Stream& stream, DeviceMemory& memory, const MatmulProblem& problem) = 0;
  /// The algorithms that it has chosen so far, for prefill alone.
  virtual std::vector<ProductChoice> choices() const { return {}; }
};

/// Calls multiply with a fixed number of rows, for libraries whose choice of kernel depends on that
/// number. The last rows go through a buffer; its unused rows hold arbitrary values, and their
/// results are not read.
void run_in_fixed_rows(Stream& stream, DeviceMemory& memory, const MatmulProblem& problem,
                       int64_t rows, const std::function<void(const MatmulProblem&)>& multiply);

/// out += bias in every row, for libraries without a bias.
void add_bias(Stream& stream, const MatmulProblem& problem);

struct MatmulOptions {
  std::string device;           ///< its kind: "NVIDIA H200, sm_90"
  bool times_products = false;  ///< BackendOptions::times_products
};
/// The library, or why it cannot be used and what to do.
struct OpenedMatmul {
  std::unique_ptr<VendorMatmul> matmul;
  std::string problem;
};
/// Throws Error where the user named a library that cannot be used.
OpenedMatmul open_vendor_matmul(const MatmulOptions& options);

}  // namespace kvcal::gpu
