#pragma once

#include <string>
#include <vector>

#include "run/measured_scales.h"

namespace kvcal {

/// A table of the caches that a trial measured, a row each, as whole lines for a terminal: bytes a
/// token, mean KL in nats with its standard error, change of perplexity, same top token.
std::string caches_text(const std::vector<MeasuredCache>& caches);

}  // namespace kvcal
