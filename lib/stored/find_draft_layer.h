#pragma once

#include "checkpoint/model_dir.h"
#include "core/diagnostics.h"
#include "family/model_config.h"

namespace kvcal {

/// Adds the draft layer (family/draft_layer.h) where the checkpoint has one: config.json announces
/// it, with num_nextn_predict_layers or mtp_num_hidden_layers, and the tensors are there. Without
/// either key, a checkpoint with tensors below "mtp." has one, as in vLLM 0.32. Warns of a layer
/// that is announced and incomplete, which published quantized or cut checkpoints have. A config
/// that has the layer stays as it is.
void find_draft_layer(const ModelDir& model_dir, ModelConfig& config, Diagnostics& diagnostics);

}  // namespace kvcal
