#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "model/packed_layer.h"

namespace kvcal {

/// out = linear(x), or out += linear(x).
struct ProductArgs {
  const void* x = nullptr;  ///< [rows, in_features] of the type the layer was packed for
  const PackedLinear& linear;
  bool accumulate = false;
  int64_t rows = 0;
  float* out = nullptr;  ///< [rows, out_features]
  bool is_decoding = false;
};
void multiply(Backend& backend, const ProductArgs& args);

/// The inner rows of an MLP: activation(gate) * up, or activation(up).
struct ActivatedProductArgs {
  const void* x = nullptr;  ///< [rows, hidden] of the type the layer was packed for
  const PackedMlp& mlp;
  Activation activation = Activation::kSilu;
  float limit = 0.0f;  ///< as in ActivationArgs
  int64_t rows = 0;
  float* scratch = nullptr;  ///< as in MatmulActivateArgs
  ComputeType out_type = ComputeType::kFloat32;
  void* out = nullptr;  ///< [rows, mlp.width]
  AmaxSlot seen = {};   ///< of out
  bool is_decoding = false;
};
void multiply_activated(Backend& backend, const ActivatedProductArgs& args);

}  // namespace kvcal
