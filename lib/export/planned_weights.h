#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "export/writer.h"

namespace kvcal {

/// A weight that becomes codes.
struct PlannedWeight {
  std::string module;                   ///< its tensors are written as "<module>.weight", …
  const QuantScheme* scheme = nullptr;  ///< of the plan; nullptr: there is no plan
  const TensorView* source;             ///< F16, BF16, F32 or codes; of a tied head the embedding's
  Shape shape = {};                     ///< [rows, columns] of the weight
  /// Slice of source, which stacks the weights of all experts; nullptr: source is the whole weight.
  const StackedSlice* slice = nullptr;
  size_t shard = 0;  ///< index of the model's shard that holds source and gets the codes
  /// Head that is quantized like the embedding and stays tied to it: it gets the same scales.
  std::string tied_module = {};

  std::string weight_name() const { return module + ".weight"; }
  std::string input_scale_name() const { return module + ".input_scale"; }
  bool has_input_scale() const {
    return scheme->input_activations && !scheme->input_activations->dynamic;
  }
};

/// A tensor that keeps its values under another name: one expert's, which is taken out of a tensor
/// that stacks all experts, or the embedding as the head that was tied to it.
struct RenamedTensor {
  std::string name;
  const TensorView* source;
  const StackedSlice* slice = nullptr;  ///< of source; nullptr: the whole
  size_t shard = 0;                     ///< as in PlannedWeight

  Shape shape() const { return slice ? shape_of(*slice, source->shape) : source->shape; }
};

/// Changes to the tensors of a checkpoint when its weights are quantized. Borrows from the model
/// and the plan.
struct WeightChanges {
  std::vector<PlannedWeight> quantized;  ///< in the plan's order, or by name
  std::vector<RenamedTensor> renamed;    ///< tensors that stay unquantized
  /// Tensors of the source that are not copied: those that are quantized or split, and a tied head
  /// that the file holds all the same and that would differ from the one written.
  std::set<std::string, std::less<>> replaced;
};

/// Throws Error, naming the module, where the model has no weight for it that can be quantized. For
/// a tied model there are five cases (docs/formats.md): the plan quantizes neither module, the
/// head, the embedding, both alike, or both differently.
WeightChanges weight_changes(const ModelDir& model, const Calibration& calibration);

/// Throws Error where weight_changes does, where the checkpoint already has tensors of format's
/// names, and where the scheme does not fit a weight.
void check_weights(const ExportInput& input, const WeightScaleNames& format);

/// Scale of a static input, rounded to dtype; where that gives zero, the scale of an input of
/// zeros.
Scale input_scale_in(DType dtype, Scale scale);

/// Changes config.json of a model whose head and embedding are no longer one tensor.
void untie(Json& config);

/// Index of the shard that holds a tensor of the model.
size_t shard_of(const ModelDir& model, std::string_view tensor);

/// Note on a weight whose inputs are not whole groups of those that share a scale; nullopt: they
/// are.
std::optional<std::string> odd_groups_note(const PlannedWeight& weight,
                                           const std::optional<QuantArgs>& inputs);

/// Notes for the user, a sentence each, on FP8 weights and inputs of a plan that engines do not
/// support.
std::vector<std::string> weight_notes(const ExportInput& input);

}  // namespace kvcal
