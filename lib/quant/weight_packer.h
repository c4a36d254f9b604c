#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/parallel.h"
#include "core/tensor.h"
#include "quant/quant_scheme.h"
#include "quant/scale.h"
#include "quant/weight_scales.h"

namespace kvcal {

/// Dtype of quantized weights' scales in a file.
enum class ScaleDType : uint8_t {
  kWeightDtype,  ///< that of the unquantized weight
  kE4m3,         ///< beside a float32 scale of the whole tensor, by which they are multiplied
  kE8m0,         ///< powers of two, as U8
};

/// Tensors in which one format of compressed-tensors holds a quantized weight, beside
/// "weight_scale". Source: compressed-tensors 0.19 `compressors/`.
struct CompressedFormat {
  std::string_view format;       ///< compressed-tensors' `CompressionFormat`
  std::string_view codes;        ///< name of the tensor of codes: "weight" or "weight_packed"
  DType dtype = DType::kF8E4M3;  ///< of the codes
  ScaleDType scales = ScaleDType::kWeightDtype;
  bool is_packed = false;  ///< several codes lie in one element
  /// The lowest integer has code 0; else codes are two's complement.
  bool is_offset = false;
  bool has_shape = false;  ///< "weight_shape"
};

/// Storage that compressed-tensors chooses for weights and inputs of a scheme. weights: of an
/// integer or of a float type of 4 or 8 bits. Source: `infer_module_format`.
const CompressedFormat& storage_of(const QuantArgs& weights,
                                   const std::optional<QuantArgs>& inputs);

/// Quantizes one weight by rounding to the nearest code, and lays it out as a format of
/// compressed-tensors stores it. Scales, and quotients that are not float32, are computed in the
/// weight's dtype, which gives llm-compressor's bytes. First make_scales, once; then encode, from
/// any thread. Source: llm-compressor 0.14 `model_free_ptq`, compressed-tensors 0.19
/// `calculate_qparams`, `_quantize`.
class WeightPacker {
 public:
  /// module: begins the names of the parameters. shape: [out, in]; dtype: F16, BF16 or F32. Throws
  /// Error where the args do not fit the shape.
  WeightPacker(std::string module, const QuantArgs& args, const CompressedFormat& storage,
               const Shape& shape, DType dtype);

  /// Makes the scales of all groups. fused: the largest magnitude of this weight and of those that
  /// share its global scale; read where the storage has one. Throws Error naming tensor and
  /// element for NaN or infinity.
  void make_scales(const TensorView& weight, Amax fused, ThreadPool* pool);

  DType codes_dtype() const { return storage_.dtype; }
  Shape codes_shape() const;
  /// All tensors beside the codes: "<module>.weight_scale" first, and those of the storage.
  const std::vector<Tensor>& parameters() const { return parameters_; }

  /// Fills bytes of the tensor of codes, from offset on.
  void encode(const TensorView& weight, uint64_t offset, std::span<std::byte> bytes) const;

 private:
  void make_float_scales(const std::vector<Amax>& amax, Amax fused);
  void make_asymmetric_scales(const TensorView& weight);
  void add_parameter(std::string_view name, DType dtype, Shape shape, std::vector<std::byte> bytes);
  void add_other_parameters();
  uint64_t row_bytes() const;
  float scale_at(uint64_t group) const;
  /// One code a byte for elements [first, first + codes.size()) of a row.
  void encode_row(const TensorView& weight, int64_t row, int64_t first,
                  std::span<uint8_t> codes) const;
  void encode_piece(const std::byte* elements, uint64_t group, std::span<uint8_t> codes) const;

  std::string module_;
  QuantArgs args_;
  const CompressedFormat& storage_;
  DType dtype_;
  ScaleGrid grid_;
  std::vector<Tensor> parameters_;
  std::vector<std::byte> scales_;    ///< as stored, row-major, until they are a parameter
  std::vector<int8_t> zero_points_;  ///< empty: symmetric
  float global_scale_ = 1.0f;        ///< kE4m3: real scale = stored / global
};

}  // namespace kvcal
