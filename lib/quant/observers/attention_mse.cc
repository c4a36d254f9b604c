#include <cmath>

#include "quant/observer.h"

namespace kvcal {
namespace {

/// Of K the scale around the running extremes with which attention's output is least wrong, of V
/// the running extremes: a calibration asks for candidates and judges them.
class AttentionMse : public Observer {
 public:
  bool may_clip() const override { return true; }

  std::vector<Scale> candidates(Scale made) const override {
    std::vector<Scale> scales{{1.0f}};
    for (int step = kLeast; step <= kMost; ++step)
      if (step != 0)
        scales.push_back({std::ldexp(made.value * (step % 2 == 0 ? 1.0f : kRootOfTwo),
                                     static_cast<int>(std::floor(step / 2.0)))});
    return scales;
  }

  size_t best(std::span<const AttentionError> errors) const override {
    size_t best = 0;
    for (size_t i = 1; i < errors.size(); ++i)
      if (errors[i].error < errors[best].error) best = i;
    return best;
  }

 private:
  /// Two steps an octave: finer ones only move where codes lie in the range.
  static constexpr int kLeast = -12, kMost = 2;
  static constexpr float kRootOfTwo = 1.41421356f;
  Amax choose(const TensorStatistics& seen, const KvFormat&) const override {
    return seen.range().amax();
  }
};

constexpr std::string_view kAttentionAlone = "it judges scales of a KV cache by attention";

}  // namespace

ObserverRow attention_mse_observer() {
  return {.why_not = {"", kAttentionAlone, kAttentionAlone},
          .make = [](const Json&) -> std::unique_ptr<Observer> {
            return std::make_unique<AttentionMse>();
          }};
}

}  // namespace kvcal
