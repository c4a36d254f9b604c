#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/registry.h"
#include "quant/damage_verdict.h"
#include "quant/quant_scheme.h"
#include "quant/range_search.h"
#include "quant/scale.h"
#include "quant/statistics.h"

namespace kvcal {

/// Chooses the magnitude of the largest code for one quantization group.
class Observer {
 public:
  virtual ~Observer() = default;
  /// Amax of one group, whose statistics are of one head. Throws Error where nothing was observed.
  Amax amax(const TensorStatistics& seen, const KvFormat& format) const;
  /// Whether the result may be smaller than the largest observed magnitude, so that values clip.
  virtual bool may_clip() const = 0;

  /// Scales of K that a calibration tries in attention beside made, the scale of amax. Empty: amax
  /// decides alone.
  virtual std::vector<Scale> candidates(Scale made) const {
    static_cast<void>(made);
    return {};
  }
  bool judges_attention() const { return !candidates({1.0f}).empty(); }
  /// Index of the best scale. errors: of the heads that read the group, with made and with each of
  /// the candidates.
  virtual size_t best(std::span<const AttentionError> errors) const {
    static_cast<void>(errors);
    return 0;
  }

 private:
  /// Called with at least one sample that is not empty.
  virtual Amax choose(const TensorStatistics& seen, const KvFormat& format) const = 0;
};

/// The observer that chooses by a function. may_clip: as Observer's.
using ChooseAmax = std::function<Amax(const TensorStatistics&, const KvFormat&)>;
std::unique_ptr<Observer> observer_by(bool may_clip, ChooseAmax choose);

/// Use of QuantizationArgs, which restricts their values.
enum class ArgsRole { kKvCache, kWeights, kInputs };

/// Reasons against each ArgsRole, in its order; empty where the role is supported.
using RoleReasons = std::array<std::string_view, 3>;
constexpr std::string_view reason_for(const RoleReasons& reasons, ArgsRole role) {
  return reasons[static_cast<size_t>(role)];
}

/// A key of observer_kwargs.
struct ObserverSetting {
  std::string_view name;
  NumberRange range = kParts;
  bool is_integer = false;
  std::string_view expected = {};
  std::string_view why_not = {};  ///< reason why only llm-compressor supports it
};

/// Definition of one observer, a function of a file of observers/.
struct ObserverRow {
  RoleReasons why_not = {};
  std::span<const ObserverSetting> settings = {};
  bool has_weight_settings = true;  ///< else weights take none of the settings
  /// Makes the observer for KV caches and inputs, from the settings of a scheme. Throws Error for a
  /// setting out of range. nullptr where neither role is supported.
  std::unique_ptr<Observer> (*make)(const Json& observer_kwargs) = nullptr;
  bool serves_channels = false;   ///< extremes of samples suffice
  bool searches_weights = false;  ///< by RangeSearch; else a weight's extremes count
};

/// All observers by their names in recipes. llm-compressor's names keep llm-compressor's meaning;
/// do not reuse one for another idea.
const Registry<ObserverRow>& observers();

/// Observer of a scheme that names none: every observed element counts.
constexpr std::string_view default_observer(ArgsRole role) {
  return role == ArgsRole::kWeights ? "memoryless_minmax" : "static_minmax";
}

/// Names of the observers that a role supports.
std::vector<std::string> observers_for(ArgsRole role);

/// Observer of a scheme for KV caches or inputs. Throws Error for settings out of range and for an
/// observer that is not supported there.
std::unique_ptr<Observer> make_observer(const QuantArgs& args);

}  // namespace kvcal
