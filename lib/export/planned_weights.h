#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "export/writer.h"

namespace kvcal {

/// A weight that becomes FP8 codes.
struct PlannedWeight {
  std::string module;         ///< whose tensors are written: "<module>.weight", …
  const QuantScheme* scheme;  ///< of the plan
  const TensorView* source;   ///< F16, BF16, F32 or codes; of a tied head the embedding's
  Shape shape = {};           ///< [rows, columns] of the weight
  /// Of source, which stacks the weights of all experts; nullptr: source is the weight.
  const StackedSlice* slice = nullptr;
  size_t shard = 0;  ///< of the model: where source lies, and the codes go
  /// Whose scales are these too: the head that is quantized like the embedding, and stays tied.
  std::string tied_module = {};

  std::string weight_name() const { return module + ".weight"; }
  std::string input_scale_name() const { return module + ".input_scale"; }
  bool has_input_scale() const {
    return scheme->input_activations && !scheme->input_activations->dynamic;
  }
};

/// A tensor of one expert that keeps its values, out of one that stacks those of all.
struct SplitCopy {
  const SplitTensor* planned;  ///< of the plan
  const TensorView* source;    ///< the stacked one
  Shape shape;
  size_t shard = 0;
};

/// What becomes of the tensors of a checkpoint whose weights are quantized. Borrows from the model
/// and the plan.
struct WeightChanges {
  std::vector<PlannedWeight> quantized;  ///< in the plan's order
  std::vector<SplitCopy> split;          ///< what of the experts beside those is not quantized
  /// Tensors of the source that are not copied: what is quantized or split, and the head of a tied
  /// model
  /// where the file has one all the same and it would be another than what is written.
  std::set<std::string, std::less<>> replaced;
  /// The 16-bit embedding under the name of the head that it was tied to; nullptr: none.
  const TensorView* untied_head = nullptr;
  std::string untied_head_name;
  size_t untied_shard = 0;
};

/// Throws Error, naming the module, where the model has no weight for it that can be quantized. Of
/// a tied model there are five cases (docs/formats.md): the plan quantizes neither module, the
/// head, the embedding, both alike, or both differently.
WeightChanges weight_changes(const ModelDir& model, const Calibration& calibration);

/// Throws Error for what weight_changes does, for tensors of form's names that are there already,
/// and for weights that the scheme does not fit.
void check_weights(const ExportInput& input, const WeightForm& form);

/// The scale of a static input as it is stored in dtype: where that leaves nothing, the scale of an
/// input of zeros.
Scale input_scale_in(DType dtype, Scale scale);

/// config.json of a model whose head and embedding are no longer one tensor.
void untie(Json& config);

/// The shard that holds a tensor of the model.
size_t shard_of(const ModelDir& model, std::string_view tensor);

}  // namespace kvcal
