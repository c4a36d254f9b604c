#include "calib/observed_statistics.h"

#include <algorithm>

#include "family/modules.h"

namespace kvcal {
namespace {

[[noreturn]] void fail_nonfinite(const std::string& where, const Sample& sample, int32_t token) {
  throw NotFinite("NaN or Inf in " + where + ", at token " + std::to_string(token) + " of record " +
                      std::to_string(sample.index) +
                      ": the weights or the compute dtype cannot carry this model",
                  sample.index);
}

bool is_of_expert(Role role) {
  return role == Role::kExpertGate || role == Role::kExpertUp || role == Role::kExpertDown;
}

}  // namespace

InputNames::InputNames(const ModelConfig& config) {
  for (const ModuleName& module : list_modules(config)) {
    if (!module.role) continue;
    const std::tuple key(module.layer, input_of(*module.role), module.index);
    by_module_[module.name] = by_input_.try_emplace(key, module.name).first->second;
    if (is_of_expert(*module.role)) of_experts_.insert(module.name);
  }
}

const std::string& InputNames::of(int64_t layer, Role role, int64_t index) const {
  const auto found = by_input_.find({layer, role, index});
  KVCAL_CHECK(found != by_input_.end());
  return found->second;
}

const std::string& InputNames::of(const std::string& module) const {
  return by_module_.at(module);
}

std::optional<std::string> InputNames::expert_of(const std::string& module) const {
  if (!of_experts_.contains(module)) return {};
  return module.substr(0, module.rfind('.'));
}

TensorStatistics head_statistics(std::string_view side, const KvObservation& seen, int64_t layer,
                                 std::span<const Sample> samples) {
  TensorStatistics statistics{.heads = static_cast<int64_t>(seen.histograms.size()),
                              .ranges = {},
                              .histograms = seen.histograms,
                              .positions = seen.positions};
  const size_t heads = seen.histograms.size();
  statistics.ranges.reserve(seen.ranges.size());
  for (size_t i = 0; i < seen.ranges.size(); ++i) {
    const ObservedRange& observed = seen.ranges[i];
    if (observed.first_nonfinite >= 0)
      fail_nonfinite(std::string(side) + " of layer " + std::to_string(layer) + ", head " +
                         std::to_string(i % heads),
                     samples[i / heads], observed.first_nonfinite);
    statistics.ranges.push_back({observed.min, observed.max});
  }
  return statistics;
}

AttentionStatistics attention_statistics(const LayerObservation& seen, const std::string& module,
                                         int64_t layer, std::span<const Sample> samples) {
  AttentionStatistics statistics{.module = module,
                                 .k = head_statistics("K", seen.k, layer, samples),
                                 .v = head_statistics("V", seen.v, layer, samples)};
  if (seen.q) statistics.q = head_statistics("Q", *seen.q, layer, samples);
  return statistics;
}

AttentionStatistics AttentionReader::statistics(int64_t layer, const LayerObservation* seen) {
  const std::string module = config_.attention_module(layer);
  if (!config_.has_own_cache(layer)) {
    AttentionStatistics copy = shared_.at(config_.layer(layer).cache_layer);
    copy.module = module;
    copy.q.reset();
    if (seen && seen->q) copy.q = head_statistics("Q", *seen->q, layer, samples_);
    return copy;
  }
  KVCAL_CHECK(seen);
  AttentionStatistics own = attention_statistics(*seen, module, layer, samples_);
  if (std::ranges::binary_search(config_.shared_layers(), layer)) shared_[layer] = own;
  return own;
}

namespace {

InputStatistics statistics_of(const std::string& name, const LinearObservation& seen,
                              std::span<const Sample> samples) {
  InputStatistics statistics{.name = name,
                             .seen = {.heads = 1, .ranges = {}, .histograms = {seen.histogram}},
                             .tokens = seen.tokens};
  for (size_t sample = 0; sample < seen.ranges.size(); ++sample) {
    const ObservedRange& observed = seen.ranges[sample];
    if (observed.first_nonfinite >= 0)
      fail_nonfinite("the input of " + name, samples[sample], observed.first_nonfinite);
    statistics.seen.ranges.push_back({observed.min, observed.max});
  }
  return statistics;
}

}  // namespace

std::vector<InputStatistics> input_statistics(const InputNames& names, int64_t layer,
                                              const std::vector<LinearObservation>& linears,
                                              std::span<const Sample> samples) {
  std::vector<InputStatistics> all;
  for (const LinearObservation& linear : linears)
    all.push_back(statistics_of(names.of(layer, linear.role, linear.index), linear, samples));
  return all;
}

void set_model_type(const ModelConfig& config, Provenance& origin) {
  origin.model_type = config.model_type;
  origin.family = config.chosen ? std::string(config.architecture->name) : "";
  origin.family_sha256 = config.chosen.file_sha256;
}

void set_samples(std::span<const Sample> samples, Provenance& origin) {
  origin.sample_indices.clear();
  for (const Sample& sample : samples) origin.sample_indices.push_back(sample.index);
  origin.num_tokens = tokens_of(samples);
  origin.longest_sample = longest_of(samples);
}

}  // namespace kvcal
