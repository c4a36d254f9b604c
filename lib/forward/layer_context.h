#pragma once

#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "family/model_config.h"
#include "forward/activations.h"
#include "forward/layer_observers.h"
#include "forward/packed_layer.h"
#include "forward/packed_linear.h"
#include "forward/token_batch.h"

namespace kvcal {

/// What the parts of a layer share: the model, the backend, the activations of a batch, what
/// observes the inputs of Linears, and the layer and batch that run.
struct LayerContext {
  const ModelConfig& config;
  Backend& backend;
  const ComputeType type;
  const int64_t most_rows;  ///< for which activations are reserved
  Activations buffers;
  ProductScratch scratch = {};
  LinearInputObserver observer = {};  ///< gets the input of every Linear; empty: nobody does
  AmaxSlotOf slot_of = {};            ///< slots of their largest magnitudes; empty: none
  // Borrowed while the layer runs:
  const PackedLayer* layer = nullptr;
  int64_t layer_index = 0;
  const TokenBatch* batch = nullptr;
  const RopeTables* ropes = nullptr;
  std::span<const Segment> segments = {};  ///< of the batch
  bool is_decoding = false;                ///< of the batch's products
};

/// Base of the parts of a layer: the operations that several of them need, on the rows of the batch
/// that runs. Buffers are [rows, width].
class LayerPart {
 protected:
  explicit LayerPart(LayerContext& context)
      : context_(context),
        config_(context.config),
        backend_(context.backend),
        buffers_(context.buffers),
        type_(context.type) {}

  const PackedLayer& layer() const { return *context_.layer; }
  const LayerConfig& own() const { return config_.layer(context_.layer_index); }
  const TokenBatch& batch() const { return *context_.batch; }
  int64_t rows() const { return context_.batch->num_tokens; }
  /// Rows as one head; stride: from row to row, in floats.
  HeadsView view(const float* data, int64_t width, int64_t stride) const {
    return {const_cast<float*>(data), rows(), 1, width, stride};
  }
  HeadsView view(const float* data, int64_t width) const { return view(data, width, width); }

  /// Gives an input to the observer. Its layer is set here; empty segments: the batch's.
  void observe(LinearInput input);
  /// x: of the compute type.
  void observe(Role role, const Buffer& x, int64_t width, int64_t index = 0);
  AmaxSlot slot_of(Role role, int64_t index = 0) const {
    return context_.slot_of ? context_.slot_of(role, index) : AmaxSlot{};
  }
  /// Folds x into slot, for inputs whose operation cannot do it.
  void fold(AmaxSlot slot, const void* x, int64_t count, ComputeType type);

  /// Converts float32 x to type.
  void convert(ComputeType type, const float* x, int64_t width, void* out, AmaxSlot seen);
  /// Makes the input of the Linears that role names of float32 x, and observes it.
  void convert_input(Role role, const float* x, int64_t width, const Buffer& out,
                     int64_t index = 0);
  /// x: [rows, hidden_size].
  void normalize(const float* x, const PackedNorm& norm, ComputeType type, void* out,
                 AmaxSlot seen = {});
  /// Makes the input of the Linears that role names, norm(x), in normed, and observes it.
  void normalize_input(Role role, const float* x, const PackedNorm& norm);
  /// Writes x · function(gate), of each row, to out of out_type.
  void gate(RowsView x, RowsView gate, GateFunction function, int64_t width, ComputeType out_type,
            void* out, AmaxSlot seen = {});

  void project(const void* x, const PackedLinear& linear, int64_t rows, float* out);
  void project(const Buffer& x, const PackedLinear& linear, const Buffer& out) {
    project(x.data(), linear, rows(), out.as<float>());
  }

  /// The way of a branch into the residual stream: hidden += multiplier · norm(x), without a norm
  /// that does not exist.
  struct Branch {
    const PackedNorm& norm;
    float multiplier = 1.0f;
    bool adds_directly() const { return !norm.exists() && multiplier == 1.0f; }
  };
  Branch branch(const PackedNorm& norm, float multiplier = 1.0f) const {
    return {norm, config_.residual_multiplier * multiplier};
  }
  /// Adds linear(x) to hidden by the branch.
  void add_projected(const Buffer& x, const PackedLinear& linear, const Branch& branch,
                     float* hidden);
  /// Adds x to hidden by the branch.
  void add_output(const Buffer& x, const Branch& branch, float* hidden) {
    backend_.residual_norm(output_args(x, branch, hidden));
  }
  ResidualNormArgs output_args(const Buffer& x, const Branch& branch, float* hidden) const;

  LayerContext& context_;
  const ModelConfig& config_;
  Backend& backend_;
  Activations& buffers_;
  const ComputeType type_;
};

}  // namespace kvcal
