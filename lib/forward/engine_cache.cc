#include "forward/engine_cache.h"

#include <algorithm>

namespace kvcal {
namespace {

std::string latent_problem(CacheFormat format, const LatentConfig& latent) {
  const std::string name(name_of(format));
  const CacheLayout& layout = layout_of(format);
  if (layout.latent == 0)
    return "the model keeps a latent (MLA), for which engines have no " + name + " cache";
  if (latent.latent_rank == layout.latent && latent.rope_dim == layout.latent_key) return {};
  return "the model keeps a latent of " + std::to_string(latent.latent_rank) +
         " and a rotated key of " + std::to_string(latent.rope_dim) + ", " + name +
         " caches have " + std::to_string(layout.latent) + " and " +
         std::to_string(layout.latent_key);
}

/// "a multiple of 8", "a power of two from 16 to 512"
std::string expected_heads(const CacheLayout& layout, bool is_value) {
  const int64_t multiple = is_value ? layout.v.multiple : layout.k.multiple;
  std::string text =
      layout.power_of_two
          ? "a power of two of " + std::to_string(std::max(layout.least, multiple)) + " or more"
          : "a multiple of " + std::to_string(multiple);
  if (layout.most < CacheLayout().most) text += ", up to " + std::to_string(layout.most);
  return text;
}

}  // namespace

CachedSizes cached_sizes(const ModelConfig& config, int64_t layer) {
  const LayerCache& cache = config.cache(layer);
  int64_t rotated = 0;
  for (const RopeConfig& rope : config.ropes) rotated = std::max(rotated, rope.rotary_dim);
  if (rotated == 0 || rotated > cache.k_dim) rotated = cache.k_dim;
  return {.k = cache.k_dim, .v = cache.v_dim, .rotated = rotated};
}

std::string head_problem(CacheFormat format, const ModelConfig& config, int64_t layer) {
  if (config.latent.latent_rank > 0) return latent_problem(format, config.layer(layer).latent);
  const std::string name(name_of(format));
  const CacheLayout& layout = layout_of(format);
  if (layout.latent > 0) return name + " caches hold a latent (MLA), which the model does not keep";
  const CachedSizes sizes = cached_sizes(config, layer);
  const std::string of_layer = "layer " + std::to_string(layer) + " ";
  for (const bool is_value : {false, true})
    if (const int64_t size = is_value ? sizes.v : sizes.k; !takes_head(layout, size, is_value))
      return of_layer + "has heads of " + std::to_string(size) + ", " + name + " caches need " +
             expected_heads(layout, is_value);
  if (sizes.rotated % layout.rotated_multiple != 0)
    return of_layer + "rotates " + counted(sizes.rotated, "dimension") + " of K, " + name +
           " caches need a multiple of " + std::to_string(layout.rotated_multiple);
  return {};
}

std::vector<int64_t> plain_layers(const CacheType& type, const ModelConfig& config) {
  const int64_t ends = type.format ? layout_of(*type.format).plain_layers : 0;
  const int64_t count = config.num_hidden_layers;
  const bool has_recurrence = !config.layers_where(&LayerConfig::has_recurrence).empty();
  if (ends == 0 || has_recurrence || count <= 2 * ends) return {};
  std::vector<int64_t> layers;
  for (int64_t layer = 0; layer < count; ++layer)
    if (config.has_own_cache(layer) && (layer < ends || layer >= count - ends))
      layers.push_back(layer);
  return layers;
}

}  // namespace kvcal
