// Parallel residual streams, and what layers' MLPs have of their own. Source: transformers 5.23,
// models/gemma3n `Gemma3nTextConfig`.
#include "family/architecture.h"
#include "family/config_reader.h"

namespace kvcal {
namespace {

/// More would be a mistake: the largest published model has 4.
constexpr int64_t kMaxStreams = 64;

void parse_sparsity(const ConfigReader& reader, ModelConfig& config) {
  constexpr std::string_view kKey = "activation_sparsity_pattern";
  // Where it is absent, the first ten layers of a model with more are sparse.
  constexpr int64_t kSparseLayers = 10;
  constexpr double kSparsity = 0.95;
  const Json* list = reader.find(kKey);
  if (list) check_one_a_layer(kKey, *list, config.num_hidden_layers);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const bool is_sparse = config.num_hidden_layers > kSparseLayers && i < size_t{kSparseLayers};
    config.layers[i].activation_sparsity = list        ? number_at(*list, i, kKey)
                                           : is_sparse ? kSparsity
                                                       : 0.0;
  }
}

}  // namespace

bool lists_mlp_widths(const ConfigReader& reader, const Architecture& architecture) {
  const Json* width = reader.find("intermediate_size");
  return architecture.has_mlp_by_layer && width && width->is_array();
}

void parse_mlps_by_layer(const ConfigReader& reader, ModelConfig& config) {
  constexpr std::string_view kKey = "intermediate_size";
  if (lists_mlp_widths(reader, *config.architecture)) {
    const Json& list = *reader.find(kKey);
    check_one_a_layer(kKey, list, config.num_hidden_layers);
    for (size_t i = 0; i < config.layers.size(); ++i) {
      const Json& width = list.at(i);
      if (!width.is_number_integer() || width < 1 || width > kMaxWidth)
        fail("key '", kKey, "' holds ", width.dump(), " for layer ", i,
             ", expected an integer from 1 to ", kMaxWidth);
      config.layers[i].intermediate_size = width.get<int64_t>();
    }
    config.intermediate_size = config.largest(&LayerConfig::intermediate_size);
  }
  parse_sparsity(reader, config);
}

void parse_streams(const ConfigReader& reader, ModelConfig& config) {
  if (has_row(*config.architecture, Role::kLaurelDown))
    config.laurel_rank = reader.size("laurel_rank", kMaxWidth);
  if (!has_row(*config.architecture, Role::kStreamRouter)) return;
  config.streams = reader.size("altup_num_inputs", kMaxStreams, 2);
  config.active_stream = reader.size("altup_active_idx", config.streams - 1, 0);
}

}  // namespace kvcal
