#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "eval/likelihood.h"
#include "eval/sequences.h"
#include "run/loaded_model.h"

namespace kvcal {

/// Inputs of every task of `eval`: a model, the caches that it runs with, and a data set.
struct EvalOptions {
  std::string model, dataset;
  CacheOptions cache;
  std::vector<std::string> variants = {};  ///< several caches instead, as --variant has them
  std::string reference = {};              ///< checkpoint KL is measured from; empty: the model
  std::string reference_cache = "auto";
  DeviceOptions device = {};
  SequenceOptions sequences = {};
};

/// The name of a variant, and what its cache is made of.
struct CacheLabel {
  std::string name;
  KvDType dtype;
  std::string scales_source;  ///< "none", "unit", "checkpoint", or the file or folder
};

/// A model with one cache.
struct EvalVariant {
  /// Throws Error as cache_dtype_of and scales_of do.
  EvalVariant(const std::string& name, LoadedModel& loaded, const CacheOptions& cache,
              Diagnostics& diagnostics);
  ScoredModel scored() const { return {model->decoder, label.dtype, scales}; }
  /// The layers whose cache is quantized, ascending.
  std::vector<int64_t> quantized_layers() const;

  CacheLabel label;
  LoadedModel* model;
  std::vector<LayerKvScales> scales;
};

/// A variant as --variant has it: NAME=CACHE, NAME=CACHE:SCALES or NAME=model:FOLDER.
struct VariantSpec {
  std::string name;
  std::string folder;  ///< of another checkpoint, run as its config says; empty: the command's
  CacheOptions cache;
};
/// Throws Error that names the option's text.
VariantSpec parse_variant(const std::string& text);

/// Everything that one evaluation scores, and what it is measured from, on one backend.
class EvalVariants {
 public:
  /// has_reference: what KL is measured from is run, too.
  EvalVariants(const EvalOptions& options, bool has_reference, Diagnostics& diagnostics);

  LoadedModel& model() { return *models_[0]; }
  const std::vector<EvalVariant>& variants() const { return variants_; }
  /// Whether the task's model alone runs, since no variants were named.
  bool is_single() const { return is_single_; }
  const EvalVariant* reference() const { return reference_ ? &*reference_ : nullptr; }
  /// The name of what KL is measured from, for people; empty without a reference.
  std::string reference_name() const;

  Scorer make_scorer() const;

 private:
  LoadedModel& load(const std::string& folder, const DeviceOptions& device,
                    Diagnostics& diagnostics);

  std::unique_ptr<Backend> backend_;  ///< outlives the models, whose weights lie in it
  int threads_;
  std::vector<std::unique_ptr<LoadedModel>> models_;
  std::vector<EvalVariant> variants_;
  std::optional<EvalVariant> reference_;
  bool is_single_ = true;
};

/// Adds the lines of the variant's missed gates to all, with its name where there are several.
void add_missed(const std::vector<std::string>& lines, const EvalVariants& variants, size_t variant,
                std::vector<std::string>& all);

}  // namespace kvcal
