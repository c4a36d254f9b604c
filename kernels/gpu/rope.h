#pragma once

#include "kernels/gpu/device.h"

namespace kvcal::gpu {

/// RopeArgs without the heads.
struct Angles {
  const int32_t* positions = nullptr;
  const float* cos = nullptr;
  const float* sin = nullptr;
  int64_t half = 0;  ///< pairs; 0: no rotation
  bool interleaved = false;
};
inline Angles angles_of(const RopeArgs& args) {
  return {args.positions, args.cos, args.sin, args.rotary_dim / 2, args.interleaved};
}

/// The two rotated numbers of a pair. Products are rounded before they are added, here and
/// everywhere that K is rotated, so that one pass gives the bytes of two.
__device__ inline float turned_first(float x, float y, float cosine, float sine) {
  return x * cosine - y * sine;
}
__device__ inline float turned_second(float x, float y, float cosine, float sine) {
  return y * cosine + x * sine;
}

}  // namespace kvcal::gpu
