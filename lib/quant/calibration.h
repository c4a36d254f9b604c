#pragma once

#include "quant/damage_verdict.h"
#include "quant/kv_format.h"
#include "quant/observations.h"
#include "quant/quant_plan.h"
#include "quant/quant_scheme.h"
#include "quant/scale.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace kvcal {

/// Growth of the amax over the samples.
struct AmaxConvergence {
  std::vector<int64_t> num_samples;  ///< 1, 2, 4, …, all
  std::vector<Amax> running;         ///< over the first num_samples[i] samples
  /// 95 % bootstrap interval of the amax over as many samples (calib/scales/derive.h).
  Amax low, high;
};

/// Tokens of one sample among which the largest magnitude of K or V is: those of a bucket of
/// positions, which at the beginning of a sample is one token.
struct AmaxPlace {
  int64_t sample = 0;           ///< of the run, in its order
  int64_t first = 0, last = 0;  ///< positions; last may lie behind the sample's end
  std::string text = {};        ///< of the token; empty: there are several, or it is not known

  bool is_one_token() const { return first == last; }
};

/// The largest magnitudes of tokens of text and of images, in a run with images.
struct KindAmax {
  Amax text, images;
};

/// Statistics and scales of one tensor (K, V or Q) of one attention module. Heads are those of the
/// tensor, without repetition.
struct KvTensorCalibration {
  std::vector<Range> head_ranges = {};                   ///< [heads] extremes over all samples
  std::vector<MagnitudeHistogram> head_histograms = {};  ///< [heads]
  uint64_t num_values = 0;
  AmaxConvergence convergence = {};      ///< over all heads; empty: unknown
  std::vector<Amax> position_amax = {};  ///< by bucket of positions, over all heads; empty: unknown
  std::optional<AmaxPlace> amax_place = {};  ///< nullopt: positions are not known
  std::optional<KindAmax> kind_amax = {};    ///< nullopt: all tokens are text
  std::vector<Scale> scales = {};            ///< one (strategy tensor) or one a head (attn_head)
  /// Values that codes of the format clip; nullopt where they were not counted.
  std::optional<uint64_t> num_saturated = {};

  Range range() const {
    Range all;
    for (const Range& head : head_ranges) all.fold(head);
    return all;
  }
};

/// One attention module. `ignored` modules have no scale in any output.
struct AttentionCalibration {
  int64_t layer = 0;
  std::string module;  ///< "model.layers.0.self_attn"
  /// Module, {} for k or v, under which every form names a draft layer's ".k_scale" and ".v_scale";
  /// empty: module, under the form's names.
  std::string scales_at = {};
  bool ignored = false;
  /// The earlier layer whose K and V this one reads; nullopt: it has its own.
  std::optional<int64_t> reads_cache_of = {};
  KvTensorCalibration k, v;
  /// Queries after RoPE, [heads of Q]; nullopt where the plan does not quantize them.
  std::optional<KvTensorCalibration> q = {};
  /// nullopt where attention was not compared: the module is ignored, reads the cache of another
  /// layer, or no forward pass ran.
  std::optional<AttentionDamage> damage = {};
};

/// Input of one Linear that the plan quantizes with a static scale.
struct LinearCalibration {
  std::string module;
  Amax input_amax;
  Scale input_scale;
  uint64_t input_tokens = 0;  ///< of an expert, only routed ones, or all where shown
};

/// Result of a calibration: the value that calib gives to export, report and eval.
struct Calibration {
  QuantArgs kv_args;
  KvFormat kv_format = fp8::Format::kE4m3Fn;
  double headroom = 1.0;          ///< scale of K, V and Q = headroom * amax / largest code
  int64_t num_hidden_layers = 0;  ///< all layers of the model, also those without an entry
  /// K is a normed latent and V a rotated key; engines keep both in one cache with one scale (MLA).
  bool is_latent = false;
  std::vector<AttentionCalibration> layers;  ///< in layer order
  QuantPlan plan = {};
  std::vector<LinearCalibration> linears = {};  ///< of static inputs, in the plan's order
  /// Scales of weights that are already FP8 in the source, row-major as in ScaleGrid, by module of
  /// the plan.
  std::map<std::string, std::vector<Scale>, std::less<>> stored_weights = {};

  /// Whether a layer runs behind the model, as engines run a draft.
  bool is_draft(const AttentionCalibration& layer) const {
    return layer.layer >= num_hidden_layers;
  }
};

}  // namespace kvcal
