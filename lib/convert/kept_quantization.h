#pragma once

#include <optional>

#include "checkpoint/model_dir.h"
#include "export/writer.h"
#include "family/model_config.h"

namespace kvcal {

/// What a checkpoint's files say of its quantized weights (and queries), with nothing of K and V in
/// it: compressed-tensors' kv_cache_scheme, ModelOpt's kv_cache_scheme and kv_cache_quant_algo,
/// fp8's kv_cache_scheme, Quark's kv_cache_group are gone. nullopt where weights have 16 bits.
std::optional<KeptQuantization> read_kept_quantization(const ModelDir& model);

/// The source's FP8 weights where it is one that is calibrated as it is (DeepSeek's form).
std::optional<KeptQuantization> kept_weights(const ModelDir& model, const ModelConfig& config);

/// Whether weights stay as they are in an output of format, of all formats where several are
/// joined.
bool keeps_weights(const KeptQuantization& kept, std::string_view format);

/// Whether compressed-tensors' config does something to weights or inputs: a group, a sparsity, a
/// transform.
bool does_something(const Json& compressed_tensors);

/// Takes the groups out that quantize inputs and no weights: those of attention. Whether there were
/// any.
bool erase_attention_groups(Json& compressed_tensors);

}  // namespace kvcal
