#pragma once

#include <functional>
#include <memory>
#include <string>

#include "backend/operations.h"
#include "kernels/gpu/device_memory.h"
#include "kernels/gpu/portability.h"

namespace kvcal::gpu {

/// Multipliers of the sums of FP8 codes; none where null.
struct ProductScales {
  const float* x = nullptr;       ///< one, or [rows] with per_row
  const float* weight = nullptr;  ///< one, or [out] with per_feature
  bool per_row = false, per_feature = false;
};

/// out[r, n] (+)= sum_k x[r, k] · weight[n, k] + bias[n], summed in float32.
struct MatmulProblem {
  ComputeType type = ComputeType::kFloat32;  ///< of x and weight
  bool is_fp8 = false;                       ///< they are E4M3FN codes, whatever type says
  ProductScales scales = {};                 ///< of FP8
  const void* x = nullptr;                   ///< [rows, in]
  const void* weight = nullptr;              ///< [out, in]
  const float* bias = nullptr;               ///< [out], or null
  float* out = nullptr;                      ///< [rows, out] with row stride out_stride
  bool accumulate = false;
  int64_t rows = 0, in = 0, out_features = 0, out_stride = 0;
  bool is_decoding = false;  ///< MatmulArgs::is_decoding

  size_t element_bytes() const { return is_fp8 ? 1 : bytes_of(type); }
};

/// The vendor's matrix library, found when the program runs.
class VendorMatmul {
 public:
  virtual ~VendorMatmul() = default;
  virtual std::string name() const = 0;  ///< "cuBLASLt 13.0.2"
  /// Whether it multiplies by a weight of this shape, whatever the number of rows.
  virtual bool takes(const MatmulProblem& problem) = 0;
  /// A row's bytes depend neither on the other rows nor on their number, unless is_decoding.
  virtual void run(Stream& stream, DeviceMemory& memory, const MatmulProblem& problem) = 0;
};

/// Calls multiply for as many rows at a time, so that a library whose kernels depend on the number
/// of rows always gets the same. The last rows go through memory of our own, behind which stands
/// whatever was there, and nobody reads what comes of it.
void run_in_fixed_rows(Stream& stream, DeviceMemory& memory, const MatmulProblem& problem,
                       int64_t rows, const std::function<void(const MatmulProblem&)>& multiply);

/// out += bias in every row, for libraries that know no bias.
void add_bias(Stream& stream, const MatmulProblem& problem);

/// Null where the library is not installed or fits no version we know.
std::unique_ptr<VendorMatmul> open_vendor_matmul();

}  // namespace kvcal::gpu
