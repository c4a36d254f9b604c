#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "forward/layerwise.h"
#include "support/model_fixture.h"

namespace kvcal::test {

/// Everything a calibration could see of a forward pass, as bytes, to compare two passes.
class SeenBytes {
 public:
  void add(const LayerObservation& seen) {
    add(seen.k);
    add(seen.v);
    if (seen.q) add(*seen.q);
    if (seen.channels) {
      append(std::span(seen.channels->k));
      append(std::span(seen.channels->v));
    }
    add(seen.linears);
  }
  void add(const KvObservation& side) {
    append(std::span(side.ranges));
    append(std::span(side.histograms));
    append(std::span(side.positions));
  }
  void add(const LayerAdvance& advance) {
    add(advance.saturated);
    add(advance.linears);
  }
  void add(const std::vector<LinearObservation>& linears) {
    for (const LinearObservation& one : linears) add(one);
  }
  void add(const LinearObservation& one) {
    const double values[] = {static_cast<double>(one.role), static_cast<double>(one.index),
                             one.amax.value, static_cast<double>(one.nonfinite),
                             static_cast<double>(one.tokens)};
    append(std::span(values));
    append(std::span(one.ranges));
    append(std::span(one.histogram.counts));
  }
  void add(const SaturationCounts& saturated) { append(std::span(&saturated, 1)); }
  void add(const AttentionComparison& comparison) {
    for (const auto& candidates : comparison.samples)
      for (const std::vector<AttentionError>& errors : candidates) append(std::span(errors));
  }
  const std::string& bytes() const { return bytes_; }

 private:
  template <class T, size_t kExtent>
  void append(std::span<T, kExtent> values) {
    const auto all = std::as_bytes(values);
    bytes_.append(reinterpret_cast<const char*>(all.data()), all.size());
  }

  std::string bytes_;
};

/// Scales that clip some values of a layer of a fixture.
inline KvQuantization clipping_quantization(const ModelConfig& config, int64_t layer) {
  const auto heads = static_cast<size_t>(config.cache(layer).heads);
  return {KvDType::kFp8E4m3, std::vector<float>(heads, 0.003f), std::vector<float>(heads, 0.001f)};
}

enum class RunMode { kQuantized, kExact, kExactInOnePass };

/// All layers that request needs, as a calibration walks them.
inline std::string run_layers(LayerForward& forward, const ModelConfig& config, RunMode mode,
                              const ObservationRequest& request = {}) {
  SeenBytes seen;
  forward.request(request);
  const int64_t end = request.last_layer(config) + 1;
  for (int64_t layer = 0; layer < end; ++layer) {
    KvQuantization quantization = clipping_quantization(config, layer);
    if (request.query)
      quantization.q_scales.assign(
          static_cast<size_t>(config.layers[static_cast<size_t>(layer)].attention.heads), 0.02f);
    const bool is_end = request.ends_with(layer, config);
    const auto compare = [&] {
      if (request.compares(layer, config))
        seen.add(forward.compare_attention(layer, std::span(&quantization, 1)));
    };
    if (!config.has_attention(layer)) {
      seen.add(forward.advance_without_attention(layer));
    } else if (mode == RunMode::kExactInOnePass && !is_end) {
      seen.add(forward.observe_and_advance_exact(layer));
      compare();
    } else {
      seen.add(forward.observe(layer));
      if (mode != RunMode::kQuantized || is_end)
        seen.add(forward.count_saturated(layer, quantization));
      if (mode == RunMode::kQuantized && !is_end) seen.add(forward.advance(layer, quantization));
      if (mode != RunMode::kQuantized && !is_end) seen.add(forward.advance_exact(layer));
      compare();
    }
  }
  if (request.head) seen.add(forward.observe_head());
  return seen.bytes();
}

/// Everything there is to see.
constexpr ObservationRequest kObserveAll{.query = true,
                                         .channels = true,
                                         .head = true,
                                         .all_experts = false,
                                         .linears = LinearDetail::kSamples,
                                         .compared_samples = 4};

/// Samples of different lengths made of a fixture's ids.
class FixtureSamples {
 public:
  explicit FixtureSamples(const ModelFixture& fixture) {
    const auto count = fixture.ids.size();
    for (const size_t length : {count, size_t{9}, size_t{1}, count, size_t{5}, count - 3})
      samples_.emplace_back(std::span(fixture.ids).first(length));
  }
  std::span<const std::span<const TokenId>> spans() const { return samples_; }
  std::vector<int64_t> lengths() const {
    std::vector<int64_t> lengths;
    for (const auto& sample : samples_) lengths.push_back(static_cast<int64_t>(sample.size()));
    return lengths;
  }

 private:
  std::vector<std::span<const TokenId>> samples_;
};

}  // namespace kvcal::test
