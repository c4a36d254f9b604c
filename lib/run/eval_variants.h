#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "eval/gates.h"
#include "eval/likelihood.h"
#include "eval/sequences.h"
#include "quant/calibration.h"
#include "run/loaded_model.h"

namespace kvcal {

/// A cache that is scored, as --variant names it: NAME=CACHE, NAME=CACHE:SCALES or
/// NAME=model:FOLDER, "+attention" behind CACHE is CacheOptions::fp8_attention; or one with scales
/// that a caller has.
struct VariantSpec {
  std::string name;
  std::string folder = {};  ///< another checkpoint, run by its own config; empty: the command's
  CacheOptions cache = {};
  /// E4M3FN or INT8 scales of all layers instead of those that cache names, and what to call them.
  struct Given {
    std::vector<LayerKvScales> layers;
    std::string source;
    KvFormat made_for = fp8::Format::kE4m3Fn;
  };
  std::optional<Given> scales = {};
};

/// Inputs of every task of `eval`: a model, the caches that it runs with, and a data set.
struct EvalOptions {
  std::string model, dataset;
  FamilyChoice family = {};  ///< of a model_type that is not known
  CacheOptions cache = {};
  std::vector<std::string> variants = {};       ///< several caches instead, in --variant's form
  std::vector<VariantSpec> more_variants = {};  ///< behind variants
  std::string reference = {};                   ///< reference checkpoint of KL; empty: the model
  std::string reference_cache = "auto";
  DeviceOptions device = {};
  SequenceOptions sequences = {};
  std::string version = {};   ///< of the program, for JSON and pages
  bool allow_16_bit = false;  ///< a gate may hold a model that quantizes nothing
  /// Scores every cache that engines offer instead, the calibrated ones with the scales of `cache`
  /// or of the checkpoint, where it has any.
  bool every_cache = false;
};

/// {"kv_cache_dtype", "scales", "bytes_per_token"}, and "fp8_attention" where it is so.
Json cache_json(const CacheLabel& cache);

/// A model with one cache.
struct EvalVariant {
  /// Throws Error as cache_type_of and scales_of do.
  EvalVariant(const std::string& name, LoadedModel& loaded, const CacheOptions& cache,
              Diagnostics& diagnostics);
  /// given: scales as scales_of gives them, of the place that source names.
  EvalVariant(const std::string& name, LoadedModel& loaded, const CacheType& type,
              std::vector<LayerKvScales> given, std::string source);
  ScoredModel scored() const { return {model->decoder, label.type, scales}; }
  /// Layers with a quantized cache, ascending.
  std::vector<int64_t> quantized_layers() const;

  CacheLabel label = {};
  LoadedModel* model = nullptr;
  std::vector<LayerKvScales> scales = {};
};

/// Parses a --variant. Throws Error that quotes its text.
VariantSpec parse_variant(const std::string& text);

/// All variants of one evaluation, and the reference, on one backend.
class EvalVariants {
 public:
  /// has_reference: also runs the reference of KL.
  EvalVariants(const EvalOptions& options, bool has_reference, Diagnostics& diagnostics);

  LoadedModel& model() { return *models_[0]; }
  const std::vector<EvalVariant>& variants() const { return variants_; }
  /// Whether only the task's model runs, because no variants were named.
  bool is_single() const { return is_single_; }
  const EvalVariant* reference() const { return reference_ ? &*reference_ : nullptr; }
  /// Name of the reference for people; empty without one.
  std::string reference_name() const;

  Scorer make_scorer() const;
  /// Likelihood of the first variant with each of these scales, in one pass over the text.
  std::vector<Likelihood> score_scales(const std::vector<std::vector<LayerKvScales>>& scales,
                                       const std::vector<ScoredSequence>& sequences,
                                       Diagnostics& diagnostics) const;

 private:
  LoadedModel& load(const std::string& folder, const EvalOptions& options,
                    Diagnostics& diagnostics);

  std::unique_ptr<Backend> backend_;  ///< outlives the models, whose weights lie in it
  int threads_;
  std::vector<std::unique_ptr<LoadedModel>> models_;
  std::vector<EvalVariant> variants_;
  std::optional<EvalVariant> reference_;
  bool is_single_ = true;
};

/// Throws Error where no variant has an FP8 cache or quantized weights, because every gate would
/// pass; not where options allow that.
void check_gated(const EvalVariants& variants, const EvalOptions& options);

/// Adds lines on the variant's missed gates to all; with several variants they start with its name.
void add_missed(const std::vector<Gate>& gates, const EvalVariants& variants, size_t variant,
                std::vector<std::string>& all);

/// Calibrated E4M3FN or INT8 scales; empty where there are none.
struct CalibratedScales {
  std::vector<LayerKvScales> layers;  ///< one a layer
  std::vector<LayerKvScales> heads;   ///< one a head
  std::string source;                 ///< "checkpoint", or the file or folder
  KvFormat made_for = fp8::Format::kE4m3Fn;
  std::vector<LayerKvScales> channels = {};  ///< one a channel, of INT8
};

/// Scales of a calibration by layer; and by head, where the plan is by layer those of the largest
/// magnitudes that it saw.
CalibratedScales calibrated_scales_of(const Calibration& calibration);

/// Every cache that engines offer for the model: FP8 with scale 1.0, and those without scales; with
/// calibrated scales, also FP8 by layer and by head, INT8 and NVFP4. Without those whose blocks do
/// not divide the model's heads.
std::vector<VariantSpec> every_cache(const ModelConfig& config, const CalibratedScales& calibrated);

/// The same with the scales of a calibration. Those of another format than E4M3FN and INT8 are for
/// that cache alone.
std::vector<VariantSpec> every_cache(const ModelConfig& config, const Calibration& calibration);
/// The same with the scales of `cache`, or of the checkpoint where it has any. Throws Error where
/// cache names another one, or scales that cannot be read.
std::vector<VariantSpec> every_cache(const LoadedModel& model, const CacheOptions& cache,
                                     Diagnostics& diagnostics);

/// Tokenized sequences of the data set. Throws Error where none has a token to score; warns of
/// sequences that exceed the model's positions.
std::vector<ScoredSequence> read_sequences(const EvalOptions& options, const LoadedModel& model,
                                           Diagnostics& diagnostics);
/// The same of records that a calibration has left: options' num_skipped becomes 0, and all records
/// are read, where those have no token to score.
std::vector<ScoredSequence> read_left_sequences(EvalOptions& options, const LoadedModel& model,
                                                Diagnostics& diagnostics);

/// Scores of all variants, one value per sequence. Progress is in tokens, of this stage.
std::vector<SequenceScores> score_all(Scorer& scorer, const std::vector<ScoredSequence>& sequences,
                                      Diagnostics& diagnostics, const char* stage = "eval");

/// Scores of one FP8 variant with only one layer's cache quantized: models[i] of a value belongs to
/// layers[i].
std::vector<SequenceScores> score_layers(Scorer& scorer,
                                         const std::vector<ScoredSequence>& sequences, size_t model,
                                         const std::vector<int64_t>& layers,
                                         Diagnostics& diagnostics);

}  // namespace kvcal
