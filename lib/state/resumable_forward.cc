#include "state/resumable_forward.h"

#include <numeric>

#include "core/error.h"
#include "forward/observation_bytes.h"

namespace kvcal {
namespace {

bool ends_layer(RecordKind kind) {
  return kind == RecordKind::kAdvance || kind == RecordKind::kObserveAndAdvance;
}

}  // namespace

ResumableForward::ResumableForward(RunState& state, const ModelConfig& config,
                                   std::vector<int64_t> lengths, Make make)
    : state_(state), config_(config), lengths_(std::move(lengths)), make_(std::move(make)) {
  state_.begin_pass(std::ssize(lengths_));
}

ResumableForward::~ResumableForward() {
  state_.settle();
}

void ResumableForward::request(const ObservationRequest& request) {
  KVCAL_CHECK(!forward_);
  request_ = request;
}

LayerForward& ResumableForward::forward() {
  if (forward_) return *forward_;
  const std::optional<int64_t> layer = state_.restored_layer();
  forward_ = make_(layer.has_value());
  forward_->request(request_);
  if (layer)
    in_context(state_.folder().string(),
               [&] { forward_->restore_hidden(*layer + 1, state_.restored_hidden()); });
  return *forward_;
}

template <class Result>
Result ResumableForward::kept_or(RecordKind kind, int64_t layer,
                                 Result (*parse)(std::span<const std::byte>),
                                 const std::function<Result(LayerForward&)>& call) {
  if (const auto kept = state_.replay(kind, layer))
    return in_context(state_.folder().string() + ", layer " + std::to_string(layer), [&] {
      Result result = parse(*kept);
      check(result);
      return result;
    });
  LayerForward& made = forward();
  if (ends_layer(kind)) state_.begin_layer(made, layer);
  Result result = call(made);
  state_.record(kind, layer, to_bytes(result));
  if (ends_layer(kind)) state_.end_layer(made, layer);
  return result;
}

void ResumableForward::check(std::string_view what, const KvObservation& seen,
                             int64_t heads) const {
  const auto expected = static_cast<size_t>(heads);
  if (seen.histograms.size() != expected || seen.ranges.size() != expected * lengths_.size())
    fail(what, " of ", seen.ranges.size(), " ranges and ", seen.histograms.size(),
         " histograms, expected ", heads, " heads of ", lengths_.size(), " samples");
}

void ResumableForward::check(const LayerObservation& seen) const {
  check("K", seen.k, config_.cache_heads());
  check("V", seen.v, config_.cache_heads());
  if (seen.q) check("Q", *seen.q, config_.num_attention_heads);
  check(seen.linears);
}

void ResumableForward::check(const LinearObservation& seen) const {
  if (!seen.ranges.empty() && seen.ranges.size() != lengths_.size())
    fail("a Linear's input of ", seen.ranges.size(), " samples, expected ", lengths_.size());
}

void ResumableForward::check(const std::vector<LinearObservation>& linears) const {
  for (const LinearObservation& linear : linears) check(linear);
}

LayerObservation ResumableForward::observe(int64_t layer) {
  return kept_or<LayerObservation>(RecordKind::kObserve, layer, layer_observation_from,
                                   [=](LayerForward& forward) { return forward.observe(layer); });
}

SaturationCounts ResumableForward::count_saturated(int64_t layer,
                                                   const KvQuantization& quantization) {
  return kept_or<SaturationCounts>(
      RecordKind::kCountSaturated, layer, saturation_from,
      [&](LayerForward& forward) { return forward.count_saturated(layer, quantization); });
}

LayerAdvance ResumableForward::advance(int64_t layer, const KvQuantization& quantization) {
  return kept_or<LayerAdvance>(
      RecordKind::kAdvance, layer, layer_advance_from,
      [&](LayerForward& forward) { return forward.advance(layer, quantization); });
}

LayerAdvance ResumableForward::advance_exact(int64_t layer) {
  return kept_or<LayerAdvance>(RecordKind::kAdvance, layer, layer_advance_from,
                               [=](LayerForward& forward) { return forward.advance_exact(layer); });
}

LayerAdvance ResumableForward::advance_without_attention(int64_t layer) {
  return kept_or<LayerAdvance>(
      RecordKind::kAdvance, layer, layer_advance_from,
      [=](LayerForward& forward) { return forward.advance_without_attention(layer); });
}

LayerObservation ResumableForward::observe_and_advance_exact(int64_t layer) {
  return kept_or<LayerObservation>(
      RecordKind::kObserveAndAdvance, layer, layer_observation_from,
      [=](LayerForward& forward) { return forward.observe_and_advance_exact(layer); });
}

LinearObservation ResumableForward::observe_head() {
  return kept_or<LinearObservation>(RecordKind::kHead, -1, linear_observation_from,
                                    [](LayerForward& forward) { return forward.observe_head(); });
}

int64_t ResumableForward::num_tokens() const {
  return std::accumulate(lengths_.begin(), lengths_.end(), int64_t{0});
}

void ResumableForward::show_hidden(HiddenSink* sink) {
  forward().show_hidden(sink);
}

void ResumableForward::restore_hidden(int64_t next_layer, const HiddenSource& source) {
  forward().restore_hidden(next_layer, source);
}

}  // namespace kvcal
