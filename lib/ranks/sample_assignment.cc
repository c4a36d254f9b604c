#include "ranks/sample_assignment.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/error.h"

namespace kvcal {
namespace {

/// Limit of swaps; each takes about the square of the number of samples.
constexpr int kMaxSwaps = 100;
/// Fraction of an even share below which no swap is searched.
constexpr double kEvenEnough = 1e-3;

/// Load as fractions of an even share, so that tokens and work are comparable.
struct Load {
  double tokens = 0.0, work = 0.0;
  double most() const { return std::max(tokens, work); }
};
Load operator+(Load a, Load b) {
  return {a.tokens + b.tokens, a.work + b.work};
}
Load operator-(Load a, Load b) {
  return {a.tokens - b.tokens, a.work - b.work};
}

class Balancer {
 public:
  Balancer(std::span<const int64_t> lengths, const SampleWork& work, int ranks)
      : loads_(static_cast<size_t>(ranks)), rank_of_(lengths.size()) {
    double tokens = 0.0, flop = 0.0;
    for (const int64_t length : lengths) {
      tokens += static_cast<double>(length);
      flop += work.of(length);
    }
    for (const int64_t length : lengths)
      samples_.push_back(
          {static_cast<double>(length) * ranks / tokens, work.of(length) * ranks / flop});
  }

  std::vector<int> run() {
    place_largest_first();
    for (int i = 0; i < kMaxSwaps && improve(); ++i) {
    }
    return rank_of_;
  }

 private:
  Load& load_of(size_t sample) { return loads_[static_cast<size_t>(rank_of_[sample])]; }

  void place_largest_first() {
    std::vector<size_t> order(samples_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(
        order, [&](size_t a, size_t b) { return samples_[a].work > samples_[b].work; });
    for (const size_t sample : order) {
      const auto least = std::ranges::min_element(
          loads_, {}, [](const Load& load) { return load.tokens + load.work; });
      rank_of_[sample] = static_cast<int>(least - loads_.begin());
      *least = *least + samples_[sample];
    }
  }

  /// Makes the best swap of a sample of the most loaded rank with one of another rank, or with
  /// none; false where no swap helps.
  bool improve() {
    const auto most = std::ranges::max_element(loads_, {}, &Load::most) - loads_.begin();
    const Load from = loads_[static_cast<size_t>(most)];
    double best = from.most();
    if (best <= 1.0 + kEvenEnough) return false;
    constexpr size_t kNothing = std::numeric_limits<size_t>::max();
    size_t given = kNothing, taken = kNothing, target = 0;
    const auto consider = [&](size_t sample, size_t other, size_t rank) {
      const Load moved = other == kNothing ? samples_[sample] : samples_[sample] - samples_[other];
      const double after = std::max((from - moved).most(), (loads_[rank] + moved).most());
      if (after >= best) return;
      best = after;
      given = sample;
      taken = other;
      target = rank;
    };
    for (size_t sample = 0; sample < samples_.size(); ++sample) {
      if (rank_of_[sample] != most) continue;
      for (size_t rank = 0; rank < loads_.size(); ++rank)
        if (static_cast<std::ptrdiff_t>(rank) != most) consider(sample, kNothing, rank);
      for (size_t other = 0; other < samples_.size(); ++other)
        if (rank_of_[other] != most) consider(sample, other, static_cast<size_t>(rank_of_[other]));
    }
    if (given == kNothing) return false;
    move(given, static_cast<int>(target));
    if (taken != kNothing) move(taken, static_cast<int>(most));
    return true;
  }

  void move(size_t sample, int rank) {
    load_of(sample) = load_of(sample) - samples_[sample];
    rank_of_[sample] = rank;
    load_of(sample) = load_of(sample) + samples_[sample];
  }

  std::vector<Load> samples_, loads_;
  std::vector<int> rank_of_;
};

bool is_of_routed_expert(Role role) {
  return role == Role::kExpertGate || role == Role::kExpertUp || role == Role::kExpertDown ||
         role == Role::kExpertGateUp;
}

}  // namespace

SampleWork sample_work(const ModelConfig& config, const Weights& weights) {
  SampleWork work{.per_token = 0.0, .per_pair = 0.0};
  const MoeConfig& moe = config.moe;
  const double routed = moe.num_experts == 0 ? 1.0
                                             : static_cast<double>(moe.experts_per_token) /
                                                   static_cast<double>(moe.num_experts);
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    for (const auto& [role, tensor, is_scale] : weights.tensors(layer))
      if (tensor.shape.rank() >= 2 && !is_scale)
        work.per_token += 2.0 * static_cast<double>(element_count(tensor.shape)) *
                          (is_of_routed_expert(role) ? routed : 1.0);
    // Scores and weighted sums, for the half of all pairs that a causal mask leaves.
    if (config.has_attention(layer))
      work.per_pair += static_cast<double>(config.attention(layer).heads *
                                           (config.cache(layer).k_dim + config.cache(layer).v_dim));
  }
  return work;
}

SampleAssignment assign_samples(std::span<const int64_t> lengths, const SampleWork& work,
                                int ranks) {
  KVCAL_CHECK(ranks > 0);
  SampleAssignment assignment;
  assignment.rank_of.resize(lengths.size());
  assignment.samples_of.resize(static_cast<size_t>(ranks));
  if (ranks > 1 && !lengths.empty()) assignment.rank_of = Balancer(lengths, work, ranks).run();
  for (size_t sample = 0; sample < lengths.size(); ++sample)
    assignment.samples_of[static_cast<size_t>(assignment.rank_of[sample])].push_back(sample);
  return assignment;
}

}  // namespace kvcal
