#pragma once

#include <string>

#include "core/diagnostics.h"
#include "core/json.h"
#include "datasets/dataset.h"
#include "family/family_choice.h"
#include "rewrite/rewritten_checkpoint.h"
#include "rewrite/smoothing.h"
#include "run/attention_gain.h"
#include "run/devices.h"

namespace kvcal {

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
  std::vector<int64_t> without;  ///< layers that stay as they were, since they gained nothing
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
std::vector<std::pair<std::string, std::string>> smoothing_lines(const SmoothResult& result);

}  // namespace kvcal
