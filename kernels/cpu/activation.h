#pragma once

#include <cstdint>

#include "backend/operations.h"
#include "kernels/cpu/amax_slot.h"

namespace kvcal::cpu {

/// A block of an activation's rows: out = activation(gate) · up, as in ActivationArgs.
struct ActivationBlock {
  const float* gate = nullptr;  ///< row r at gate + r * x_stride
  const float* up = nullptr;    ///< row r at up + r * x_stride; null: not gated
  int64_t x_stride = 0;
  int64_t rows = 0, width = 0;
  ActivationFunction activation = {};
  ComputeType out_type = ComputeType::kFloat32;
  void* out = nullptr;  ///< row r at element r * out_stride
  int64_t out_stride = 0;
};

/// Computes the block in the calling thread, with the best instruction set. Returns the magnitudes
/// of its output.
Magnitudes activate_block(const ActivationBlock& block);

}  // namespace kvcal::cpu
