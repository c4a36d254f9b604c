// Weights of a source are kept or rewritten. Where their format is the output's they stay, with
// their part of config.json. Otherwise their codes are copied, and their scales are written anew
// by the plan of a recipe that would have made them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "convert/source_scales.h"
#include "core/diagnostics.h"
#include "core/json.h"
#include "export/writer.h"
#include "stored/fp8_checkpoint.h"

namespace kvcal {

/// Changes of scales in a conversion.
struct ConversionOptions {
  std::filesystem::path scales;        ///< place to read them from; empty: the checkpoint itself
  std::optional<Strategy> strategy;    ///< kTensor or kAttnHead; nullopt: the source's
  std::optional<fp8::Format> dialect;  ///< kE4m3Fn or kE4m3Fnuz; nullopt: the source's
  FamilyChoice family = {};            ///< of a model_type that is not known
  /// The checkpoint's own, where the caller has read them; nullptr: they are read.
  const SourceScales* own_scales = nullptr;
};

/// Quantized weights of the source as the output has them; all empty: 16-bit weights.
struct ConvertedWeights {
  std::optional<SourceQuantization> kept;  ///< description of those that keep their codes
  CheckpointQuantization restored;         ///< those whose scales are written anew
  CheckpointQuantization recoded;          ///< those that the model holds in another format
};

/// A checkpoint split into the inputs of the usual writers: its KV scales and FP8 weights as a
/// Calibration, and a model without scales of K and V. Quantized weights stay as they are, with
/// their part of config.json, where their format is that of all formats. Otherwise the scales of
/// FP8 weights move to the Calibration, to be written in another format, and other codes are stored
/// as one of the formats has such (recode_weights).
class Conversion {
 public:
  /// formats: as in --format, each maybe several joined by '+'. Throws Error naming file and tensor
  /// where the checkpoint cannot be read, and where there is nothing to convert.
  Conversion(const std::filesystem::path& checkpoint, const std::vector<std::string>& formats,
             const ConversionOptions& options, Diagnostics& diagnostics);

  /// Input of the writers. The caller sets tp_size, shares_weights and the other options.
  ExportInput input() const;
  const ModelDir& model() const { return model_; }
  const ModelConfig& config() const { return config_; }
  const SourceScales& source() const { return source_; }
  /// Scales of K and V of a layer before merging, in the output's dialect: one, one a head, or one
  /// a rank.
  const LayerKvScales& own_scales(size_t layer) const { return own_[layer]; }
  /// Format of the weights that stay as they are; nullptr: weights are 16-bit, or their scales are
  /// written anew.
  const SourceQuantization* kept() const { return weights_.kept ? &*weights_.kept : nullptr; }
  /// Notes for the user: on the source, on changed values, and on values that are lost.
  const std::vector<std::string>& notes() const { return notes_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  ModelDir model_;
  ModelConfig config_;
  std::vector<std::string> notes_, warnings_;
  ConvertedWeights weights_;
  SourceScales source_;
  std::vector<LayerKvScales> own_;
  Calibration calibration_;
};

/// Loss of one layer where a format holds fewer scales than the source. An FP8 code has the same
/// precision at every scale, but a scale that is 2^n times too large costs n of the 17.8 octaves
/// between E4M3's smallest and largest magnitude, at the lower end.
struct LayerLoss {
  int64_t layer = 0;
  float k_scale = 0, v_scale = 0;       ///< largest of the source
  float k_written = 0, v_written = 0;   ///< largest of the output
  double k_octaves = 0, v_octaves = 0;  ///< of the head that loses most
};

/// Losses of all layers with scales; zero octaves: no loss.
std::vector<LayerLoss> losses_of(const Conversion& conversion, const Writer& writer,
                                 int64_t tp_size);

/// Losses of one format of a conversion.
struct FormatLosses {
  std::string format;
  std::vector<LayerLoss> layers;
};

/// Formats that a conversion writes.
struct WrittenFormats {
  std::vector<FormatLosses> losses;
  const Writer* writer = nullptr;  ///< the only one; nullptr: there are several
  int64_t tp_size = 1;
};

/// kvcal_manifest.json of a conversion: the source's, if any, with the new scales, and
/// "conversion": the origin of the scales and the losses of each format (docs/formats.md).
Json conversion_manifest(const Conversion& conversion, const std::string& version,
                         const WrittenFormats& formats);

}  // namespace kvcal
