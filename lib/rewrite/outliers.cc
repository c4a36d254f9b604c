#include "rewrite/outliers.h"

#include <cmath>
#include <map>
#include <numbers>
#include <random>
#include <set>

#include "core/number.h"
#include "core/shuffle.h"
#include "core/text.h"

namespace kvcal {
namespace {

constexpr std::string_view kExpectedParts =
    "k:pairs=N,factor=F; v:channels=N,factor=F; bias:norm=X[,pairs=N]; layers=A,B-C";
constexpr float kLargestFactor = 0x1p20f, kLargestNorm = 32768.0f;

template <class Number>
Number number_of(std::string_view text, Number least, Number most) {
  Number value{};
  if (const std::string fault = read_number(text, least, most, value); !fault.empty()) fail(fault);
  return value;
}

/// Values of the keys of one part. optional: a further key, which may be missing.
std::map<std::string_view, std::string_view> fields_of(std::string_view text,
                                                       const std::set<std::string_view>& keys,
                                                       std::string_view optional = {}) {
  std::map<std::string_view, std::string_view> fields;
  for (const std::string_view field : split(text, ',')) {
    const size_t equal = field.find('=');
    const std::string_view key = field.substr(0, equal);
    if (equal == std::string_view::npos || !(keys.contains(key) || key == optional))
      fail("'", field, "' is no setting of it");
    if (!fields.emplace(key, field.substr(equal + 1)).second) fail("'", key, "' is there twice");
  }
  for (const std::string_view key : keys)
    if (!fields.contains(key)) fail("has no ", key, "=");
  return fields;
}

OutlierSpec::Part part_of(std::string_view text, std::string_view count) {
  const auto fields = fields_of(text, {count, "factor"});
  OutlierSpec::Part part;
  part.count = number_of<int64_t>(fields.at(count), 1, 1 << 20);
  part.factor = number_of<float>(fields.at("factor"), 1.0f / kLargestFactor, kLargestFactor);
  int exponent = 0;
  if (std::frexp(part.factor, &exponent) != 0.5f)
    fail("factor ", part.factor, " is no power of two; others would round the weights");
  return part;
}

std::vector<int64_t> layers_of(std::string_view text) {
  std::set<int64_t> layers;
  constexpr int64_t kMost = 100000;
  for (const std::string_view range : split(text, ',')) {
    const size_t dash = range.find('-');
    const auto first = number_of<int64_t>(range.substr(0, dash), 0, kMost);
    const auto last = dash == std::string_view::npos
                          ? first
                          : number_of<int64_t>(range.substr(dash + 1), first, kMost);
    for (int64_t layer = first; layer <= last; ++layer) layers.insert(layer);
  }
  return {layers.begin(), layers.end()};
}

void parse_part(std::string_view text, OutlierSpec& spec) {
  const auto once = [&](bool is_there) {
    if (is_there) fail("is there twice");
  };
  if (text.starts_with("k:")) {
    once(spec.k.has_value());
    spec.k = part_of(text.substr(2), "pairs");
  } else if (text.starts_with("v:")) {
    once(spec.v.has_value());
    spec.v = part_of(text.substr(2), "channels");
  } else if (text.starts_with("bias:")) {
    once(spec.bias_norm.has_value());
    const auto fields = fields_of(text.substr(5), {"norm"}, "pairs");
    spec.bias_norm = number_of<float>(fields.at("norm"), 1.0f / kLargestNorm, kLargestNorm);
    if (fields.contains("pairs"))
      spec.bias_pairs = number_of<int64_t>(fields.at("pairs"), 1, 1 << 20);
  } else if (text.starts_with("layers=")) {
    once(!spec.layers.empty());
    spec.layers = layers_of(text.substr(7));
  } else {
    fail("is no part; expected ", kExpectedParts);
  }
}

/// Units of a head in the order in which they become outliers.
KeyUnits chosen_units(const HeadUnits& units, std::mt19937_64& random) {
  KeyUnits all = units.turning.empty() ? units.fixed : units.turning;
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  KeyUnits fast(all.begin(), middle), slow(middle, all.end());
  shuffle(fast, random);
  shuffle(slow, random);
  slow.insert(slow.end(), fast.begin(), fast.end());
  return slow;
}

/// Sets the factor of `count` of a head's units; head: its channels.
void set_units(const KeyUnits& units, const OutlierSpec::Part& part, std::span<float> head,
               std::string_view name) {
  if (part.count > static_cast<int64_t>(units.size()))
    fail("has ", units.size(), " ", name, " a head, ", part.count, " were asked for");
  for (int64_t i = 0; i < part.count; ++i)
    for (const int64_t channel : units[static_cast<size_t>(i)])
      head[static_cast<size_t>(channel)] = part.factor;
}

class Outliers {
 public:
  Outliers(const ModelConfig& config, const OutlierSpec& spec, uint64_t seed)
      : config_(config), spec_(spec), seed_(seed) {}

  KvFactors factors() {
    check();
    KvFactors all(static_cast<size_t>(config_.num_hidden_layers));
    for (const int64_t layer : layers(false)) {
      LayerFactors& own = all[static_cast<size_t>(layer)];
      // A generator a layer: the choice of others does not move it.
      std::mt19937_64 random(seed_ * 1000003 + static_cast<uint64_t>(layer));
      if (spec_.k) set_keys(layer, random, own.k);
      if (spec_.v) set_values(layer, random, own.v);
    }
    if (spec_.bias_norm)
      for (const int64_t layer : layers(true))
        all[static_cast<size_t>(layer)].key_offset = offset_of(layer);
    return all;
  }

 private:
  void check() const {
    if (spec_.k)
      if (const auto reason = reason_against_key_factors(config_))
        fail("no outliers in K: ", *reason);
    if (spec_.v)
      if (const auto reason = reason_against_value_factors(config_))
        fail("no outliers in V: ", *reason);
    if (spec_.bias_norm)
      if (const auto reason = reason_against_key_offset(config_)) fail("no bias of K: ", *reason);
    for (const int64_t layer : spec_.layers)
      if (layer >= config_.num_hidden_layers || !config_.has_own_cache(layer))
        fail("layer ", layer, " has no K and V of its own; the last layer that has is ",
             config_.last_cached_layer());
  }

  std::vector<int64_t> layers(bool is_bias) const {
    if (!spec_.layers.empty()) return spec_.layers;
    std::vector<int64_t> cached = config_.cached_layers();
    return is_bias ? std::vector<int64_t>{cached.front(), cached.back()} : cached;
  }

  void set_keys(int64_t layer, std::mt19937_64& random, std::vector<float>& k) const {
    const AttentionSizes& sizes = config_.attention(layer);
    k.assign(static_cast<size_t>(sizes.key_width()), 1.0f);
    const HeadUnits units = key_units(config_, layer);
    const bool is_shared = shares_key_factors(config_, layer);
    KeyUnits chosen;
    for (int64_t head = 0; head < sizes.kv_heads; ++head) {
      if (head == 0 || !is_shared) chosen = chosen_units(units, random);
      set_units(chosen, *spec_.k, head_of(k, head, sizes.head_dim), "pairs");
    }
  }

  void set_values(int64_t layer, std::mt19937_64& random, std::vector<float>& v) const {
    const AttentionSizes& sizes = config_.attention(layer);
    v.assign(static_cast<size_t>(sizes.value_width()), 1.0f);
    for (int64_t head = 0; head < sizes.kv_heads; ++head) {
      KeyUnits channels;
      for (int64_t i = 0; i < sizes.value_dim; ++i) channels.push_back({i});
      shuffle(channels, random);
      set_units(channels, *spec_.v, head_of(v, head, sizes.value_dim), "channels");
    }
  }

  /// The slowest pairs turn so little that all keys of a context get nearly the same score from
  /// them, which a softmax ignores: so models with such biases can be trained.
  std::vector<float> offset_of(int64_t layer) const {
    const AttentionSizes& sizes = config_.attention(layer);
    const HeadUnits of_head = key_units(config_, layer);
    const KeyUnits& units = of_head.turning.empty() ? of_head.fixed : of_head.turning;
    const int64_t count = spec_.bias_pairs.value_or(1);
    if (count > std::ssize(units))
      fail("has ", counted(units.size(), "pair"), " a head, ", count, " were asked for");
    std::vector<float> offset(static_cast<size_t>(sizes.key_width()), 0.0f);
    std::mt19937_64 random(seed_ * 1000003 + static_cast<uint64_t>(layer));
    for (int64_t head = 0; head < sizes.kv_heads; ++head)
      for (int64_t i = 0; i < count; ++i) {
        const std::vector<int64_t>& unit = units[units.size() - 1 - static_cast<size_t>(i)];
        // The top 53 bits, as std::uniform_real_distribution differs between libraries.
        const double turn = static_cast<double>(random() >> 11) * 0x1p-53;
        const double angle = 2.0 * std::numbers::pi * (spec_.bias_pairs ? turn : 0.125);
        const double parts[] = {std::cos(angle), std::sin(angle)};
        for (size_t place = 0; place < unit.size(); ++place)
          head_of(offset, head, sizes.head_dim)[static_cast<size_t>(unit[place])] =
              static_cast<float>(double{*spec_.bias_norm} *
                                 (unit.size() == 1 ? 1.0 : parts[place]));
      }
    return offset;
  }

  static std::span<float> head_of(std::vector<float>& all, int64_t head, int64_t width) {
    return std::span(all).subspan(static_cast<size_t>(head * width), static_cast<size_t>(width));
  }

  const ModelConfig& config_;
  const OutlierSpec& spec_;
  const uint64_t seed_;
};

}  // namespace

OutlierSpec parse_outlier_spec(std::string_view text) {
  OutlierSpec spec;
  for (const std::string_view part : split(text, ';'))
    in_context("'" + std::string(part) + "'", [&] { parse_part(part, spec); });
  if (!spec.k && !spec.v && !spec.bias_norm)
    fail("'", text, "' names layers alone; expected ", kExpectedParts);
  return spec;
}

KvFactors outlier_factors(const ModelConfig& config, const OutlierSpec& spec, uint64_t seed) {
  return Outliers(config, spec, seed).factors();
}

}  // namespace kvcal
