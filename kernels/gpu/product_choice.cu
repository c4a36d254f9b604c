#include "kernels/gpu/product_choice.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace kvcal::gpu {

namespace {

/// A candidate is worth another kernel than the library's favourite if it is this much faster.
constexpr double kWorthwhile = 0.98;

std::string share_text(double share) {
  char text[16];
  std::snprintf(text, sizeof text, "%.2f", share);
  return text;
}

}  // namespace

/// Tries the candidates of one shape.
class ProductChoices::Trial {
 public:
  /// flop: of the shorter product.
  Trial(ProductChoices& choices, double flop, double expected_rate)
      : choices_(choices), flop_(flop), expected_(flop / expected_rate) {
    // No product is expected to take less time than one of fewer operations took.
    for (const auto& [operations, milliseconds] : choices.slowest_)
      if (operations <= flop) expected_ = std::max(expected_, milliseconds);
  }

  bool has_time() const { return has_time(kProductsOfTrial); }

  /// The fastest admissible candidate of those for which there is time; exists is false where none
  /// was found.
  ChosenAlgorithm fastest(std::span<const Algorithm> candidates, ProductProbe& probe) {
    probe_ = &probe;
    for (const Algorithm& candidate : candidates) {
      if (!has_time()) break;
      time(candidate);
    }
    if (timed_.empty()) return {};           // no time, or all were refused
    const Timed favourite = timed_.front();  // proven
    std::ranges::stable_sort(timed_, {}, &Timed::milliseconds);
    for (const Timed& one : timed_) {
      const bool is_favourite = one.algorithm == favourite.algorithm;
      if (!is_favourite && one.milliseconds > kWorthwhile * favourite.milliseconds) break;
      if (is_favourite || (has_time(kProductsOfProof) && is_proven(*one.algorithm)))
        return chosen(one, favourite);
    }
    return chosen(favourite, favourite);
  }
  int refused() const { return refused_; }

 private:
  /// A product with twice the rows counts as two.
  static constexpr double kProductsOfProof = 3, kProductsOfTrial = 2 + kProductsOfProof;

  struct Timed {
    const Algorithm* algorithm;
    double milliseconds;
  };

  bool has_time(double products) const {
    const double so_far = choices_.spent_ + choices_.clock_() - begin_;
    return so_far + products * expected_ <= kMostMilliseconds;
  }

  /// Whether the algorithm's sums are those of the first admissible one, which this may be. Refused
  /// ones are counted.
  bool is_proven(const Algorithm& algorithm) {
    const auto here = probe_->sums(algorithm);
    const auto elsewhere = here ? probe_->sums_elsewhere(algorithm) : std::nullopt;
    const bool is_admissible = here && here == elsewhere && (!sums_ || *sums_ == *here);
    if (is_admissible) sums_ = here;
    refused_ += is_admissible ? 0 : 1;
    return is_admissible;
  }

  /// Times a candidate with the right sums. The first one is proven before; of the others only the
  /// fastest need to be.
  void time(const Algorithm& candidate) {
    if (!sums_) {
      if (!is_proven(candidate)) return;
    } else if (probe_->sums(candidate) != sums_) {
      ++refused_;
      return;
    }
    const double begin = choices_.clock_();
    if (!probe_->run(candidate)) return;
    timed_.push_back({&candidate, choices_.clock_() - begin});
    expected_ = slowest_ = std::max(slowest_, timed_.back().milliseconds);
    choices_.slowest_[flop_] = slowest_;
  }

  ChosenAlgorithm chosen(const Timed& one, const Timed& favourite) const {
    std::string reason = "fastest of " + std::to_string(timed_.size()) + " timed";
    if (one.algorithm != favourite.algorithm)
      reason += ", in " + share_text(one.milliseconds / favourite.milliseconds) +
                " of the first one's time";
    return {.exists = true, .algorithm = *one.algorithm, .reason = reason + refused_text()};
  }
  std::string refused_text() const {
    return refused_ == 0 ? "" : ", " + std::to_string(refused_) + " refused";
  }

  ProductChoices& choices_;
  ProductProbe* probe_ = nullptr;
  const double flop_;
  double expected_, slowest_ = 0.0;  ///< milliseconds of a product
  const double begin_ = choices_.clock_();
  std::optional<uint64_t> sums_;
  std::vector<Timed> timed_;
  int refused_ = 0;
};

ProductChoices& ProductChoices::of_process() {
  static ProductChoices choices([] {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double, std::milli>(now).count();
  });
  return choices;
}

ChosenAlgorithm ProductChoices::choose(const std::string& key, AlgorithmLibrary& library,
                                       Stream& stream, const MatmulProblem& shape, bool times) {
  const std::lock_guard lock(mutex_);
  const auto [entry, is_new] = chosen_.try_emplace(key);
  ChosenAlgorithm& choice = entry->second;
  if (!is_new) return choice;
  const std::vector<Algorithm> candidates = library.algorithms(shape);
  if (candidates.empty()) return choice;
  std::string why = candidates.size() == 1 ? "the only one" : "not timed";
  if (times && candidates.size() > 1) {
    const double begin = clock_();
    const double flop = 2.0 * static_cast<double>(shape.rows) * static_cast<double>(shape.in) *
                        static_cast<double>(shape.out_features);
    Trial trial(*this, flop, shape.element_bytes() > 2 ? kExpectedRate / 10 : kExpectedRate);
    why = "no time was left for others";
    if (trial.has_time()) {
      const auto probe = ProductProbe::make(library, stream, shape);
      if (probe) choice = trial.fastest(candidates, *probe);
      if (!probe) why = "no memory to try others";
      if (trial.refused() > 0) why = std::to_string(trial.refused()) + " refused";
    }
    spent_ += clock_() - begin;
  }
  if (!choice.exists)
    choice = {.exists = true, .algorithm = candidates.front(), .reason = "first, " + why};
  return choice;
}

}  // namespace kvcal::gpu
