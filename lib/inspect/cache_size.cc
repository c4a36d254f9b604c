#include "inspect/cache_size.h"

namespace kvcal {

CacheSize cache_size(const ModelConfig& config) {
  const RecurrentConfig& mixer = config.recurrent;
  const int64_t state =
      (mixer.kernel - 1) * mixer.channels + mixer.heads * mixer.head_dim * mixer.state_dim;
  const int64_t layer = config.cache_heads() * (config.cache_k_dim() + config.cache_v_dim());
  const auto layers = std::ssize(config.attention_layers());
  const auto recurrent = std::ssize(config.layers_where(&LayerConfig::has_recurrence));
  return {.heads = config.cache_heads(),
          .k_dim = config.cache_k_dim(),
          .v_dim = config.cache_v_dim(),
          .layers = layers,
          .values_per_token = layer * layers,
          .state_bytes_per_sequence = 4 * recurrent * state};
}

}  // namespace kvcal
