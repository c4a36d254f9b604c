#include "calib/exact_pass.h"

#include <iterator>

#include "core/error.h"
#include "forward/merged_observation.h"

namespace kvcal {
namespace {

/// Appends the observations of next. samples: number in seen, then in next.
template <class Seen>
void put_behind(Seen& seen, Seen next, const SampleParts& samples) {
  std::vector<std::optional<LayerResult>> parts;
  for (Seen* part : {&seen, &next}) parts.emplace_back(std::move(*part));
  seen = std::get<Seen>(merged(std::move(parts), samples));
}

}  // namespace

ExactPass::ExactPass(LayerForward& forward, const ModelConfig& config,
                     const ObservationRequest& request)
    : forward_(forward), config_(config), request_(request) {
  forward_.request(request);
}

int64_t ExactPass::last_layer() const {
  return request_.last_layer(config_);
}

bool ExactPass::is_end(int64_t layer) const {
  return request_.ends_with(layer, config_);
}

LayerObservation ExactPass::run(int64_t layer) {
  if (!config_.has_attention(layer)) {
    LayerObservation seen;
    seen.linears = forward_.advance_without_attention(layer).linears;
    return seen;
  }
  return is_end(layer) ? forward_.observe(layer) : forward_.observe_and_advance_exact(layer);
}

void ExactRounds::add(LayerForward& forward, size_t num_samples) {
  ExactPass pass(forward, config_, request_);
  const size_t counts[] = {num_samples_, num_samples};
  const SampleParts samples = SampleParts::behind_each_other(counts);
  for (int64_t layer = 0; layer <= pass.last_layer(); ++layer) {
    LayerObservation seen = pass.run(layer);
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
