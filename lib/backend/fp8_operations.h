#pragma once

#include <cstdint>

#include "backend/operations.h"
#include "quant/fp8.h"

// Products of FP8 inputs with FP8 weights (W8A8). Codes are multiplied; scales multiply the sums.
namespace kvcal {

/// Quantizes a Linear's input: encode(x / scale), saturating. Scales are given, or each row gets
/// its own from its largest finite magnitude by the rule of scale_from (quant/scale.h). NaN stays
/// NaN, infinity becomes the largest code.
struct QuantizeRowsArgs {
  const void* x = nullptr;  ///< [rows, width] of type
  ComputeType type = ComputeType::kFloat32;
  int64_t rows = 0, width = 0;
  fp8::Format format = fp8::Format::kE4m3Fn;
  const float* scales = nullptr;  ///< one float, or [rows] with scale_per_row; null: row_scales
  bool scale_per_row = false;
  float* row_scales = nullptr;    ///< [rows], written; only where scales is null
  uint8_t* out = nullptr;         ///< [rows, width]; may not overlap x
  uint64_t* saturated = nullptr;  ///< one count, added to: finite values with |x / scale| > max; or
                                  ///< null
};

/// out[r, n] (+)= (sum_k x[r, k] · weight[n, k]) · x_scale[r] · weight_scale[n] + bias[n], with
/// decoded codes, summed in float32.
struct Fp8MatmulArgs {
  const uint8_t* x = nullptr;       ///< [rows, in_features] E4M3FN codes
  const float* x_scales = nullptr;  ///< one float, or [rows] with scale_per_row
  bool scale_per_row = false;
  const PackedMatrix& weight;   ///< from pack_fp8
  const float* bias = nullptr;  ///< [out_features], or null
  bool accumulate = false;      ///< out += instead of out =
  int64_t rows = 0;
  float* out = nullptr;      ///< [rows, out_features] with row stride out_stride
  int64_t out_stride = 0;    ///< in floats; 0 means out_features
  bool is_decoding = false;  ///< MatmulArgs::is_decoding

  int64_t out_row_stride() const { return out_stride == 0 ? weight.out_features : out_stride; }
};

}  // namespace kvcal
