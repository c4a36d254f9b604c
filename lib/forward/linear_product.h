#pragma once

#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "forward/packed_layer.h"

namespace kvcal {

/// Buffers of products with quantized inputs. They grow on demand, so a product of a size that ran
/// before allocates nothing.
struct ProductScratch {
  Buffer codes;   ///< [rows, in_features] FP8
  Buffer scales;  ///< [rows], or [rows, groups] float32
  Buffer values;  ///< [rows, in_features]: dequantized codes
  Buffer inner;   ///< [rows, out_features] float32, before an activation
};

/// out = linear(x), or out += linear(x). Quantized inputs become FP8 codes first. They are
/// multiplied as codes where the weight is in codes, else they are dequantized.
struct ProductArgs {
  const void* x = nullptr;  ///< [rows, in_features] of the type that the layer was packed for
  const PackedLinear& linear;
  bool accumulate = false;
  int64_t rows = 0;
  float* out = nullptr;  ///< [rows, out_features]
  bool is_decoding = false;
  ProductScratch* scratch = nullptr;  ///< needed where the input is quantized
};
void multiply(Backend& backend, const ProductArgs& args);

/// Consecutive rows and the MLP that they run through; such parts lie one behind the other, and
/// their MLPs differ in nothing but the weights.
struct MlpPart {
  const PackedMlp& mlp;
  int64_t rows = 0;
  AmaxSlot seen = {};  ///< of the part's inner rows
};

/// out = down(x) of every part's MLP.
struct DownProductArgs {
  const void* x = nullptr;                   ///< [rows of all parts, width] of type
  ComputeType type = ComputeType::kFloat32;  ///< that the layer was packed for
  std::span<const MlpPart> parts;
  float* out = nullptr;  ///< [rows of all parts, hidden]
  bool is_decoding = false;
  ProductScratch* scratch = nullptr;  ///< ProductArgs::scratch
};
void multiply_down(Backend& backend, const DownProductArgs& args);

/// Inner rows of every part's MLP: activation(gate) * up, or activation(up).
struct ActivatedProductArgs {
  const void* x = nullptr;                   ///< [rows of all parts, hidden] of type
  ComputeType type = ComputeType::kFloat32;  ///< that the layer was packed for
  std::span<const MlpPart> parts;
  float* scratch = nullptr;  ///< as in MatmulActivateArgs
  void* out = nullptr;       ///< [rows of all parts, width] of type
  bool is_decoding = false;
  ProductScratch* product_scratch = nullptr;  ///< ProductArgs::scratch
};
void multiply_activated(Backend& backend, const ActivatedProductArgs& args);

}  // namespace kvcal
