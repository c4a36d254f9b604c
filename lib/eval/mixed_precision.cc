#include "eval/mixed_precision.h"

#include <algorithm>
#include <map>

namespace kvcal {
namespace {

/// Caches that are scored in one pass.
constexpr size_t kAtOnce = 4;
constexpr size_t kCurvePoints = 8;

/// Up to count numbers in (low, high), evenly apart.
std::vector<size_t> between(size_t low, size_t high, size_t count) {
  std::vector<size_t> numbers;
  const size_t room = high - low - 1;
  const size_t taken = std::min(count, room);
  for (size_t i = 1; i <= taken; ++i) numbers.push_back(low + i * (room + 1) / (taken + 1));
  return numbers;
}

class Search {
 public:
  Search(const std::vector<LayerSensitivity>& ranked, const MeasureKept& measure)
      : ranked_(ranked), measure_(measure) {}

  void measure(const std::vector<size_t>& numbers) {
    std::vector<std::vector<int64_t>> kept;
    for (const size_t number : numbers) kept.push_back(layers_of(number));
    const std::vector<Likelihood> results = measure_(kept);
    for (size_t i = 0; i < numbers.size(); ++i)
      measured_[numbers[i]] = {std::move(kept[i]), results.at(i)};
  }

  bool is_within(size_t number, double budget) const {
    return number == ranked_.size() || *measured_.at(number).result.kl_mean <= budget;
  }

  /// The least number within the budget.
  size_t find(double budget) {
    measure({0});
    if (is_within(0, budget)) return 0;
    size_t low = 0, high = ranked_.size();
    while (high - low > 1) {
      const std::vector<size_t> numbers = between(low, high, kAtOnce);
      measure(numbers);
      for (const size_t number : numbers)
        if (is_within(number, budget)) {
          high = number;
          break;
        } else {
          low = number;
        }
    }
    return high;
  }

  MixedSearch take(std::optional<size_t> proposed) {
    MixedSearch result;
    for (auto& [number, cache] : measured_) {
      if (number == proposed) result.proposed = result.measured.size();
      result.measured.push_back(std::move(cache));
    }
    return result;
  }

 private:
  std::vector<int64_t> layers_of(size_t number) const {
    std::vector<int64_t> layers;
    for (size_t i = 0; i < number; ++i) layers.push_back(ranked_[i].layer);
    std::ranges::sort(layers);
    return layers;
  }

  const std::vector<LayerSensitivity>& ranked_;
  const MeasureKept& measure_;
  std::map<size_t, MixedCache> measured_;
};

}  // namespace

void rank(std::vector<LayerSensitivity>& layers) {
  std::ranges::sort(layers, [](const LayerSensitivity& a, const LayerSensitivity& b) {
    return a.kl_mean != b.kl_mean ? a.kl_mean > b.kl_mean : a.layer < b.layer;
  });
}

MixedSearch search_kept_layers(const std::vector<LayerSensitivity>& ranked,
                               std::optional<double> kl_budget, const MeasureKept& measure) {
  Search search(ranked, measure);
  if (kl_budget) return search.take(search.find(*kl_budget));
  std::vector<size_t> numbers = between(0, ranked.size(), kCurvePoints - 1);
  numbers.insert(numbers.begin(), 0);
  for (size_t i = 0; i < numbers.size(); i += kAtOnce)
    search.measure(
        {numbers.begin() + static_cast<std::ptrdiff_t>(i),
         numbers.begin() + static_cast<std::ptrdiff_t>(std::min(i + kAtOnce, numbers.size()))});
  return search.take(std::nullopt);
}

}  // namespace kvcal
