#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "convert/source_scales.h"
#include "core/diagnostics.h"
#include "export/writer.h"
#include "stored/fp8_checkpoint.h"

namespace kvcal {

/// How a conversion changes scales on the way.
struct ConversionOptions {
  std::filesystem::path scales;        ///< where they are from; empty: the checkpoint itself
  std::optional<Strategy> strategy;    ///< kTensor or kAttnHead; none: as the source has them
  std::optional<fp8::Format> dialect;  ///< kE4m3Fn or kE4m3Fnuz; none: as the source has them
};

/// A checkpoint taken apart, so that ordinary writers can put it together in other formats: its KV
/// scales and FP8 weights as a Calibration, and a model that has no scales of K and V. Weights that
/// are quantized in the form of all of formats stay as they are, with what config.json says of
/// them; else their scales are taken out too, to be written in another form.
class Conversion {
 public:
  /// formats: as --to takes them, each maybe several joined by '+'. Throws Error naming file and
  /// tensor for what cannot be read, and where there is nothing to convert.
  Conversion(const std::filesystem::path& checkpoint, const std::vector<std::string>& formats,
             const ConversionOptions& options, Diagnostics& diagnostics);

  /// tp_size, shares_weights and the rest are for the caller to set.
  ExportInput input() const;
  const ModelDir& model() const { return model_; }
  const ModelConfig& config() const { return config_; }
  const SourceScales& source() const { return source_; }
  /// Scales of K and V of a layer before they were merged, in the dialect that is written: one, or
  /// one a head, or one a rank.
  const LayerKvScales& own_scales(size_t layer) const { return own_[layer]; }
  /// The form of the weights that stay as they are; nullptr: they have 16 bits or are restored.
  const KeptQuantization* kept() const { return kept_ ? &*kept_ : nullptr; }
  /// What the user must know: of the source, of what was changed and what is not kept.
  const std::vector<std::string>& notes() const { return notes_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  void read_scales(const ConversionOptions& options);
  void warn_of_scales();
  void settle_weights(const std::vector<std::string>& formats);
  /// Throws Error for FP8 weights whose scales would not be written anew.
  void check_all_weights_are_read() const;
  void settle_queries(const std::vector<std::string>& formats);
  /// Ranks that kv_cache_scales.json alone is written of stay apart.
  std::optional<Strategy> strategy_for(const std::vector<std::string>& formats,
                                       const ConversionOptions& options) const;
  void settle_strategy(std::optional<Strategy> strategy);
  void settle_dialect(const ConversionOptions& options);
  void make_calibration(const ConversionOptions& options, Diagnostics& diagnostics);
  void add_layers();
  void strip_model();

  ModelDir model_;
  ModelConfig config_;
  SourceScales source_;
  std::vector<LayerKvScales> own_;
  std::optional<KeptQuantization> kept_;
  CheckpointQuantization restored_;  ///< weights whose scales are written anew
  Calibration calibration_;
  std::vector<std::string> notes_, warnings_;
};

/// What one layer loses where a format holds fewer scales than the source. An FP8 code has the same
/// precision at every scale, but a scale 2^n times too large takes n of the 17.8 octaves between
/// E4M3's smallest and largest magnitude from the lower end.
struct LayerLoss {
  int64_t layer = 0;
  float k_scale = 0, v_scale = 0;       ///< the source's largest
  float k_written = 0, v_written = 0;   ///< the output's largest
  double k_octaves = 0, v_octaves = 0;  ///< lost, of the head that loses most
};

/// Of every layer with scales; all octaves 0: nothing is lost.
std::vector<LayerLoss> losses_of(const Conversion& conversion, const Writer& writer,
                                 int64_t tp_size);

}  // namespace kvcal
