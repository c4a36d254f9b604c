#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "checkpoint/model_dir.h"
#include "model/architecture.h"

namespace kvcal {

/// Every tensor of a checkpoint by its role in the forward pass. Borrows from the ModelDir.
class Weights {
 public:
  /// Checks names, shapes and dtypes of all tensors at once. Throws one Error that lists what is
  /// missing, unexpected or misshapen.
  Weights(const ModelDir& model_dir, const ModelConfig& config);

  /// nullptr where the family or configuration has no such tensor.
  const TensorView* find(Role role) const;
  const TensorView* find(int64_t layer, Role role) const;
  const TensorView& at(Role role) const;
  const TensorView& at(int64_t layer, Role role) const;
  /// lm_head, or the embedding where they are tied.
  const TensorView& output_embedding() const;
  /// Tells the system that a layer's bytes will be read soon, or are no longer needed.
  void will_need(int64_t layer) const;
  void drop(int64_t layer) const;

 private:
  const ModelDir* model_dir_;
  std::map<Role, const TensorView*> model_;
  std::vector<std::map<Role, const TensorView*>> layers_;
};

/// What of a layer is packed.
enum class LayerParts { kKeyValue, kAll };

/// One layer in the layout the backend computes with.
struct PackedLayer {
  Buffer input_norm, post_attention_norm;   ///< [hidden] float32
  std::unique_ptr<PackedMatrix> query;      ///< [query_width, hidden]
  std::unique_ptr<PackedMatrix> key_value;  ///< [2 * kv_width, hidden]: K, then V
  std::unique_ptr<PackedMatrix> output;     ///< [hidden, query_width]
  std::unique_ptr<PackedMatrix> gate_up;    ///< [2 * intermediate, hidden]: gate, then up
  std::unique_ptr<PackedMatrix> down;       ///< [hidden, intermediate]
  Buffer query_bias, key_value_bias, output_bias, gate_up_bias,
      down_bias;  ///< empty where there is none
};

PackedLayer pack_layer(const Weights& weights, int64_t layer, LayerParts parts, Backend& backend,
                       ComputeType type);

/// A F32, F16 or BF16 tensor as float32 in backend memory.
Buffer upload_float32(const TensorView& tensor, Backend& backend);

}  // namespace kvcal
