#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>

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

/// Converts observations to statistics. Throws NotFinite, naming module, record and token.
TensorStatistics head_statistics(std::string_view side, const KvObservation& seen, int64_t layer,
                                 std::span<const Sample> samples);
/// Makes the statistics of a model's attention modules, in layer order. Those of K and V of a layer
/// without a cache of its own are those of the layer whose cache it reads. Borrows.
class AttentionReader {
 public:
  AttentionReader(const ModelConfig& config, std::span<const Sample> samples)
      : config_(config), samples_(samples) {}
  /// seen: of the layer; null: the layer did not run, because it computes no K and V. Throws Error
  /// as attention_statistics does.
  AttentionStatistics statistics(int64_t layer, const LayerObservation* seen);

 private:
  const ModelConfig& config_;
  std::span<const Sample> samples_;
  std::map<int64_t, AttentionStatistics> shared_;  ///< of layers whose K and V others read
};

AttentionStatistics attention_statistics(const LayerObservation& seen, const std::string& module,
                                         int64_t layer, std::span<const Sample> samples);
/// Statistics of the inputs of one layer's Linears (-1: lm_head's).
std::vector<InputStatistics> input_statistics(const InputNames& names, int64_t layer,
                                              const std::vector<LinearObservation>& linears,
                                              std::span<const Sample> samples);

/// Records the model's type, and the family that was chosen where that is not known.
void set_model_type(const ModelConfig& config, Provenance& origin);
/// Records the samples of a run and their number of tokens.
void set_samples(std::span<const Sample> samples, Provenance& origin);

}  // namespace kvcal
