#pragma once

#include <array>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/registry.h"
#include "quant/magnitude_histogram.h"
#include "quant/quant_args.h"
#include "quant/scale.h"
#include "quant/setting_range.h"

namespace kvcal {

/// What shares one scale: its extremes sample by sample, and all its magnitudes.
struct Observed {
  std::vector<Range> samples;    ///< in data set order; empty ones had nothing of it
  MagnitudeHistogram histogram;  ///< of all samples

  Range range() const {
    Range all;
    for (const Range& sample : samples) all.fold(sample);
    return all;
  }
};

/// Turns what was seen of one quantization group into the magnitude its largest code stands for.
class Observer {
 public:
  virtual ~Observer() = default;
  /// Throws Error if nothing was observed.
  Amax amax(const Observed& seen, fp8::Format format) const;
  /// Whether it may be less than what was seen, so that values clip.
  virtual bool may_clip() const = 0;

 private:
  /// At least one sample is not empty.
  virtual Amax choose(const Observed& seen, fp8::Format format) const = 0;
};

/// The tensors that QuantizationArgs are for, which decides what they may hold.
enum class ArgsRole { kKvCache, kWeights, kInputs };

/// Why not, for each ArgsRole in its order; empty where nothing speaks against it.
using RoleReasons = std::array<std::string_view, 3>;
constexpr std::string_view reason_for(const RoleReasons& reasons, ArgsRole role) {
  return reasons[static_cast<size_t>(role)];
}

/// A key of observer_kwargs.
struct ObserverSetting {
  std::string_view name;
  SettingRange range = {};
  bool is_integer = false;
  std::string_view expected = {};
  std::string_view why_not = {};  ///< known to llm-compressor, without use here
};

/// All that is known of one observer; observers/<name>.cc defines it.
struct ObserverRow {
  RoleReasons why_not = {};
  std::span<const ObserverSetting> settings = {};
  bool has_weight_settings = true;  ///< else weights take none of the settings
  /// Observers of KV caches and inputs, by the settings of a scheme. Throws Error for a setting out
  /// of range. nullptr where neither may have it.
  std::unique_ptr<Observer> (*make)(const Json& observer_kwargs) = nullptr;
  bool searches_weights = false;  ///< by RangeSearch; else a weight's extremes count
};

/// By the name in recipes. Names and meanings are llm-compressor's where it has them; do not reuse
/// one for another idea.
const Registry<ObserverRow>& observers();

/// What a scheme that names no observer gets: every element that is shown counts.
constexpr std::string_view default_observer(ArgsRole role) {
  return role == ArgsRole::kWeights ? "memoryless_minmax" : "static_minmax";
}

/// Names of the observers that a role may have.
std::vector<std::string> observers_for(ArgsRole role);

/// The observer a scheme of KV caches or inputs asks for. Throws Error for arguments out of range
/// and for an observer that these do not have.
std::unique_ptr<Observer> make_observer(const QuantArgs& args);

}  // namespace kvcal
