#include "calib/exact_pass.h"

#include <iterator>

#include "core/error.h"
#include "forward/merged_observation.h"

namespace kvcal {
namespace {

/// Appends the observations of next. samples: number in seen, then in next.
template <class Seen>
void put_behind(Seen& seen, Seen next, const SampleParts& samples) {
  const std::optional<Seen> parts[] = {std::move(seen), std::move(next)};
  seen = merged(std::span<const std::optional<Seen>>(parts), samples);
}

}  // namespace

ExactPass::ExactPass(LayerForward& forward, const ModelConfig& config,
                     const ObservationRequest& request)
    : forward_(forward), config_(config), finishes_layers_(request.finishes_layers()) {
  forward_.request(request);
}

int64_t ExactPass::last_layer() const {
  return finishes_layers_ ? config_.num_hidden_layers - 1 : config_.last_attention_layer();
}

bool ExactPass::is_end(int64_t layer) const {
  return !finishes_layers_ && layer == config_.last_attention_layer();
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
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto layer = static_cast<int64_t>(i);
    if (config_.has_attention(layer))
      statistics.attention.push_back(
          attention_statistics(layers_[i], config_.attention_module(layer), layer, samples));
    keep_inputs(layer, layers_[i].linears);
  }
  if (head_) keep_inputs(-1, {*head_});
  return statistics;
}

}  // namespace kvcal
