#pragma once

#include <string>
#include <vector>

#include "run/cache_advice.h"
#include "run/measured_scales.h"

namespace kvcal {

// Tables of caches that a model may have, a row each, as whole lines for a terminal.

/// Caches that a trial measured: bytes a token, mean KL in nats with its standard error, change of
/// perplexity, same top token.
std::string caches_text(const std::vector<MeasuredCache>& caches);

/// Caches as statistics rank them: bytes a token, relative errors of K and V, shares of their
/// values that are clipped and that become zero; then the same of each layer, unless that table has
/// more than most_rows rows.
std::string advice_text(const std::vector<AdvisedCache>& caches, size_t most_rows);

}  // namespace kvcal
