#pragma once

#include <optional>
#include <vector>

#include "family/config_reader.h"

namespace kvcal {

// Parts of parse_model_config that differ by layer, or by the kind of attention and mixer.

/// Sets the ropes and the rope of each layer; windows must be set. Throws Error.
void parse_ropes(const ConfigReader& reader, ModelConfig& config);

/// Sets the rope of each layer by layer_rope_theta; those of parse_ropes must be set. Throws Error.
void parse_ropes_by_layer(const ConfigReader& reader, ModelConfig& config);

/// Number of layers of the list of mixers and MLPs; nullopt: there is none. Throws Error.
std::optional<int64_t> listed_layers(const ConfigReader& reader);

/// Sets the mixer of each layer, and the sizes of recurrent mixers. Throws Error.
void parse_mixers(const ConfigReader& reader, ModelConfig& config);

/// Sets heads, cache and MLP width of each layer. sliding: the layers with a window. Throws Error.
void parse_attention_sizes(const ConfigReader& reader, ModelConfig& config,
                           const std::vector<bool>& sliding);

/// Sets the indexer of sparse attention, and the layers that have one. Throws Error.
void parse_indexers(const ConfigReader& reader, ModelConfig& config);

/// Whether intermediate_size lists the widths of the layers' MLPs.
bool lists_mlp_widths(const ConfigReader& reader, const Architecture& architecture);

/// Sets width and sparsity of each layer's MLP, where they are lists. Throws Error.
void parse_mlps_by_layer(const ConfigReader& reader, ModelConfig& config);

/// Sets the parallel residual streams, and the residual beside attention. Throws Error.
void parse_streams(const ConfigReader& reader, ModelConfig& config);

/// Sets the n-grams, and the layers that add them. Throws Error.
void parse_ngrams(const ConfigReader& reader, ModelConfig& config);

/// Sets windows, experts and positions of each layer. Throws Error.
void parse_layers(const ConfigReader& reader, ModelConfig& config);

}  // namespace kvcal
