#include "eval/mixed_precision.h"

#include <algorithm>
#include <map>

namespace kvcal {
namespace {

/// Caches that are scored in one pass: of a curve, and between two numbers.
constexpr size_t kAtOnce = 4, kBetween = 7;
constexpr size_t kCurvePoints = 8;

/// Up to count numbers in (low, high), evenly apart.
std::vector<size_t> between(size_t low, size_t high, size_t count) {
  std::vector<size_t> numbers;
  const size_t room = high - low - 1;
  const size_t taken = std::min(count, room);
  for (size_t i = 1; i <= taken; ++i) numbers.push_back(low + i * (room + 1) / (taken + 1));
  return numbers;
}

/// Caches that keep the first of ranked layers, by their number.
class Search {
 public:
  Search(const std::vector<int64_t>& ranked, const ScoreLayers& measure)
      : ranked_(ranked), measure_(measure) {}

  void score(const std::vector<size_t>& numbers) {
    if (numbers.empty()) return;
    std::vector<std::vector<int64_t>> kept;
    for (const size_t number : numbers) kept.push_back(layers_of(number));
    const std::vector<Likelihood> results = measure_(kept);
    for (size_t i = 0; i < numbers.size(); ++i)
      measured_[numbers[i]] = {std::move(kept[i]), results.at(i)};
  }

  /// The least number within the budget; nullopt: none up to most, which is below all.
  std::optional<size_t> find(double budget, size_t most) {
    size_t low = 0;  // over the budget, as far as is known
    std::optional<size_t> high = first_within(budget, most, low);
    while (high && *high - low > 1) {
      const std::vector<size_t> numbers = between(low, *high, kBetween);
      score(numbers);
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
  bool is_within(size_t number, double budget) const {
    return *measured_.at(number).result.kl_mean <= budget;
  }

  /// Passes with more and more layers, to the first that is within the budget. low: becomes the
  /// largest number before it.
  std::optional<size_t> first_within(double budget, size_t most, size_t& low) {
    std::vector<size_t> numbers{0, 1, 2, 3, 4};
    while (true) {
      std::erase_if(numbers, [&](size_t number) { return number > most; });
      if (numbers.empty() || measured_.contains(numbers.back())) return std::nullopt;
      const size_t last = numbers.back();
      score(numbers);
      for (const size_t number : numbers) {
        if (is_within(number, budget)) return number;
        low = number;
      }
      numbers = {last + last / 2, 2 * last, 3 * last, 4 * last};
      if (last < most && numbers.front() > most) numbers = {most};
    }
  }

  std::vector<int64_t> layers_of(size_t number) const {
    std::vector<int64_t> layers(ranked_.begin(),
                                ranked_.begin() + static_cast<std::ptrdiff_t>(number));
    std::ranges::sort(layers);
    return layers;
  }

  const std::vector<int64_t>& ranked_;
  const ScoreLayers& measure_;
  std::map<size_t, MixedCache> measured_;
};

}  // namespace

void rank(std::vector<LayerSensitivity>& layers) {
  std::ranges::sort(layers, [](const LayerSensitivity& a, const LayerSensitivity& b) {
    return a.kl_mean != b.kl_mean ? a.kl_mean > b.kl_mean : a.layer < b.layer;
  });
}

MixedSearch find_kept_layers(const std::vector<int64_t>& ranked, double kl_budget, size_t most,
                             const ScoreLayers& measure) {
  Search search(ranked, measure);
  const size_t below_all = ranked.empty() ? 0 : ranked.size() - 1;
  return search.take(search.find(kl_budget, std::min(most, below_all)));
}

MixedSearch score_layer_counts(const std::vector<int64_t>& ranked, const ScoreLayers& measure) {
  Search search(ranked, measure);
  std::vector<size_t> numbers = between(0, ranked.size(), kCurvePoints - 1);
  numbers.insert(numbers.begin(), 0);
  for (size_t i = 0; i < numbers.size(); i += kAtOnce)
    search.score(
        {numbers.begin() + static_cast<std::ptrdiff_t>(i),
         numbers.begin() + static_cast<std::ptrdiff_t>(std::min(i + kAtOnce, numbers.size()))});
  return search.take(std::nullopt);
}

}  // namespace kvcal
