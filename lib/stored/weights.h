#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "checkpoint/model_dir.h"
#include "family/architecture.h"

namespace kvcal {

/// config.json of a checkpoint, and where its tensors stand. Throws Error as parse_model_config
/// does, with the file's path in front.
ModelConfig read_model_config(const ModelDir& model_dir);

/// Rows of a matrix or a bias, one part after the other. Borrows from the ModelDir where the file
/// holds them as they are; else owns what was transposed or dequantized.
struct WeightRows {
  std::vector<TensorView> parts;
  std::vector<std::vector<std::byte>> owned;
  /// Where parts are F8_E4M3 codes: a scale for each row of all parts. Else empty.
  std::vector<float> row_scales;
};

struct CheckpointQuantization;
struct LinearQuantization;

/// Every tensor of a checkpoint by its role in the forward pass. Borrows from the ModelDir.
class Weights {
 public:
  /// Checks names, shapes and dtypes of all tensors at once. Throws one Error that lists what is
  /// missing, unexpected or misshapen. quantization: of the same checkpoint, borrowed; null:
  /// weights have 16 bits or are block-scaled, and are multiplied as numbers.
  Weights(const ModelDir& model_dir, const ModelConfig& config,
          const CheckpointQuantization* quantization = nullptr);

  /// A tensor of a layer as it lies in the file.
  struct LayerTensor {
    Role role;  ///< whose it is; of a fused tensor its own
    TensorView view;
    bool is_scale = false;  ///< of the role's FP8 codes
  };
  /// All that the layer reads, by role and index; of a tensor that stacks experts one part each.
  std::vector<LayerTensor> tensors(int64_t layer) const;

  int64_t num_layers() const { return static_cast<int64_t>(layers_.size()); }

  bool has(Role role) const;
  /// Also where a fused tensor holds the role.
  bool has(int64_t layer, Role role) const;
  /// How many tensors of the role the layer has: experts or heads, else 1.
  int64_t count(int64_t layer, Role role) const;
  const TensorView& at(Role role) const;
  /// Rows of the role in the order the forward pass wants, cut out of fused tensors, transposed and
  /// dequantized to F32 where need be. index: of an expert or a head.
  WeightRows rows(int64_t layer, Role role, int64_t index = 0) const;
  /// The same of a matrix of the model.
  WeightRows rows(Role role) const;
  /// How the tensor that holds a role is quantized; null: it is not.
  const LinearQuantization* quantization(int64_t layer, Role role, int64_t index = 0) const;
  const LinearQuantization* quantization(Role role) const;
  /// Of the Linear that output_embedding is the weight of; a tied one's input is its own.
  const LinearQuantization* output_quantization() const;
  /// As rows, but F8_E4M3 codes and their scales as they lie in the file. Only of tensors whose
  /// quantization scales rows.
  WeightRows codes(int64_t layer, Role role, int64_t index = 0) const;
  WeightRows codes(Role role) const;
  /// lm_head, or the embedding where they are tied.
  Role output_embedding() const { return has(Role::kLmHead) ? Role::kLmHead : Role::kEmbedding; }
  /// Tells the system that a layer's bytes will be read soon, or are no longer needed. will_need
  /// may wait for a disk, and throws Interrupted.
  void will_need(int64_t layer) const;
  void drop(int64_t layer) const;
  /// The same of what rows(layer, role, index) read, and of a tensor of the whole model.
  void drop(int64_t layer, Role role, int64_t index) const;
  void drop(Role role) const;
  /// The most bytes that rows() of any role has in memory at one time: mapped, and copied where the
  /// file does not hold them as they are.
  uint64_t largest_read_bytes() const;

 private:
  struct Bound {
    TensorView view;
    const TensorView* block_scale = nullptr;  ///< of FP8 weights without quantization
    Layout layout = Layout::kOutIn;
    const LinearQuantization* quantization = nullptr;
  };
  using Table = std::map<std::pair<Role, int64_t>, Bound>;
  class Binder;

  const Bound* find(int64_t layer, Role role, int64_t index) const;
  /// The tensor that holds a role, its own or a fused one, and which.
  std::pair<const Bound*, Role> holder(int64_t layer, Role role, int64_t index) const;
  const Bound& model_tensor(Role role) const;
  void drop(const TensorView& tensor) const;
  static uint64_t read_bytes(const Bound& bound);
  WeightRows whole(const Bound& bound) const;
  WeightRows cut(WeightRows whole, Role role, Role fused_role) const;

  const ModelDir* model_dir_;
  const ModelConfig* config_;
  Table model_;
  std::vector<Table> layers_;
  const LinearQuantization* tied_head_ = nullptr;
};

/// Values of F32, F16 or BF16 parts as float32.
std::vector<float> as_float32(std::span<const TensorView> parts);

}  // namespace kvcal
