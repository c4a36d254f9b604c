#include "calib/statistics/observed_statistics.h"

#include <algorithm>
#include <iterator>

#include "core/error.h"
#include "family/expected_tensors.h"
#include "forward/divided_forward.h"

namespace kvcal {
namespace {

/// The ranges [samples, width] without the marks of NaN and Inf. Throws NotFinite where one has a
/// mark; place_of: where column i of width is, for the message.
std::vector<Range> finite_ranges(const std::vector<ObservedRange>& seen, size_t width,
                                 std::span<const Sample> samples, const auto& place_of) {
  std::vector<Range> ranges;
  ranges.reserve(seen.size());
  for (const ObservedRange& one : seen) {
    if (one.first_nonfinite >= 0) {
      const int64_t record = samples[ranges.size() / width].index;
      throw NotFinite("NaN or Inf in " + place_of(ranges.size() % width) + ", at token " +
                          std::to_string(one.first_nonfinite) + " of record " +
                          std::to_string(record) +
                          ": the weights or the compute dtype cannot carry this model",
                      record);
    }
    ranges.push_back({one.min, one.max});
  }
  return ranges;
}

TensorStatistics head_statistics(std::string_view side, const KvObservation& seen, int64_t layer,
                                 std::span<const Sample> samples) {
  const auto place_of = [&](size_t head) {
    return std::string(side) + " of layer " + std::to_string(layer) + ", head " +
           std::to_string(head);
  };
  const size_t heads = seen.histograms.size();
  TensorStatistics statistics{.heads = static_cast<int64_t>(heads),
                              .ranges = finite_ranges(seen.ranges, heads, samples, place_of),
                              .histograms = seen.histograms,
                              .positions = seen.positions,
                              .kinds = seen.kinds};
  // What is not finite was told of its head.
  for (const ObservedRange& channel : seen.channels)
    statistics.channels.push_back({channel.min, channel.max});
  return statistics;
}

bool is_of_expert(Role role) {
  return role == Role::kExpertGate || role == Role::kExpertUp || role == Role::kExpertDown;
}

/// Appends the observations of next. samples: number in seen, then in next.
template <class Observed>
void put_behind(Observed& seen, Observed next, const SampleParts& samples) {
  std::vector<std::optional<LayerResult>> parts;
  for (Observed* part : {&seen, &next}) parts.emplace_back(std::move(*part));
  seen = std::get<Observed>(merged(std::move(parts), samples));
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

AttentionStatistics AttentionReader::statistics(int64_t layer, const LayerObservation* seen) {
  const auto of = [&](std::string_view side, const KvObservation& one) {
    return head_statistics(side, one, layer, samples_);
  };
  AttentionStatistics own;
  if (config_.has_own_cache(layer)) {
    KVCAL_CHECK(seen);
    own.k = of("K", seen->k);
    own.v = of("V", seen->v);
  } else {
    own = shared_.at(config_.layer(layer).cache_layer);
    own.q.reset();
  }
  own.module = config_.attention_module(layer);
  if (seen && seen->q) own.q = of("Q", *seen->q);
  if (std::ranges::binary_search(config_.shared_layers(), layer)) shared_[layer] = own;
  return own;
}

std::vector<InputStatistics> input_statistics(const InputNames& names, int64_t layer,
                                              const std::vector<LinearObservation>& linears,
                                              std::span<const Sample> samples) {
  std::vector<InputStatistics> all;
  for (const LinearObservation& seen : linears) {
    const std::string& name = names.of(layer, seen.role, seen.index);
    const auto place_of = [&](size_t) { return "the input of " + name; };
    all.push_back({.name = name,
                   .seen = {.ranges = finite_ranges(seen.ranges, 1, samples, place_of),
                            .histograms = {seen.histogram}},
                   .tokens = seen.tokens});
  }
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

LayerObservation run_exact(LayerForward& forward, const ModelConfig& config,
                           const ObservationRequest& request, int64_t layer) {
  if (!config.has_attention(layer))
    return {.k = {}, .v = {}, .linears = forward.advance_without_attention(layer).linears};
  return request.ends_with(layer, config) ? forward.observe(layer)
                                          : forward.observe_and_advance_exact(layer);
}

void ExactRounds::add(LayerForward& forward, size_t num_samples) {
  forward.request(request_);
  const size_t counts[] = {num_samples_, num_samples};
  const SampleParts samples = SampleParts::behind_each_other(counts);
  for (int64_t layer = 0; layer <= request_.last_layer(config_); ++layer) {
    LayerObservation seen = run_exact(forward, config_, request_, layer);
    if (num_samples_ == 0) {
      layers_.push_back(std::move(seen));
    } else {
      put_behind(layers_.at(static_cast<size_t>(layer)), std::move(seen), samples);
    }
  }
  if (request_.head && num_samples_ == 0) {
    head_ = forward.observe_head();
  } else if (request_.head) {
    put_behind(*head_, forward.observe_head(), samples);
  }
  num_samples_ += num_samples;
}

Statistics ExactRounds::statistics(std::span<const Sample> samples) const {
  KVCAL_CHECK(samples.size() == num_samples_);
  const InputNames names(config_);
  Statistics statistics;
  const auto keep_inputs = [&](int64_t layer, const std::vector<LinearObservation>& linears) {
    std::ranges::move(input_statistics(names, layer, linears, samples),
                      std::back_inserter(statistics.inputs));
  };
  AttentionReader reader(config_, samples);
  for (int64_t layer = 0; layer < config_.num_layers(); ++layer) {
    const bool runs = layer < std::ssize(layers_);
    if (config_.has_attention(layer))
      statistics.attention.push_back(
          reader.statistics(layer, runs ? &layers_[static_cast<size_t>(layer)] : nullptr));
    if (runs) keep_inputs(layer, layers_[static_cast<size_t>(layer)].linears);
  }
  if (head_) keep_inputs(-1, {*head_});
  return statistics;
}

}  // namespace kvcal
