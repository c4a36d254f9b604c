#include "inspect/page_values.h"

#include <algorithm>
#include <cmath>

#include "core/file.h"
#include "core/folder.h"
#include "quant/damage_verdict.h"
#include "quant/observations.h"

namespace kvcal {

using report::CacheTensor;

Json find_manifest(const fs::path& folder) {
  for (const fs::path& place : {folder, folder.parent_path()})
    if (is_there(place / kManifestName))
      return in_context((place / kManifestName).string(),
                        [&] { return parse_json(read_text(place / kManifestName)); });
  return nullptr;
}

const Json* find_layer(const Json& manifest, int64_t layer) {
  const Json* layers = member(manifest, "layers");
  if (!layers || !layers->is_array()) return nullptr;
  for (const Json& entry : *layers)
    if (entry.is_object() && optional_int(entry, "layer") == layer) return &entry;
  return nullptr;
}

std::vector<float> magnitudes(const Json& object, const std::string& key) {
  const Json* value = find_field(object, key);
  std::vector<float> numbers;
  if (!value) return numbers;
  const auto add = [&](const Json& number) {
    if (!number.is_number()) fail_kind(key, "a number or a list of numbers", number);
    const auto magnitude = number.get<float>();
    if (!std::isfinite(magnitude) || magnitude < 0.0f)
      fail(key, ": found ", magnitude, ", expected a finite number that is not negative");
    numbers.push_back(magnitude);
  };
  if (!value->is_array())
    add(*value);
  else
    for (const Json& number : *value) add(number);
  return numbers;
}

namespace {

std::optional<float> magnitude(const Json& object, const std::string& key) {
  const std::vector<float> numbers = magnitudes(object, key);
  return numbers.empty() ? std::nullopt : std::optional(numbers[0]);
}

/// nullopt for a manifest without histograms, as they were once written.
std::optional<OctaveCounts> histogram_of(const Json& layer, const std::string& key) {
  const Json* json = find_field(layer, key);
  if (!json) return std::nullopt;
  return in_context(key, [&] {
    if (!json->is_object()) fail("found ", kind_of(*json), ", expected an object");
    const int64_t zeros = required_int(*json, "zeros"), first = required_int(*json, "first_octave");
    const Json& counts = required_list(*json, "counts");
    // What MagnitudeHistogram holds, so that no number of a stranger makes a page long.
    constexpr int kLeast = MagnitudeHistogram::kMinExponent;
    constexpr size_t kMost = 2 * MagnitudeHistogram::kOctaves;
    if (zeros < 0 || first < kLeast || first >= kLeast + MagnitudeHistogram::kOctaves ||
        counts.size() > kMost)
      fail("found zeros ", zeros, ", first_octave ", first, " and ", counts.size(),
           " counts; a histogram has at most ", kMost, " from 2^", kLeast, " up");
    OctaveCounts octaves{.zeros = static_cast<uint64_t>(zeros),
                         .first_octave = static_cast<int>(first),
                         .counts = {}};
    for (const Json& count : counts) {
      constexpr uint64_t kLargest = uint64_t{1} << 53;
      if (!count.is_number_unsigned() || count.get<uint64_t>() > kLargest)
        fail("counts: found ", count.dump(), ", expected counts");
      octaves.counts.push_back(count.get<uint64_t>());
    }
    return std::optional(octaves);
  });
}

/// Samples are counted in powers of two, so a list of them is short.
constexpr size_t kMostSteps = 64;

AmaxConvergence convergence_of(const Json& json, const std::string& side) {
  if (!json.is_object()) fail("found ", kind_of(json), ", expected an object");
  AmaxConvergence convergence;
  const std::vector<float> running = magnitudes(json, side + "_amax");
  const std::vector<float> interval = magnitudes(json, side + "_interval");
  const Json& num_samples = required_list(json, "num_samples");
  if (num_samples.size() != running.size() || running.empty() || running.size() > kMostSteps ||
      interval.size() != 2)
    fail(side, ": found ", num_samples.size(), " num_samples, ", running.size(), " amax and ",
         interval.size(), " ends of an interval, expected as many amax as num_samples, up to ",
         kMostSteps, ", and 2 ends");
  for (const Json& number : num_samples) {
    if (!number.is_number_unsigned() || number.get<uint64_t>() == 0)
      fail("num_samples: found ", number.dump(), ", expected counts");
    convergence.num_samples.push_back(number.get<int64_t>());
  }
  for (const float amax : running) convergence.running.push_back({amax});
  convergence.low = {interval[0]};
  convergence.high = {interval[1]};
  return convergence;
}

/// Throws Error where the buckets are others than this version's.
std::vector<float> position_amax(const Json& positions, const std::string& side) {
  if (!positions.is_object()) fail("found ", kind_of(positions), ", expected an object");
  const std::vector<float> amax = magnitudes(positions, side + "_amax");
  const Json& first = required_list(positions, "first");
  if (first.size() != amax.size() || amax.size() > kMostPositionBuckets)
    fail(side, ": found ", first.size(), " first positions and ", amax.size(),
         " amax, expected as many, up to ", kMostPositionBuckets);
  for (size_t bucket = 0; bucket < amax.size(); ++bucket)
    if (first[bucket] != Json(first_position(bucket)))
      fail("first: found ", first[bucket].dump(), ", expected ", first_position(bucket));
  return amax;
}

/// Where the largest magnitude was; nullopt for a manifest of an earlier version.
std::optional<report::LargestToken> largest_token(const Json& positions, const std::string& key) {
  const Json* place = find_field(positions, key);
  if (!place) return std::nullopt;
  return in_context(key, [&] {
    if (!place->is_object()) fail("found ", kind_of(*place), ", expected an object");
    const report::LargestToken token{.record = required_int(*place, "record"),
                                     .first = required_int(*place, "first"),
                                     .last = required_int(*place, "last"),
                                     .text = optional_string(*place, "text").value_or("")};
    if (token.record < 0 || token.first < 0 || token.last < token.first)
      fail("found record ", token.record, ", tokens ", token.first, " to ", token.last,
           ", expected a record and a range of positions");
    return std::optional(token);
  });
}

std::vector<int64_t> layers_at(const Json& object, const char* key) {
  std::vector<int64_t> layers;
  for (const Json& layer : required_list(object, key)) {
    if (!layer.is_number_integer()) fail(key, ": found ", layer.dump(), ", expected layers");
    layers.push_back(layer.get<int64_t>());
  }
  return layers;
}

}  // namespace

std::optional<LatePositions> late_positions_of(const Json& manifest) {
  const Json* late = member(manifest, "summary", "late_positions");
  if (!late) return std::nullopt;
  return in_context("summary.late_positions", [&] {
    if (!late->is_object()) fail("found ", kind_of(*late), ", expected an object");
    LatePositions positions{.first = required_int(*late, "first"),
                            .advised = required_int(*late, "advised_tokens")};
    positions.k_layers = layers_at(*late, "k_layers");
    positions.v_layers = layers_at(*late, "v_layers");
    return std::optional(positions);
  });
}

std::optional<ImageMagnitudes> image_magnitudes_of(const Json& manifest) {
  const Json* images = member(manifest, "summary", "images");
  if (!images) return std::nullopt;
  return in_context("summary.images", [&] {
    if (!images->is_object()) fail("found ", kind_of(*images), ", expected an object");
    const auto reach = [&](const char* key) {
      const Json* side = find_field(*images, key);
      if (!side || !side->is_object()) fail_missing(key, "an object");
      return in_context(key, [&] {
        return ImageReach{.ratio = required_number(*side, "ratio"),
                          .layer = required_int(*side, "layer"),
                          .layers = layers_at(*side, "larger_in_layers")};
      });
    };
    return std::optional(ImageMagnitudes{reach("k"), reach("v")});
  });
}

CacheTensor cache_tensor(const Json& layer, const std::string& side) {
  CacheTensor tensor;
  tensor.amax = magnitude(layer, side + "_amax");
  tensor.head_amax = magnitudes(layer, side + "_head_amax");
  if (const auto clipped = optional_number(layer, side + "_saturated"))
    tensor.saturated = std::clamp(*clipped, 0.0, 1.0);
  tensor.histogram = histogram_of(layer, side + "_histogram");
  if (const Json* convergence = find_field(layer, "convergence"))
    tensor.convergence =
        in_context("convergence", [&] { return convergence_of(*convergence, side); });
  if (const Json* positions = find_field(layer, "positions"))
    in_context("positions", [&] {
      tensor.position_amax = position_amax(*positions, side);
      tensor.largest = largest_token(*positions, side + "_largest");
    });
  return tensor;
}

std::optional<report::LayerDamage> layer_damage(const Json& layer) {
  const Json* damage = find_field(layer, "attention_damage");
  if (!damage) return std::nullopt;
  return in_context("attention_damage", [&] {
    const auto loss_of = [&](const char* scales) {
      const Json* loss = member(*damage, scales);
      if (!loss || !loss->is_object()) fail_missing(scales, "an object");
      return in_context(scales, [&] {
        // A KL of rounding errors alone may be below zero.
        const double kl = required_number(*loss, "weights_kl");
        return report::AttentionLoss{
            .output_error = magnitude(*loss, "output_error").value_or(0.0f),
            .weights_kl = std::max(0.0f, static_cast<float>(kl)),
            .head_output_error = magnitudes(*loss, "head_output_error")};
      });
    };
    return std::optional(
        report::LayerDamage{.calibrated = loss_of("calibrated"), .unit = loss_of("unit")});
  });
}

namespace {

/// A sentence each on the scales and on 1.0. of: an object with the damage of both.
std::vector<std::string> both_verdicts(const Json& of, int64_t num_tokens, bool is_predicted) {
  if (!of.is_object()) fail("found ", kind_of(of), ", expected an object");
  std::vector<std::string> verdicts;
  for (const auto& [key, name] :
       {std::pair{"calibrated", "With these scales"}, std::pair{"unit", "With scale 1.0"}})
    if (const Json* found = find_field(of, key))
      in_context(key, [&, name = name] {
        CacheDamage damage = read_damage(*found, num_tokens);
        damage.is_predicted = is_predicted;
        verdicts.push_back(std::string(name) + " " + verdict_text(damage));
      });
  return verdicts;
}

}  // namespace

std::vector<std::string> verdicts_of(const Json& manifest) {
  if (const Json* measured = member(manifest, "measured"))
    return in_context("measured", [&] {
      const int64_t tokens = measured->is_object() ? required_int(*measured, "num_tokens") : 0;
      return both_verdicts(*measured, tokens, false);
    });
  const Json* predicted = member(manifest, "summary", "predicted");
  if (!predicted) return {};
  return in_context("summary.predicted", [&] { return both_verdicts(*predicted, 0, true); });
}

std::vector<std::string> warnings_of_run(const Json& manifest) {
  std::vector<std::string> warnings;
  const Json* found = member(manifest, "summary", "warnings");
  if (!found) return warnings;
  if (!found->is_array()) fail("summary.warnings: found ", kind_of(*found), ", expected a list");
  for (const Json& warning : *found) {
    if (!warning.is_string()) fail("summary.warnings: found ", kind_of(warning), ", expected text");
    warnings.push_back(warning.get<std::string>());
  }
  return warnings;
}

std::optional<StopOutcome> stop_outcome(const Json& manifest) {
  const Json* stop = member(manifest, "stop");
  if (!stop) return std::nullopt;
  return in_context("stop", [&] {
    if (!stop->is_object()) fail("found ", kind_of(*stop), ", expected an object");
    StopOutcome outcome{
        .rule = {.ratio = required_number(*stop, "ratio"), .window = required_int(*stop, "window")},
        .num_samples = required_int(*stop, "num_samples"),
        .max_samples = required_int(*stop, "max_samples"),
        .is_stable = optional_bool(*stop, "is_stable").value_or(false),
        .largest_move = {}};
    if (const Json* move = find_field(*stop, "largest_move")) {
      if (!move->is_object()) fail_kind("largest_move", "an object", *move);
      outcome.largest_move = ScaleMove{.module = required_string(*move, "module"),
                                       .scale = required_string(*move, "scale"),
                                       .head = optional_int(*move, "head"),
                                       .ratio = optional_number(*move, "ratio"),
                                       .channel = optional_int(*move, "channel")};
    }
    return std::optional(outcome);
  });
}

}  // namespace kvcal
