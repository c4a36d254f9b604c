#pragma once

#include <cstdint>
#include <vector>

namespace kvcal {

/// Slopes of ALiBi, one a head: 2^(-8 · i / n) for i = 1 .. n, where n heads are a power of two.
/// Of other numbers, those of the power of two below come first, then every other one of the power
/// of two above. Source: Press, Smith and Lewis (2022), as transformers 5.24 has it in models/bloom
/// and models/mpt.
std::vector<float> alibi_slopes(int64_t heads);

}  // namespace kvcal
