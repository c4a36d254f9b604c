#include <algorithm>
#include <cmath>
#include <set>

#include "core/text.h"
#include "engines/scale_loading.h"
#include "quant/half.h"

namespace kvcal {
namespace {

constexpr std::string_view kUndefinedSource = "uninitialized memory";
constexpr std::string_view kDynamicSource = "computed as it runs";
constexpr std::string_view kDescribedScale = ".k_proj.kv_cache_scale";

float rounded(float value, std::string_view dtype) {
  if (dtype == "float16") return to_float(to_f16(value));
  if (dtype == "bfloat16") return to_float(to_bf16(value));
  return value;
}

/// Engines that can be told which caches to leave in 16 bits.
std::vector<std::string> engines_that_skip() {
  std::vector<std::string> titles;
  for (const std::string& name : engine_rules().names())
    if (const EngineRules& rules = engine_rules().at(name); !rules.skip_argument.empty())
      titles.emplace_back(rules.title);
  return titles;
}

bool is_scale(float value) {
  return std::isfinite(value) && value > 0;
}

class Arithmetic {
 public:
  Arithmetic(const VerifyCase& subject, const Placement& placement, Findings& findings, bool& loads)
      : subject_(subject),
        rules_(subject.rules),
        findings_(findings),
        loads_(loads),
        ignored_(ignored_layers(subject.declaration, subject.config)),
        has_scales_(placement.has_any()),
        has_v_scales_(std::ranges::any_of(
            placement.layers, [](const auto& entry) { return entry.second.v != nullptr; })) {}

  EngineLayer held(int64_t layer, const PlacedScales& placed) {
    EngineLayer held{.layer = layer, .k = {}, .v = {}};
    if (is_skipped(layer)) return skipped(layer, placed);
    if (rules_.takes_dynamic && is_dynamic(subject_.declaration)) {
      held.k = held.v = {.values = {}, .source = std::string(kDynamicSource)};
      if (placed.k || placed.v)
        findings_.add(layer, Severity::kError,
                      "the scheme is dynamic: it computes scales as it runs, and does not "
                      "use those of the checkpoint",
                      "set dynamic to false");
      return held;
    }
    if (!subject_.choice.is_quantized && rules_.ones == OnesFor::kSixteenBits) return held;
    if (subject_.choice.is_fp8 && rules_.ones == OnesFor::kFp8) {
      tell_unused(layer, placed);
      return held;
    }
    if (rules_.absent == Absent::kUndescribed && !is_described(layer))
      return undescribed(layer, placed);
    switch (rules_.absent) {
      case Absent::kOneApart:
      case Absent::kUndefined:
      case Absent::kUndescribed:
        hold_apart(held, placed);
        break;
      case Absent::kDuplicateKey:
      case Absent::kDuplicateKeyOfZero:
        hold_duplicated(held, placed);
        break;
      case Absent::kOneForBoth:
        hold_together(held, placed);
        break;
    }
    change(held, placed);
    return held;
  }

 private:
  bool is_skipped(int64_t layer) const {
    return subject_.choice.is_quantized && !subject_.engine.skip_argument.empty() &&
           std::ranges::find(subject_.options.skip_layers, layer) !=
               subject_.options.skip_layers.end();
  }

  EngineLayer skipped(int64_t layer, const PlacedScales& placed) {
    findings_.add(layer, Severity::kNote,
                  placed.has_any() ? "it keeps the cache in 16 bits, as asked, and these scales "
                                     "do nothing"
                                   : "it keeps the cache in 16 bits, as asked");
    return {.layer = layer, .k = {}, .v = {}, .is_16_bit = true};
  }

  /// Whether the description of the tensors names the layer's scale of K.
  bool is_described(int64_t layer) const {
    const std::string number = "." + std::to_string(layer) + ".";
    const Json& description = subject_.declaration.config;
    if (!description.is_object()) return false;
    for (const auto& [name, kind] : description.items())
      if (name.ends_with(kDescribedScale) && name.find(number) != std::string::npos) return true;
    return false;
  }

  EngineLayer undescribed(int64_t layer, const PlacedScales& placed) {
    const std::string file(subject_.engine.reading.file_name);
    if (placed.has_any())
      findings_.add(layer, Severity::kError,
                    "it passes over these scales, and keeps the cache in 16 bits: " + file +
                        " does not name them",
                    subject_.remedy);
    else
      findings_.add(layer, Severity::kNote,
                    "it keeps the cache in 16 bits: " + file + " names no scales of it");
    return {.layer = layer, .k = {}, .v = {}, .is_16_bit = true};
  }

  /// Reports the scale that it uses where the checkpoint has none; only for quantized caches.
  void tell_absent(int64_t layer, const std::string& sides) {
    if (!subject_.choice.is_fp8 && rules_.absent != Absent::kUndescribed) return;
    if (ignored_.contains(layer)) return tell_ignored(layer);
    if (rules_.absent == Absent::kUndefined) {
      findings_.add(layer, Severity::kError,
                    "the checkpoint has no scale of " + sides + ": it computes with " +
                        std::string(kUndefinedSource) + ", and only says that tensors are missing",
                    "calibrate these layers");
      return;
    }
    // A checkpoint without any scale was not calibrated; a gap is a mistake.
    findings_.add(layer, has_scales_ ? Severity::kError : Severity::kWarning,
                  "the checkpoint has no scale of " + sides +
                      (has_scales_ ? " here, and has others" : "") + ": " + ones_text(),
                  "calibrate these layers");
  }

  std::string ones_text() const {
    return std::string("it uses 1.0, ") +
           (rules_.warns_of_ones ? "with a warning" : "without a word");
  }

  /// Of a layer that the checkpoint leaves in 16 bits. An engine that can do so has to be told.
  void tell_ignored(int64_t layer) {
    const std::string_view argument = subject_.engine.skip_argument;
    if (!argument.empty())
      return findings_.add(
          layer, Severity::kWarning,
          "the checkpoint leaves this cache in 16 bits; unless told, it quantizes it: " +
              ones_text(),
          "start it with " + std::string(argument) + ' ' +
              join(ignored_, " ", [](int64_t one) { return std::to_string(one); }));
    const bool is_undefined = rules_.absent == Absent::kUndefined;
    findings_.add(
        layer, Severity::kError,
        "the checkpoint leaves this cache in 16 bits, and it quantizes all layers alike: " +
            (is_undefined ? "it computes with " + std::string(kUndefinedSource) +
                                ", and only says that tensors are missing"
                          : ones_text()),
        "serve it with an engine that can leave layers out: " + join(engines_that_skip(), ", "));
  }

  void take(EngineScale& side, const ScaleTensor& tensor) {
    side = {.values = tensor.values, .source = tensor.name};
    const auto heads = static_cast<size_t>(subject_.config.cache(tensor.layer).heads);
    if (rules_.heads == HeadScales::kCut && takes_head_scales(subject_) &&
        side.values.size() > heads)
      side.values.resize(heads);
  }

  EngineScale missing() const {
    if (rules_.absent == Absent::kUndefined && subject_.choice.is_fp8)
      return {.values = {}, .source = std::string(kUndefinedSource)};
    return {};
  }

  void hold_apart(EngineLayer& held, const PlacedScales& placed) {
    held.k = held.v = missing();
    if (placed.k) take(held.k, *placed.k);
    if (placed.v) take(held.v, *placed.v);
    if (placed.k && !placed.v && placed.k->rest.ends_with(".kv_scale")) {
      findings_.add(held.layer, Severity::kError,
                    "it gives kv_scale to K alone, and V is 1.0 without a word", subject_.remedy);
      return;
    }
    if (!placed.k || !placed.v)
      tell_absent(held.layer, placed.k ? "V" : placed.v ? "K" : "K and V");
  }

  /// The one value that a loader with a sentinel of -1 holds of a tensor.
  float single(const ScaleTensor* tensor) const {
    const float value = tensor && !tensor->values.empty() ? tensor->values[0] : -1.0f;
    return rules_.rounding == Rounding::kToModel ? rounded(value, subject_.dtype) : value;
  }

  /// Source: `BaseKVCacheMethod.process_weights_after_loading`.
  void hold_duplicated(EngineLayer& held, const PlacedScales& placed) {
    const float k = single(placed.k), v = single(placed.v);
    const auto is_absent = [&](float x) {
      return rules_.absent == Absent::kDuplicateKeyOfZero ? x <= 0 : x < 0;
    };
    if (k > 0 && v > 0) {
      take(held.k, *placed.k);
      take(held.v, *placed.v);
    } else if (is_absent(k) && is_absent(v)) {
      if (placed.k || placed.v)
        findings_.add(held.layer, Severity::kError,
                      "it takes scales of 0 or less for missing ones and uses 1.0",
                      "calibrate these layers");
      else
        tell_absent(held.layer, "K and V");
    } else if (!(k > 0)) {
      loads_ = false;
      findings_.add(held.layer, Severity::kError,
                    placed.k ? "it refuses a scale of K that is not positive"
                             : "it refuses a scale of V without one of K",
                    "calibrate these layers");
    } else {
      take(held.k, *placed.k);
      held.v = held.k;
      findings_.add(held.layer, has_v_scales_ ? Severity::kError : Severity::kWarning,
                    "there is no scale of V of its own: K's serves both",
                    has_v_scales_ ? "calibrate these layers" : "");
    }
  }

  void hold_together(EngineLayer& held, const PlacedScales& placed) {
    if (placed.k && placed.v) {
      take(held.k, *placed.k);
      take(held.v, *placed.v);
    } else if (placed.both) {
      take(held.k, *placed.both);
      if (rules_.rounding == Rounding::kSharedToFloat16)
        for (float& value : held.k.values) value = rounded(value, "float16");
      held.v = held.k;
      findings_.add(held.layer, Severity::kWarning,
                    "K and V share one scale, kv_scale" +
                        std::string(rules_.rounding == Rounding::kSharedToFloat16
                                        ? ", which it rounds to float16"
                                        : ""),
                    "");
    } else if (placed.k || placed.v) {
      findings_.add(held.layer, Severity::kError,
                    "it reads k_scale and v_scale only where both are there, and uses 1.0",
                    subject_.remedy);
    } else {
      tell_absent(held.layer, "K and V");
    }
  }

  /// Rounding and dialect, of what came from the checkpoint.
  void change(EngineLayer& held, const PlacedScales& placed) {
    const bool is_placed = placed.has_any();
    const float factor = dialect_factor(is_placed);
    for (EngineScale* side : {&held.k, &held.v}) {
      if (side->source.empty() || side->values.empty()) continue;
      for (float& value : side->values) {
        if (rules_.rounding == Rounding::kToModel) round(held.layer, value);
        value *= factor;
        if (!is_scale(value))
          findings_.add(held.layer, Severity::kError,
                        "it uses a scale that is not finite and positive",
                        "calibrate these layers");
      }
    }
    if (is_placed && subject_.choice.is_fp8) tell_dialect(held.layer, factor);
  }

  /// Compares the dialect that the checkpoint declares for its scales with the engine's.
  void tell_dialect(int64_t layer, float factor) {
    const bool is_fnuz = subject_.declaration.dialect == fp8::Format::kE4m3Fnuz;
    const bool is_rocm = subject_.options.is_rocm;
    if (rules_.dialect == FnuzRule::kByConfig) return;
    if (is_fnuz && (!is_rocm || factor == 2.0f))
      findings_.add(
          layer, Severity::kError,
          is_rocm
              ? "it doubles scales that are for E4M3FNUZ already: the cache uses half of its range"
              : "the scales are for E4M3FNUZ, the platform stores E4M3FN: the cache uses half of "
                "its range",
          "kvcal convert CHECKPOINT --fp8-dialect fn --format " +
              std::string(subject_.engine.format) + " --output OUT");
    if (!is_fnuz && is_rocm && factor == 1.0f)
      findings_.add(
          layer, Severity::kWarning,
          "the platform stores E4M3 as FNUZ, whose largest value is 240, and it does not double "
          "the scales: what is over 0.54 of the calibrated extreme is clipped",
          "give it the scales in a form that it doubles there: ModelOpt's, or quant_method fp8");
  }

  void round(int64_t layer, float& value) {
    const float before = value;
    value = rounded(value, subject_.dtype);
    if (value != before && is_scale(before))
      findings_.add(layer, Severity::kNote,
                    "it rounds scales to the dtype of the model as it runs, " + subject_.dtype, "");
  }

  float dialect_factor(bool is_placed) const {
    if (!is_placed || !subject_.choice.is_fp8) return 1.0f;
    if (rules_.dialect == FnuzRule::kByConfig) {
      const bool is_fnuz = subject_.declaration.dialect == fp8::Format::kE4m3Fnuz;
      if (subject_.options.is_rocm) return is_fnuz ? 1.0f : 2.0f;
      return is_fnuz ? 0.5f : 1.0f;
    }
    return rules_.dialect == FnuzRule::kDoubledOnRocm && subject_.options.is_rocm ? 2.0f : 1.0f;
  }

  void tell_unused(int64_t layer, const PlacedScales& placed) {
    if (placed.has_any())
      findings_.add(layer, Severity::kError,
                    "it loads the scales and uses them for NVFP4 caches only: an FP8 "
                    "cache gets 1.0",
                    "serve it with an engine that uses them");
    else
      tell_absent(layer, "K and V");
  }

  const VerifyCase& subject_;
  const MethodRules& rules_;
  Findings& findings_;
  bool& loads_;
  const std::set<int64_t> ignored_;  ///< layers that are left out on purpose
  const bool has_scales_;            ///< of any layer
  const bool has_v_scales_;          ///< of any layer
};

}  // namespace

std::vector<EngineLayer> held_scales(const VerifyCase& subject, const Placement& placement,
                                     Findings& findings, bool& loads) {
  Arithmetic arithmetic(subject, placement, findings, loads);
  std::vector<EngineLayer> layers;
  for (const auto& [layer, placed] : placement.layers)
    layers.push_back(arithmetic.held(layer, placed));
  return layers;
}

}  // namespace kvcal
