#pragma once

#include <optional>

#include "calib/calibrator.h"

namespace kvcal {

/// Cache of a layer with the scales made: one for each head.
KvQuantization quantization_of(const AttentionCalibration& layer, const ModelConfig& config,
                               const CalibrationOptions& options);

/// Whether the scales of the module are chosen by what they do to attention.
bool judges_attention(const PlannedAttention& planned);

/// Replaces the scales of K, and those of V where a latent cache ties them, by what the observer
/// finds best in attention. Call after a pass that observed the layer, with compares_first.
void choose_by_attention(LayerForward& forward, const ModelConfig& config,
                         const PlannedAttention& planned, const CalibrationOptions& options,
                         AttentionCalibration& layer);

/// Compares a layer's attention with its scales, and with scale 1.0, once its last pass has run.
AttentionDamage damage_of(LayerForward& forward, const ModelConfig& config,
                          const AttentionCalibration& layer, const CalibrationOptions& options);

/// That, for the statistics; nullopt where attention was not compared.
std::optional<ComparedScales> compared_scales(const AttentionCalibration& layer);

}  // namespace kvcal
