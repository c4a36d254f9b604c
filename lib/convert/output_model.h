#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/model_dir.h"
#include "core/diagnostics.h"
#include "export/writer.h"
#include "family/model_config.h"
#include "stored/fp8_checkpoint.h"

namespace kvcal {

/// A checkpoint as writers take it where that is not the one that is read.
struct OutputModel {
  ModelDir model;
  std::optional<KeptQuantization> kept;  ///< quantized weights that stay as they are in model
  CheckpointQuantization recoded;        ///< weights in another form than the source's
};

/// Takes away a checkpoint's own scales of K and V, and gives its weights the form of one of the
/// formats where they have another (recode_weights). nullopt: neither is needed. Notes both, and
/// warns where engines do not load the new form. Throws Error as recode_weights does.
std::optional<OutputModel> output_model(const ModelDir& source, const ModelConfig& config,
                                        const std::vector<std::string>& formats,
                                        Diagnostics& diagnostics);

/// Hides scales of K and V, and these tensors; removes what config.json says of quantization.
void strip_scales(ModelDir& model, const ModelConfig& config,
                  const std::set<std::string, std::less<>>& tensors = {});

}  // namespace kvcal
