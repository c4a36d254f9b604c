#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/json.h"
#include "stored/fp8_checkpoint.h"
#include "stored/weights.h"

namespace kvcal {

/// One property of a model, as `inspect` shows it.
struct Property {
  std::string key;
  Json value;
  std::string text;  ///< for people; empty: not worth a line
};
using Properties = std::vector<Property>;

/// The architecture as config.json and the checkpoint's tensors resolve it.
Properties model_properties(const ModelConfig& config, const Weights& weights);

/// The count of modules with FP8 weights, by how they are scaled and their inputs quantized.
Property quantization_property(const CheckpointQuantization& quantization);

/// Key and text of the properties that have a text, with spaces in place of underscores.
std::vector<std::pair<std::string, std::string>> shown(const Properties& properties);

/// Layers whose caches have one shape.
struct CacheShape {
  LayerCache cache;
  std::vector<int64_t> layers = {};
};

/// Sizes of the KV cache of one token in all layers, and of what recurrent layers keep.
struct CacheSize {
  std::vector<CacheShape> shapes = {};   ///< in the order of their first layers
  int64_t layers = 0;                    ///< that have one
  int64_t values_per_token = 0;          ///< as many bytes in FP8, twice as many in 16 bits
  int64_t state_bytes_per_sequence = 0;  ///< float32, however long the sequence is
};
CacheSize cache_size(const ModelConfig& config);

/// Adds which layers attend, and what the others do instead.
void add_mixers(Properties& properties, const ModelConfig& config);
/// Adds position encodings of the layers that attend.
void add_positions(Properties& properties, const ModelConfig& config);
/// Adds sliding windows of the layers that attend.
void add_windows(Properties& properties, const ModelConfig& config);

/// "in layers 0-4", "in all layers"
std::string layers_text(const std::vector<int64_t>& layers, const ModelConfig& config);

}  // namespace kvcal
