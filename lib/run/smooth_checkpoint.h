#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/diagnostics.h"
#include "core/file.h"
#include "core/json.h"
#include "datasets/dataset.h"
#include "family/family_choice.h"
#include "forward/layerwise.h"
#include "quant/damage_verdict.h"
#include "ranks/rank_session.h"
#include "rewrite/rewritten_checkpoint.h"
#include "rewrite/smoothing.h"
#include "run/calibrate_request.h"
#include "run/devices.h"

namespace kvcal {

/// What an E4M3 cache does to a model's attention, with scales of one a layer and with scale 1.0.
struct CacheAttention {
  std::map<int64_t, AttentionDamage> layers = {};  ///< those that were compared
  /// Of the whole model; nullopt where a layer with a cache of its own was not compared.
  std::optional<CacheDamage> calibrated = {}, unit = {};
};

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

/// A checkpoint with 16- or 32-bit weights, and the text that shows what its channels reach.
struct SmoothRequest {
  SmoothRequest() {
    samples.num_calibration_samples = 128;
    samples.max_seq_length = 512;
  }

  std::string model;
  SmoothedFor cache = SmoothedFor::kInt8;
  std::string dataset = {};  ///< empty: the default one
  RecordOptions records = {};
  SampleOptions samples;
  FamilyChoice family = {};
  DeviceOptions device;
  std::string output;
  bool overwrite = false;
  std::string version;  ///< of the program, for the manifest
};

/// Attention with an FP8 cache, of the model as it was and as it is written.
struct AlignmentGain {
  CacheAttention before, after;
  std::vector<int64_t> without = {};  ///< layers that stay as they were, since they gained nothing
};

struct SmoothResult {
  RewrittenCheckpoint written;
  Smoothing smoothing;
  std::optional<AlignmentGain> gain = {};  ///< where K of any layer was aligned
  int64_t num_samples = 0, num_tokens = 0;
  Json manifest = {};  ///< as kvcal_manifest.json has it

  /// Whether the function's K and V have other values than the model's.
  bool is_changed() const { return written.changed > 0; }
};

/// Runs the text through the model, layer by layer, and writes a checkpoint of the same function
/// whose K and V have even channels (smoothing_of), or whose K is aligned (align_layer) where
/// attention over an FP8 cache then loses less, complete or not at all. Throws Error, and
/// Interrupted where the user asks to stop.
SmoothResult smooth_checkpoint(const SmoothRequest& request, Diagnostics& diagnostics);

/// Pairs of a label and a text of one line.
LabelledLines smoothing_lines(const SmoothResult& result);

/// The request of kvcal smooth for a calibration, without an output: its first samples, as many and
/// as long as kvcal smooth reads by itself at most.
SmoothRequest smooth_request(const CalibrateRequest& request);

/// The model of a calibration, rewritten for its E4M3 cache beside the output, while this lives.
/// Interrupted runs rewrite it again: the same model and text make the same bytes, so that their
/// state fits.
class SmoothedModel {
 public:
  /// Runs the first samples of the request through its model. Throws Error as check_request and
  /// smooth_checkpoint do, and with several ranks; Interrupted where the user asks to stop.
  SmoothedModel(const CalibrateRequest& request, const RankSession& session,
                Diagnostics& diagnostics);

  /// The request for the rewritten model, in place of the default recipe with scales of K chosen by
  /// attention; for its own model where no rewriting gains anything.
  const CalibrateRequest& request() const { return request_; }

 private:
  CalibrateRequest request_;
  std::optional<AtomicDirectory> scratch_;  ///< never committed
};

}  // namespace kvcal
