#pragma once

#include <cstdint>
#include <set>

#include "core/token.h"
#include "stored/weights.h"

namespace kvcal {

/// Hash of the bytes of the tensors outside of the layers that a pass over these tokens reads: of
/// the embeddings of tokens their rows, of others all, and not the output embedding. Never 0.
uint64_t model_hash(const Weights& weights, const std::set<TokenId>& ids);

}  // namespace kvcal
