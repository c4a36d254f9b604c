#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "quant/fp8.h"
#include "rewrite/smoothing.h"

namespace kvcal {
namespace {

constexpr float kE4m3Max = 448.0f;
/// The largest constant part. Lower ones leave less room above the smallest codes, higher ones less
/// below 448 for text that reaches further.
constexpr double kMostConstant = 30.0;
/// Constant parts below so many times the spread have no code for themselves: at 1.875 · 2^e a
/// step is a 15th.
constexpr double kLeastConstant = 3.0;
constexpr double kLeastGain = 0.5;
/// Constant parts that decide a calibrated scale: the deviation of the largest of many texts is a
/// few spreads, and the scale may move by a 100th.
constexpr double kLeastPinned = 10.0;
/// How far they stand above all that varies, which may reach further in other text.
constexpr float kLeastAbove = 2.5f;
constexpr int kFactorsOfOctave = 64;
constexpr size_t kMostRows = 1024;

const std::vector<float> kUncalibrated{1.0f};

/// The scales of a cache whose largest K is amax: none, and a calibrated one. Text that reaches a
/// little less or further moves it.
std::vector<float> scales_of(float amax) {
  const float scale = amax > 0.0f ? amax / kE4m3Max : 1.0f;
  return {1.0f, 0.99f * scale, scale, 1.01f * scale};
}

/// Channels of K that change together: of one head, or of all heads where they share factors.
struct Unit {
  std::vector<size_t> firsts;   ///< [heads] index of the first channel in [kv_heads, head_dim]
  std::vector<size_t> seconds;  ///< likewise; empty: single channels
  std::array<double, 2> mean{}, cached_mean{};  ///< of the first head
  double spread = 0.0;                          ///< of the first head, about the mean
  float reach = 0.0f;                           ///< of all heads' channels
  bool is_turning = false;                      ///< RoPE turns it
  UnitChange change = {};
  double error_before = 0.0, error_after = 0.0;

  bool is_changed() const {
    return change.angle != 0.0 || change.factor != 1.0f || change.offset != 0.0f;
  }
  double constant() const { return std::hypot(mean[0], mean[1]); }
};

class LayerAligner {
 public:
  LayerAligner(const ModelConfig& config, int64_t layer, std::span<const KeyRows> samples,
               const std::vector<float>& amax)
      : config_(config), layer_(layer), sizes_(config.attention(layer)), amax_(amax) {
    KVCAL_CHECK(std::ssize(amax) == sizes_.key_width());
    read_rows(samples);
    make_units();
  }

  LayerAlignment run() {
    if (rows_ == 0) return {};
    const std::vector<float> before = scales_of(std::ranges::max(amax_));
    for (Unit& unit : units_) {
      unit.error_before = unit.error_after = error_of(unit, {}, before);
      choose(unit, kUncalibrated, kMostConstant);
      if (unit.is_changed() && error_of(unit, unit.change, kUncalibrated) >=
                                   kLeastGain * error_of(unit, {}, kUncalibrated))
        unit.change = {};
    }
    const std::vector<Unit*> pinned = pin();
    const float reach = reach_of_all();
    const std::vector<float> planned = scales_of(reach);
    for (Unit& unit : units_) {
      if (std::ranges::find(pinned, &unit) != pinned.end()) continue;
      choose(unit, planned, std::min(kMostConstant, double{reach}));
      if (error_of(unit, unit.change, planned) >= kLeastGain * unit.error_before) unit.change = {};
    }
    settle();
    return result();
  }

 private:
  /// Brings the steadiest constant part of each head to 448 · 2^-n, above all that varies in the
  /// layer. So it decides a calibrated scale, whatever the text and whether the scale is a layer's
  /// or a head's, and that scale is a power of two: the other constant parts find the same codes
  /// with it as with scale 1.0.
  std::vector<Unit*> pin() {
    std::map<size_t, Unit*> steadiest;  // by head
    const auto steadiness = [](const Unit& of) { return of.constant() / (of.spread + 1e-30); };
    for (Unit& unit : units_) {
      if (unit.change.offset != 0.0f || unit.constant() < kLeastPinned * unit.spread) continue;
      if (!unit.is_changed() && unit.constant() < kMostConstant) continue;
      Unit*& head = steadiest[unit.firsts.front() / static_cast<size_t>(sizes_.head_dim)];
      if (!head || steadiness(unit) > steadiness(*head)) head = &unit;
    }
    std::vector<Unit*> pinned;
    for (const auto& [head, unit] : steadiest) pinned.push_back(unit);
    // Constant parts that move later move to low lengths.
    float rest = 0.0f;
    for (const Unit& unit : units_)
      if (std::ranges::find(pinned, &unit) == pinned.end())
        rest = std::max(rest, reach_after(unit));
    float reach = kE4m3Max;
    while (reach / 2.0f >= std::max(kMostConstant, double{kLeastAbove * rest})) reach /= 2.0f;
    for (Unit* unit : pinned) pin(*unit, reach);
    return pinned;
  }

  /// Gives the unit the factor with which it reaches so far, and the best angle for that.
  void pin(Unit& unit, float reach) const {
    double least = std::numeric_limits<double>::infinity();
    UnitChange best;
    for (const double angle : angles_of(unit)) {
      unit.change = {.angle = angle};
      unit.change.factor = reach / reach_after(unit);
      const double error = error_of(unit, unit.change, kUncalibrated);
      if (error >= least) continue;
      least = error;
      best = unit.change;
    }
    unit.change = best;
  }

  void read_rows(std::span<const KeyRows> samples) {
    const auto width = static_cast<size_t>(sizes_.key_width());
    before_.resize(width);
    cached_.resize(width);
    for (const KeyRows& sample : samples) {
      KVCAL_CHECK(sample.before.size() == sample.cached.size() &&
                  sample.before.size() % width == 0);
      for (size_t i = 0; i < sample.before.size(); ++i) {
        before_[i % width].push_back(sample.before[i]);
        cached_[i % width].push_back(sample.cached[i]);
      }
    }
    rows_ = before_.front().size();
    // Each so manieth row, of all samples.
    const size_t step = (rows_ + kMostRows - 1) / kMostRows;
    if (step <= 1) return;
    for (std::vector<float>& channel : cached_) {
      size_t kept = 0;
      for (size_t i = 0; i < channel.size(); i += step) channel[kept++] = channel[i];
      channel.resize(kept);
    }
  }

  void make_units() {
    const HeadUnits of_head = key_units(config_, layer_);
    const bool is_shared = shares_key_factors(config_, layer_);
    const auto width = static_cast<size_t>(sizes_.head_dim);
    const auto heads = static_cast<size_t>(sizes_.kv_heads);
    for (size_t head = 0; head < (is_shared ? 1 : heads); ++head)
      for (const std::vector<int64_t>& channels : of_head.all()) {
        Unit unit;
        unit.is_turning = channels.size() == 2;
        for (size_t own = head; own < (is_shared ? heads : head + 1); ++own) {
          unit.firsts.push_back(own * width + static_cast<size_t>(channels[0]));
          if (unit.is_turning)
            unit.seconds.push_back(own * width + static_cast<size_t>(channels[1]));
        }
        measure(unit);
        units_.push_back(std::move(unit));
      }
  }

  void measure(Unit& unit) const {
    const auto mean_of = [](const std::vector<float>& values) {
      double sum = 0.0;
      for (const float value : values) sum += double{value};
      return values.empty() ? 0.0 : sum / static_cast<double>(values.size());
    };
    double squares = 0.0;
    const auto add = [&](size_t channel, size_t place) {
      unit.mean[place] = mean_of(before_[channel]);
      unit.cached_mean[place] = mean_of(cached_[channel]);
      for (const float value : before_[channel])
        squares += std::pow(double{value} - unit.mean[place], 2);
    };
    add(unit.firsts.front(), 0);
    if (unit.is_turning) add(unit.seconds.front(), 1);
    unit.spread = std::sqrt(squares / std::max(1.0, static_cast<double>(rows_)));
    for (const size_t channel : unit.firsts) unit.reach = std::max(unit.reach, amax_[channel]);
    for (const size_t channel : unit.seconds) unit.reach = std::max(unit.reach, amax_[channel]);
  }

  double error_of(const Unit& unit, const UnitChange& change,
                  const std::vector<float>& scales) const {
    double error = 0.0;
    for (size_t i = 0; i < unit.firsts.size(); ++i)
      error += key_error(cached_[unit.firsts[i]],
                         unit.is_turning ? std::span<const float>(cached_[unit.seconds[i]])
                                         : std::span<const float>(),
                         change, scales);
    return error;
  }

  float reach_of_all() const {
    float reach = 0.0f;
    for (const Unit& unit : units_) reach = std::max(reach, reach_after(unit));
    return reach;
  }

  /// The largest magnitude behind the change; of a turned pair, or a shifted channel, in the rows.
  float reach_after(const Unit& unit) const {
    if (unit.change.angle == 0.0 && unit.change.offset == 0.0f)
      return unit.reach * unit.change.factor;
    const double cos = std::cos(unit.change.angle), sin = std::sin(unit.change.angle);
    double reach = 0.0;
    for (size_t head = 0; head < unit.firsts.size(); ++head) {
      const std::vector<float>& first = cached_[unit.firsts[head]];
      for (size_t i = 0; i < first.size(); ++i) {
        const double other = unit.is_turning ? double{cached_[unit.seconds[head]][i]} : 0.0;
        const double own = double{first[i]} + double{unit.change.offset};
        reach = std::max(
            {reach, std::fabs(cos * own - sin * other), std::fabs(sin * own + cos * other)});
      }
    }
    return static_cast<float>(reach) * unit.change.factor;
  }

  std::vector<double> angles_of(const Unit& unit) const {
    std::vector<double> angles{0.0};
    if (!unit.is_turning || reason_against_key_turns(config_, layer_)) return angles;
    angles.push_back(-std::atan2(unit.mean[1], unit.mean[0]));
    // The middle of the arc on which RoPE moves the constant part.
    if (std::hypot(unit.cached_mean[0], unit.cached_mean[1]) > 0.5 * unit.constant())
      angles.push_back(-std::atan2(unit.cached_mean[1], unit.cached_mean[0]));
    return angles;
  }

  /// Gives the unit the change with the least error, where that is less than its own change's.
  void choose(Unit& unit, const std::vector<float>& scales, double most) const {
    unit.change = {};
    double least = error_of(unit, {}, scales);
    const auto consider = [&](const UnitChange& change) {
      const double error = error_of(unit, change, scales);
      if (error < least) {
        least = error;
        unit.change = change;
      }
    };
    if (!unit.is_turning && can_shift_key(config_, layer_))
      consider({.offset = static_cast<float>(-unit.mean[0])});
    // Powers of two bring what would be clipped into the range.
    if (double{unit.reach} > kE4m3Max / 2.0)
      consider({.factor = std::ldexp(1.0f, std::ilogb(most / double{unit.reach}))});
    if (unit.constant() < kLeastConstant * unit.spread) return;
    const double top = std::min(most, unit.constant() * std::sqrt(2.0));
    for (const double angle : angles_of(unit))
      for (int i = 0; i < kFactorsOfOctave; ++i)
        consider(
            {.angle = angle,
             .factor = static_cast<float>(top / unit.constant() *
                                          std::exp2(-static_cast<double>(i) / kFactorsOfOctave))});
  }

  /// Takes errors behind the changes, with the scale that results, and all changes back where what
  /// changed gains too little or the rest loses by it: one unit decides where all codes lie.
  void settle() {
    const std::vector<float> after = scales_of(reach_of_all());
    double before_of_changed = 0.0, after_of_changed = 0.0, before_of_all = 0.0, after_of_all = 0.0;
    for (Unit& unit : units_) {
      unit.error_after = error_of(unit, unit.change, after);
      before_of_all += unit.error_before;
      after_of_all += unit.error_after;
      if (!unit.is_changed()) continue;
      before_of_changed += unit.error_before;
      after_of_changed += unit.error_after;
    }
    if (after_of_changed < kLeastGain * before_of_changed && after_of_all < before_of_all) return;
    for (Unit& unit : units_) {
      unit.change = {};
      unit.error_after = unit.error_before;
    }
  }

  LayerAlignment result() const {
    LayerAlignment made;
    const auto width = static_cast<size_t>(sizes_.key_width());
    const auto dim = static_cast<size_t>(sizes_.head_dim);
    const size_t pairs = key_units(config_, layer_).turning.size();
    LayerFactors factors{
        .k = std::vector<float>(width, 1.0f),
        .key_offset = std::vector<float>(width, 0.0f),
        .key_turns = std::vector<double>(static_cast<size_t>(sizes_.kv_heads) * pairs, 0.0)};
    std::vector<size_t> next_pair(static_cast<size_t>(sizes_.kv_heads), 0);
    for (const Unit& unit : units_) {
      made.error_before += unit.error_before;
      made.error_after += unit.error_after;
      for (size_t i = 0; i < unit.firsts.size(); ++i) {
        factors.k[unit.firsts[i]] = unit.change.factor;
        factors.key_offset[unit.firsts[i]] = unit.change.offset;
        if (!unit.is_turning) continue;
        factors.k[unit.seconds[i]] = unit.change.factor;
        const size_t head = unit.firsts[i] / dim;
        factors.key_turns[head * pairs + next_pair[head]++] = unit.change.angle;
      }
      const auto heads = static_cast<int64_t>(unit.firsts.size());
      if (unit.change.angle != 0.0) {
        made.turned += heads;
      } else if (unit.change.offset != 0.0f) {
        made.shifted += heads;
      } else if (unit.change.factor != 1.0f) {
        made.scaled += heads;
      }
    }
    if (made.turned + made.scaled > 0) made.factors.k = std::move(factors.k);
    if (made.turned > 0) made.factors.key_turns = std::move(factors.key_turns);
    if (made.shifted > 0) made.factors.key_offset = std::move(factors.key_offset);
    return made;
  }

  const ModelConfig& config_;
  const int64_t layer_;
  const AttentionSizes& sizes_;
  const std::vector<float>& amax_;
  size_t rows_ = 0;
  std::vector<std::vector<float>> before_, cached_;  ///< [channels][rows]; cached_: some of them
  std::vector<Unit> units_;
};

/// Sums of one channel's errors.
struct ErrorSums {
  double sum = 0.0, squares = 0.0;

  void add(float error) {
    sum += double{error};
    squares += double{error} * double{error};
  }
  double variance(double count) const {
    return std::max(0.0, squares / count - sum / count * (sum / count));
  }
};

float cache_error(float value, float scale) {
  return fp8::decode(fp8::encode<fp8::Format::kE4m3Fn>(value / scale)) * scale - value;
}

}  // namespace

void check_can_be_aligned(const ModelConfig& config) {
  if (const auto reason = reason_against_key_factors(config)) fail("nothing to align: ", *reason);
}

LayerAlignment align_layer(const ModelConfig& config, int64_t layer,
                           std::span<const KeyRows> samples, const ChannelAmax& amax) {
  check_can_be_aligned(config);
  return LayerAligner(config, layer, samples, amax.k).run();
}

double key_error(std::span<const float> first, std::span<const float> second,
                 const UnitChange& change, std::span<const float> scales) {
  if (first.empty()) return 0.0;
  const auto cos = static_cast<float>(std::cos(change.angle)) * change.factor;
  const auto sin = static_cast<float>(std::sin(change.angle)) * change.factor;
  const auto count = static_cast<double>(first.size());
  double error = 0.0;
  for (const float scale : scales) {
    ErrorSums one, other;
    for (size_t i = 0; i < first.size(); ++i) {
      if (second.empty()) {
        one.add(cache_error((first[i] + change.offset) * change.factor, scale));
        continue;
      }
      one.add(cache_error(cos * first[i] - sin * second[i], scale));
      other.add(cache_error(sin * first[i] + cos * second[i], scale));
    }
    error += one.variance(count) + other.variance(count);
  }
  return error / (double{change.factor} * double{change.factor});
}

}  // namespace kvcal
