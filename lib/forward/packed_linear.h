#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/upload.h"
#include "stored/fp8_checkpoint.h"
#include "stored/weights.h"

namespace kvcal {

/// Float32 values beside a layer's matrices. They go to the backend when an operation first asks
/// for them, so that packing, which may run in another thread, asks it for matrices alone.
class PackedValues {
 public:
  PackedValues() = default;
  PackedValues(std::vector<float> values, Backend& backend)
      : values_(std::move(values)), backend_(&backend) {}

  bool exists() const { return !values_.empty() || sent_.size() > 0; }
  /// In backend memory; null where there are none.
  const float* get() const {
    if (!values_.empty()) {
      sent_ = upload<float>(values_, *backend_);
      values_ = {};
    }
    return sent_.as<float>();
  }

 private:
  mutable std::vector<float> values_;  ///< until they are sent
  mutable Buffer sent_;
  Backend* backend_ = nullptr;
};

/// Output rows of a Linear whose input is quantized in one way.
struct QuantizedRows {
  /// pack_fp8's where codes are multiplied, else numbers of type.
  std::unique_ptr<PackedMatrix> matrix;
  bool multiplies_codes = false;
  int64_t first = 0;                         ///< among the Linear's rows
  ComputeType type = ComputeType::kFloat32;  ///< of the input before it is quantized
  InputQuantization input = InputQuantization::kNone;
  PackedValues input_scale;  ///< one, kStatic
  int64_t group = 0;         ///< kDynamicGroup: values that share a scale
};

struct PackedLinear {
  /// [out, in]; null where the layer has no such Linear. With quantized inputs only its sizes.
  std::unique_ptr<PackedMatrix> matrix;
  PackedValues bias;  ///< [out], or none
  std::vector<QuantizedRows> quantized =
      {};  ///< all rows, in order; empty: inputs are not quantized
};

/// Rows of a matrix to be packed: of numbers, or of codes with a scale each.
struct LinearRows {
  std::span<const TensorView> parts;
  std::span<const float> row_scales = {};  ///< empty: parts hold numbers
  const LinearQuantization* quantization = nullptr;
};

/// Whether a product can be one of codes: a scale for each row of the weight, and one for all of
/// the input or each row of it.
bool multiplies_codes(const LinearQuantization* quantization);

/// All rows one below the other. Rows of codes must be those that multiplies_codes allows.
PackedLinear pack_linear(std::span<const LinearRows> rows, Backend& backend, ComputeType type);

}  // namespace kvcal
