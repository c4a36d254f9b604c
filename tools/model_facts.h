#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "core/number_text.h"
#include "stored/fp8_checkpoint.h"
#include "stored/weights.h"

namespace kvcal {

/// One resolved variation of a model. An empty text is of no interest to people.
struct Fact {
  std::string key;
  Json value;
  std::string text;
};

/// The architecture as config.json and the checkpoint's tensors resolve it.
std::vector<Fact> model_facts(const ModelConfig& config, const Weights& weights);

/// How many modules have FP8 weights, by how they are scaled and their inputs quantized.
Fact quantization_fact(const CheckpointQuantization& quantization);

/// Layers that have K and V.
std::vector<int64_t> attention_layers(const ModelConfig& config);

/// What the cache of one token takes: values, and bytes in 16 bits and in FP8, of all layers; and
/// the float32 bytes of a sequence's recurrent states, however long it is.
Json cache_json(const ModelConfig& config);

}  // namespace kvcal
