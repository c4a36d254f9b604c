#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "core/json.h"
#include "forward/layerwise_options.h"
#include "quant/attention_error.h"
#include "quant/damage_verdict.h"
#include "run/subject.h"

namespace kvcal {

/// What an E4M3 cache does to a model's attention, with scales of one a layer and with scale 1.0.
struct CacheAttention {
  std::map<int64_t, AttentionDamage> layers;  ///< those that were compared
  /// Of the whole model; nullopt where a layer with a cache of its own was not compared.
  std::optional<CacheDamage> calibrated = {}, unit = {};
};

/// The text and devices of a comparison. Borrows.
struct ComparedRun {
  std::span<const Sample> samples;  ///< of which the first are compared, as by a calibration
  std::vector<Backend*> backends;
  LayerwiseOptions layerwise;  ///< as of CalibrationRun
  int threads = 0;             ///< as of CalibrationRun
};

/// Runs the compared samples through the model with an unquantized cache. Throws Error as measure
/// does.
CacheAttention compare_caches(const CalibrationSubject& subject, const ComparedRun& run,
                              Diagnostics& diagnostics);

/// KL of one layer's softmax weights from those with an unquantized cache, the mean over the
/// queries: what a change of K alone can mend.
struct WeightsKl {
  double calibrated = 0, unit = 0;
  double sum() const { return calibrated + unit; }
};
WeightsKl weights_kl(const AttentionDamage& damage);

/// The layers, of those that were compared in both, whose softmax weights lose no less behind a
/// change than before it.
std::vector<int64_t> layers_without_gain(std::span<const int64_t> layers,
                                         const CacheAttention& before, const CacheAttention& after);

Json to_json(const WeightsKl& kl);

}  // namespace kvcal
