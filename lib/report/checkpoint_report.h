#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engines/engine_verdicts.h"
#include "engines/verify.h"
#include "quant/calibration.h"
#include "quant/image_magnitudes.h"
#include "quant/kv_format.h"
#include "quant/late_positions.h"
#include "quant/observations.h"
#include "quant/provenance.h"
#include "report/page.h"
#include "report/plot.h"

namespace kvcal::report {

/// Tokens of a record among which the largest magnitude is.
struct LargestToken {
  int64_t record = 0;
  int64_t first = 0, last = 0;  ///< positions
  std::string text = {};        ///< of the token; empty: there are several, or it is not known
};

/// Scales and statistics of K or V of one layer; empty where they are not known.
struct CacheTensor {
  std::vector<float> scales;  ///< one, or one a head; empty: the checkpoint has none
  std::optional<float> amax;
  std::vector<float> head_amax;
  std::optional<double> saturated;  ///< share of values over scale * largest code
  std::optional<OctaveCounts> histogram;
  AmaxConvergence convergence;            ///< empty where it is not known
  std::vector<float> position_amax = {};  ///< by bucket of positions; empty: not known
  std::optional<LargestToken> largest = {};
};

/// What a cache does to a layer's attention: quant/damage_verdict.h over all heads, and by head.
struct AttentionLoss {
  float output_error = 0, weights_kl = 0;
  std::vector<float> head_output_error = {};
};
struct LayerDamage {
  AttentionLoss calibrated, unit;  ///< with the layer's scales; with scale 1.0
};

/// A layer that attends.
struct CacheLayer {
  int64_t layer = 0;
  std::string dtype;  ///< of its K weights
  uint64_t bytes = 0;
  CacheTensor k, v;
  bool has_channel_scales = false;
  std::optional<LayerDamage> damage = {};  ///< nullopt: not known
};

/// A module with FP8 weights.
struct Fp8Linear {
  std::string module;
  std::optional<int64_t> layer = {};
  std::string kind;           ///< the module's name without layer and expert: "mlp.down_proj"
  float weight_scale = 0.0f;  ///< the largest, where it has several
  int64_t num_weight_scales = 1;
  std::string input;  ///< how its input is quantized: "static", "dynamic, per token"
  std::optional<float> input_scale = {};
};

struct TensorKind {
  std::string kind;
  int64_t count = 0;
  uint64_t bytes = 0;
};

/// Everything the page of a checkpoint shows. All strings may come from files of strangers.
struct CheckpointReport {
  std::string name, path, model_type, scale_format, version;
  std::string dataset = {};  ///< that it was calibrated on; empty: not known
  uint64_t parameters = 0, bytes = 0;
  KvFormat format = fp8::Format::kE4m3Fn;  ///< that the scales are for
  /// Bytes of one token's K and V of all layers.
  uint64_t cache_bytes_16_bit = 0, cache_bytes_fp8 = 0;
  std::vector<std::string> verdicts = {};  ///< what its cache costs, sentences; empty: not known
  std::vector<std::string> warnings = {};  ///< of the calibration, sentences
  std::vector<std::string> gaps;           ///< what the page cannot show, and why
  Pairs architecture, origin;              ///< origin: what the calibration was made of
  std::vector<TensorKind> tensors;
  std::vector<CacheLayer> layers;
  std::vector<Fp8Linear> linears;
  std::optional<LatePositions> late;      ///< nullopt: no layer, or not known
  std::optional<ImageMagnitudes> images;  ///< nullopt: all tokens were text
  std::optional<StopOutcome> stop;        ///< of a calibration that could end early
  std::vector<ServedEngine> served = {};  ///< answers for its scales; empty: it has none
  /// Each engine's state after it has loaded this checkpoint; empty where they were not asked.
  std::vector<VerifyReport> engines;
  std::vector<EngineVerdict> engine_words;  ///< shown where served is empty
};

/// One HTML file, complete in itself. Same input, same bytes.
std::string checkpoint_page(const CheckpointReport& report);

/// The plots that its values allow, of: "scales", "heads-k", "heads-v", "magnitudes",
/// "convergence", "positions", "damage".
std::vector<Plot> checkpoint_plots(const CheckpointReport& report);

}  // namespace kvcal::report
