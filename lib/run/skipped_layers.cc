#include "run/skipped_layers.h"

#include <algorithm>

#include "core/error.h"
#include "core/number_text.h"

namespace kvcal {

std::vector<int64_t> with_readers(const std::vector<int64_t>& layers, const ModelConfig& config) {
  const std::vector<int64_t> attention = config.attention_layers();
  for (const int64_t layer : layers)
    if (std::ranges::find(attention, layer) == attention.end())
      fail("layer ", layer, " is none of the layers with K and V, which are ",
           range_text(attention));
  std::vector<int64_t> all;
  for (const int64_t layer : attention) {
    const int64_t source = config.layer(layer).cache_layer;
    if (std::ranges::any_of(layers,
                            [&](int64_t one) { return config.layer(one).cache_layer == source; }))
      all.push_back(layer);
  }
  return all;
}

}  // namespace kvcal
