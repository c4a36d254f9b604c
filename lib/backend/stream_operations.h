#pragma once

#include <cstdint>

#include "backend/operations.h"

namespace kvcal {

/// Mixes parallel residual streams of the same tokens, with coefficients a token: out(p, t) =
/// x(p, t) + sum over q of coefficients(t, p · inputs + q) · added(q, t). Source: transformers
/// 5.23, models/gemma3n `Gemma3nTextAltUp`, whose prediction and correction this is.
struct MixStreamsArgs {
  const float* x = nullptr;             ///< [streams, rows, width]
  const float* added = nullptr;         ///< [inputs, rows, width]; may be x
  const float* coefficients = nullptr;  ///< [rows, streams * inputs]
  int64_t streams = 0, inputs = 0, rows = 0, width = 0;
  float* out = nullptr;  ///< [streams, rows, width]; may overlap neither x nor added
};

/// Gives each row of x the magnitude of target's: x *= rms(target) / sqrt(max(mean(x²), floor)).
struct MatchMagnitudeArgs {
  const float* target = nullptr;  ///< [rows, width]
  float* x = nullptr;             ///< [rows, width]
  float floor = 0.0f;             ///< above 0
  int64_t rows = 0, width = 0;
};

/// Keeps of each row what exceeds its mean by more than `deviations` standard deviations, and
/// subtracts that border from it; the rest becomes 0. NaN stays NaN. Source: transformers 5.23,
/// models/gemma3n `Gemma3nTextMLP._gaussian_topk`.
struct KeepOutliersArgs {
  float* x = nullptr;  ///< [rows, width] with row stride row_stride (floats)
  int64_t rows = 0, width = 0, row_stride = 0;
  float deviations = 0.0f;
};

}  // namespace kvcal
