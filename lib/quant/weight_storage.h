#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/tensor.h"
#include "quant/quant_args.h"

namespace kvcal {

/// Dtype of quantized weights' scales in a file.
enum class ScaleStorage : uint8_t {
  kWeightDtype,  ///< that of the unquantized weight
  kE4m3,         ///< beside a float32 scale of the whole tensor, by which they are multiplied
  kE8m0,         ///< powers of two, as U8
};

/// Tensors in which one format of compressed-tensors holds a quantized weight, beside
/// "weight_scale". Source: compressed-tensors 0.19 `compressors/`.
struct WeightStorage {
  std::string_view format;       ///< compressed-tensors' `CompressionFormat`
  std::string_view codes;        ///< name of the tensor of codes: "weight" or "weight_packed"
  DType dtype = DType::kF8E4M3;  ///< of the codes
  ScaleStorage scales = ScaleStorage::kWeightDtype;
  bool is_packed = false;  ///< several codes lie in one element
  /// The lowest integer has code 0; else codes are two's complement.
  bool is_offset = false;
  bool has_shape = false;  ///< "weight_shape"
};

/// Storage that compressed-tensors chooses for weights and inputs of a scheme. weights: of an
/// integer or of a float type of 4 or 8 bits. Source: `infer_module_format`.
const WeightStorage& storage_of(const QuantArgs& weights, const std::optional<QuantArgs>& inputs);

}  // namespace kvcal
