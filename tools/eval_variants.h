#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "eval/likelihood.h"
#include "eval_options.h"
#include "loaded_model.h"

namespace kvcal {

/// A model, what its cache is made of, and what the two are called.
struct EvalVariant {
  /// Throws Error as cache_dtype_of and scales_of do.
  EvalVariant(std::string given_name, LoadedModel& loaded, const CacheOptions& cache);
  ScoredModel scored() const { return {model->decoder, dtype, scales}; }

  std::string name;
  LoadedModel* model;
  KvDType dtype;
  std::vector<LayerKvScales> scales;
  std::string scales_source;  ///< "none", "unit", "checkpoint", or the file or folder
};

/// What --variant says: NAME=CACHE, NAME=CACHE:SCALES or NAME=model:FOLDER.
struct VariantSpec {
  std::string name;
  std::string folder;  ///< of another checkpoint, run as its config says; empty: the command's
  CacheOptions cache;
};
/// Throws Error that names the option's text.
VariantSpec parse_variant(const std::string& text);

/// Everything that one run of eval scores, and what it is measured from. All run on one backend.
class EvalVariants {
 public:
  /// has_reference: what KL is measured from is run, too.
  EvalVariants(const EvalOptions& options, bool has_reference);

  LoadedModel& model() { return *models_[0]; }
  const std::vector<EvalVariant>& variants() const { return variants_; }
  /// Of the task's model alone, where --variant is not given.
  bool is_single() const { return is_single_; }
  const EvalVariant* reference() const { return reference_ ? &*reference_ : nullptr; }
  /// For people: what KL is measured from.
  std::string reference_name() const;

  Scorer make_scorer(const EvalOptions& options) const;

  /// missed: lines of each variant's gates. Throws GateMissed with all of them, if there are any.
  void throw_if_missed(const std::vector<std::vector<std::string>>& missed) const;

 private:
  LoadedModel& load(const std::string& folder, const DeviceOptions& device);

  std::unique_ptr<Backend> backend_;  ///< outlives the models, whose weights lie in it
  std::vector<std::unique_ptr<LoadedModel>> models_;
  std::vector<EvalVariant> variants_;
  std::optional<EvalVariant> reference_;
  bool is_single_ = true;
};

}  // namespace kvcal
