#pragma once

#include "kernels/gpu/device.h"

// float32 functions of one number. None overflows where its result does not.
namespace kvcal::gpu {

__device__ inline float logistic(float x) {
  return 1.0f / (1.0f + expf(-x));
}
__device__ inline float softplus(float x) {
  // fmaxf would lose a NaN.
  return (x < 0.0f ? 0.0f : x) + log1pf(expf(-magnitude_of(x)));
}
/// Factor that a gate gives.
__device__ inline float gate_of(GateFunction function, float gate) {
  if (function == GateFunction::kIdentity) return gate;
  if (function == GateFunction::kSoftplus)
    return (gate < 0.0f ? 0.0f : gate) + log1pf(expf(-fabsf(gate)));  // NaN stays NaN
  const float opened = logistic(gate);
  return function == GateFunction::kSilu ? gate * opened : opened;
}

/// Source: torch.nn.functional silu, gelu (approximate "none" and "tanh") and relu; xIELU: see
/// ActivationFunction.
template <Activation kActivation>
__device__ inline float activated(float x, const ActivationFunction& function) {
  if constexpr (kActivation == Activation::kSilu) return x * logistic(x);
  if constexpr (kActivation == Activation::kGelu)
    return 0.5f * x * erfcf(-0.70710678118654752f * x);
  if constexpr (kActivation == Activation::kGeluTanh) {
    // (1 + tanh(y)) / 2 is logistic(2 y), without the difference that loses digits for negative y.
    const float inner = 1.5957691216057308f * (x + 0.044715f * x * x * x);  // 2 sqrt(2 / pi)
    return x * logistic(inner);
  }
  if constexpr (kActivation == Activation::kQuickGelu) return x * logistic(1.702f * x);
  if constexpr (kActivation == Activation::kRelu) return x < 0.0f ? 0.0f : x;
  if constexpr (kActivation == Activation::kSquaredRelu) return x < 0.0f ? 0.0f : x * x;
  if constexpr (kActivation == Activation::kTanh) return tanhf(x);
  if constexpr (kActivation == Activation::kXielu) {
    if (x > 0.0f) return function.alpha_p * x * x + function.beta * x;
    const float cut = x > function.eps ? function.eps : x;  // NaN stays
    return function.alpha_n * (expm1f(cut) - x) + function.beta * x;
  }
}

}  // namespace kvcal::gpu
