#include "run/run_hashes.h"

#include <set>

#include "ranks/layer_extents.h"
#include "stored/model_hash.h"

namespace kvcal {

void RunHashes::begin(std::span<const Sample> samples) {
  std::set<TokenId> ids;
  for (const Sample& sample : samples) ids.insert(sample.ids.begin(), sample.ids.end());
  of_model_ = model_hash(weights_, ids);
}

uint64_t RunHashes::packed(int64_t layer) {
  const uint64_t hash = packed_ ? packed_->hash(layer) : 0;
  return hash != 0 ? hash : stored(layer);
}

uint64_t RunHashes::stored(int64_t layer) {
  const auto [found, is_new] = stored_.try_emplace(layer, 0);
  if (is_new) found->second = layer_hash(weights_, layer);
  return found->second;
}

}  // namespace kvcal
