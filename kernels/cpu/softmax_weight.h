#pragma once

namespace kvcal::cpu {

/// Coefficients of 2^f for f in [-0.5, 0.5], from f^3 on: within 1e-4, at the Chebyshev nodes.
inline constexpr float kPowerOfTwo[] = {0.05583828f, 0.24263948f, 0.69313673f, 0.99992456f};
/// Added to x, it leaves in the low bits the whole number nearest to x, plus float32's bias.
inline constexpr float kWholeAndBias = 0x1.8p23f + 127.0f;

}  // namespace kvcal::cpu
