#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/model_dir.h"
#include "convert/output_model.h"
#include "core/diagnostics.h"
#include "datasets/dataset.h"
#include "export/writer.h"
#include "family/model_config.h"
#include "quant/quant_plan.h"
#include "recipe/recipe.h"
#include "run/output_formats.h"
#include "stored/fp8_checkpoint.h"

namespace kvcal {

/// A model and the plan that a recipe gives it.
struct PlannedModel {
  Recipe recipe;
  ModelDir model_dir;
  ModelConfig config;
  QuantPlan plan;
  std::optional<SourceQuantization> kept;  ///< weights that are quantized already
  CheckpointQuantization quantization;     ///< borrows from model_dir
  std::optional<OutputModel> output = {};  ///< what is written in place of model_dir

  const SourceQuantization* kept_quantization() const { return kept ? &*kept : nullptr; }
  /// Settles the formats of what is written, and sets output for them. Throws Error as
  /// settle_formats and output_model do.
  OutputFormats settle_output(OutputOptions options, Diagnostics& diagnostics);
  /// Sets output for these formats.
  void settle_output(const std::vector<std::string>& formats, Diagnostics& diagnostics);
  /// Adds the layers, and those that read their caches, to those that the recipe ignores, and plans
  /// anew. Throws Error for a layer without K and V, and where no layer is left.
  void leave_out(const std::vector<int64_t>& layers);
  /// Throws Error where the source's weights are quantized in a way that is not read.
  void check_source() const;
  /// Input of the writers. Borrows this and calibration.
  ExportInput output_of(const Calibration& calibration) const;
};

/// recipe_name: for messages. with_draft: also plans the draft layer of a checkpoint that has one.
/// Throws Error where the recipe does not fit the model.
PlannedModel make_subject(Recipe recipe, const std::string& recipe_name, const std::string& model,
                          Diagnostics& diagnostics, const FamilyChoice& family = {},
                          bool with_draft = false);

/// Bytes of all tensors of a checkpoint.
uint64_t tensor_bytes(const ModelDir& model);

/// Tokenized samples of the data set, whose conversations records.chat renders, and of which
/// records.skip may be passed over. Throws Error as read_samples does, and where text needs a
/// tokenizer that the model lacks. skipped: as of read_samples.
std::vector<Sample> samples_for(const PlannedModel& subject, const Dataset& dataset,
                                const RecordOptions& records, const SampleOptions& options,
                                Diagnostics& diagnostics, SkippedRecords* skipped = nullptr);

/// What the vision tower gave each sample, borrowed, as LayerwiseOptions has it.
std::vector<const EmbeddedTokens*> embedded_of(std::span<const Sample> samples);

/// The layers, and those that read their caches, which are stored one way for all that read them.
/// Ascending. Throws Error for a layer without K and V.
std::vector<int64_t> with_readers(const std::vector<int64_t>& layers, const ModelConfig& config);

}  // namespace kvcal
