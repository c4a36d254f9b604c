#include "run/fp8_attention.h"

#include <algorithm>

#include "core/error.h"
#include "family/architecture.h"

namespace kvcal {
namespace {

constexpr float kWeightScale = 1.0f / 256.0f;

/// Of scales of queries, the largest of each KV head for all of its attention heads.
void tie_groups(std::vector<Scale>& q, int64_t kv_heads) {
  const size_t group = q.size() / static_cast<size_t>(kv_heads);
  for (size_t first = 0; group > 1 && first + group <= q.size(); first += group) {
    const auto begin = q.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = begin + static_cast<std::ptrdiff_t>(group);
    std::fill(begin, end,
              *std::max_element(begin, end, [](Scale a, Scale b) { return a.value < b.value; }));
  }
}

}  // namespace

std::vector<LayerKvScales> with_fp8_attention(std::vector<LayerKvScales> scales,
                                              const CacheType& type, const ModelConfig& config) {
  if (type != KvDType::kFp8E4m3)
    fail("FP8 attention needs an fp8_e4m3 cache, this one is ", name_of(type));
  if (config.architecture->has_latent_attention)
    fail("the model keeps a latent (MLA), whose FP8 attention is not simulated");
  for (size_t layer = 0; layer < scales.size(); ++layer) {
    LayerKvScales& own = scales[layer];
    if (own.ignored || !config.has_attention(static_cast<int64_t>(layer))) continue;
    if (own.q.empty()) own.q = {Scale{1.0f}};
    tie_groups(own.q, config.attention(static_cast<int64_t>(layer)).kv_heads);
    own.weights = Scale{kWeightScale};
  }
  return scales;
}

}  // namespace kvcal
