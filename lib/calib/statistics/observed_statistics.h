#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "datasets/dataset.h"
#include "family/model_config.h"
#include "forward/layer_forward.h"
#include "quant/provenance.h"
#include "quant/statistics.h"

namespace kvcal {

/// Names of the inputs of Linears: each has the name of the first module that reads it.
class InputNames {
 public:
  explicit InputNames(const ModelConfig& config);

  /// Name of an observation's input; layer -1: lm_head.
  const std::string& of(int64_t layer, Role role, int64_t index) const;
  /// Name of the input that a Linear reads.
  const std::string& of(const std::string& module) const;
  /// Expert of a Linear: "model.layers.0.mlp.experts.3"; nullopt: none.
  std::optional<std::string> expert_of(const std::string& module) const;

 private:
  std::map<std::tuple<int64_t, Role, int64_t>, std::string> by_input_;
  std::map<std::string, std::string> by_module_;
  std::set<std::string> of_experts_;  ///< modules
};

/// NaN or Inf in the results of a model: a run that resumes or starts again meets it again.
class NotFinite : public Error {
 public:
  NotFinite(std::string message, int64_t record) : Error(std::move(message)), record_(record) {}
  /// Sample::index of the sample with the value.
  int64_t record() const { return record_; }

 private:
  int64_t record_;
};

/// Makes the statistics of a model's attention modules, in layer order. Those of K and V of a layer
/// without a cache of its own are those of the layer whose cache it reads. Borrows.
class AttentionReader {
 public:
  AttentionReader(const ModelConfig& config, std::span<const Sample> samples)
      : config_(config), samples_(samples) {}
  /// seen: of the layer; null: the layer did not run, because it computes no K and V. Throws
  /// NotFinite, naming layer, head, record and token.
  AttentionStatistics statistics(int64_t layer, const LayerObservation* seen);

 private:
  const ModelConfig& config_;
  std::span<const Sample> samples_;
  std::map<int64_t, AttentionStatistics> shared_;  ///< of layers whose K and V others read
};

/// Statistics of the inputs of one layer's Linears (-1: lm_head's). Throws NotFinite, naming the
/// module, record and token.
std::vector<InputStatistics> input_statistics(const InputNames& names, int64_t layer,
                                              const std::vector<LinearObservation>& linears,
                                              std::span<const Sample> samples);

/// Records the model's type, and the family that was chosen where that is not known.
void set_model_type(const ModelConfig& config, Provenance& origin);
/// Records the samples of a run and their number of tokens.
void set_samples(std::span<const Sample> samples, Provenance& origin);

/// Runs a layer of an exact forward pass, to its end or as far as the request that forward has
/// needs. k and v are empty for a layer without attention.
LayerObservation run_exact(LayerForward& forward, const ModelConfig& config,
                           const ObservationRequest& request, int64_t layer);

/// Observations of the exact forward pass over samples that come in rounds: equal to those of one
/// pass over all samples, without its memory, and available after each round. Borrows.
class ExactRounds {
 public:
  ExactRounds(const ModelConfig& config, const ObservationRequest& request)
      : config_(config), request_(request) {}

  /// Runs the num_samples samples of forward, which follow those of earlier rounds.
  void add(LayerForward& forward, size_t num_samples);
  /// Statistics of all rounds; samples: those of all rounds, for messages. Throws Error for NaN or
  /// Inf as calibrate does.
  Statistics statistics(std::span<const Sample> samples) const;

 private:
  const ModelConfig& config_;
  ObservationRequest request_;
  std::vector<LayerObservation> layers_;   ///< layers that ran
  std::optional<LinearObservation> head_;  ///< lm_head's input, where requested
  size_t num_samples_ = 0;
};

}  // namespace kvcal
