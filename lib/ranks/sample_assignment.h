#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "forward/divided_forward.h"
#include "stored/weights.h"

namespace kvcal {

/// FLOP of a forward pass over a sample of T tokens: per_token · T + per_pair · T².
struct SampleWork {
  double per_token = 1.0, per_pair = 0.0;

  double of(int64_t tokens) const {
    const auto length = static_cast<double>(tokens);
    return per_token * length + per_pair * length * length;
  }
};

/// FLOP of a sample in a model's layers: matrices (only the experts that a token is routed to) and
/// attention.
SampleWork sample_work(const ModelConfig& config, const Weights& weights);

/// Assignment of samples to ranks.
struct SampleAssignment : SampleParts {
  std::vector<int> rank_of;  ///< [samples]

  SampleAssignment() { name = "rank"; }
  size_t num_samples() const { return rank_of.size(); }
};

/// Gives each rank about the same number of tokens, which determines its memory, and the same work,
/// which determines its time. With fewer samples than ranks the last ranks have none. Equal on
/// every rank.
SampleAssignment assign_samples(std::span<const int64_t> lengths, const SampleWork& work,
                                int ranks);

}  // namespace kvcal
