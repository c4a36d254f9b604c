#include "state/resumable_forward.h"

#include <numeric>
#include <utility>

#include "core/byte_stream.h"
#include "core/error.h"
#include "forward/layer_forward.h"

namespace kvcal {
namespace {

bool ends_layer(RecordKind kind) {
  return kind == RecordKind::kAdvance || kind == RecordKind::kObserveAndAdvance;
}

RecordKind kind_of(LayerPass pass) {
  switch (pass) {
    case LayerPass::kObserve:
      return RecordKind::kObserve;
    case LayerPass::kCountSaturated:
      return RecordKind::kCountSaturated;
    case LayerPass::kAdvance:
    case LayerPass::kAdvanceExact:
    case LayerPass::kAdvanceWithoutAttention:
      return RecordKind::kAdvance;
    case LayerPass::kObserveAndAdvanceExact:
      return RecordKind::kObserveAndAdvance;
    case LayerPass::kObserveHead:
      return RecordKind::kHead;
    case LayerPass::kCompareAttention:
      return RecordKind::kCompareAttention;
  }
  KVCAL_CHECK(false);
}

}  // namespace

ResumableForward::ResumableForward(RunState& state, const ModelConfig& config,
                                   std::vector<int64_t> lengths, Make make, WeightHashes* hashes)
    : state_(state),
      config_(config),
      lengths_(std::move(lengths)),
      make_(std::move(make)),
      hashes_(hashes) {
  const uint64_t now = hashes_ ? hashes_->of_model() : 0;
  const auto kept =
      state_.begin_pass(std::ssize(lengths_), std::as_bytes(std::span(&now, size_t{1})));
  if (kept && ByteReader(*kept).get<uint64_t>() != now)
    throw ChangedWeights(state_.folder().string() +
                         ": the model's embedding, or another tensor outside of its layers, has "
                         "changed since the state was kept; expected the same model, or "
                         "--overwrite without --resume to begin anew");
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

std::vector<std::byte> ResumableForward::record_of(int64_t layer, const LayerResult& result) {
  ByteWriter record;
  record.put(hashes_ && layer >= 0 ? hashes_->packed(layer) : uint64_t{0});
  record.put_bytes(to_bytes(result));
  return record.take();
}

void ResumableForward::check_weights(int64_t layer, uint64_t then) {
  if (!hashes_ || layer < 0 || hashes_->stored(layer) == then) return;
  throw ChangedWeights("the weights of layer " + std::to_string(layer) +
                       " have changed since the state was kept; expected the same model, or "
                       "--overwrite without --resume to begin anew");
}

LayerResult ResumableForward::run(const LayerCall& call) {
  const RecordKind kind = kind_of(call.pass);
  const int64_t layer = call.layer;
  if (const auto kept = state_.replay(kind, layer))
    return in_context(state_.folder().string() + ", layer " + std::to_string(layer), [&] {
      ByteReader record(*kept);
      check_weights(layer, record.get<uint64_t>());
      LayerResult result = layer_result_from(call.pass, kept->subspan(record.offset()));
      std::visit([this, layer](const auto& seen) { check(seen, layer); }, result);
      return result;
    });
  LayerForward& made = forward();
  if (kind != RecordKind::kCompareAttention) end_open_layer();
  if (ends_layer(kind)) {
    state_.begin_layer(made, layer);
    open_layer_ = layer;
  }
  LayerResult result = made.run(call);
  state_.record(kind, layer, record_of(layer, result));
  // A comparison needs what the pass that ended the layer has kept, which no state holds.
  if (kind == RecordKind::kCompareAttention || layer < 0 || !request_.compares(layer, config_))
    end_open_layer();
  return result;
}

void ResumableForward::end_open_layer() {
  if (open_layer_) state_.end_layer(forward(), *std::exchange(open_layer_, std::nullopt));
}

void ResumableForward::check(std::string_view what, const KvObservation& seen,
                             int64_t heads) const {
  const auto expected = static_cast<size_t>(heads);
  if (seen.histograms.size() != expected || seen.ranges.size() != expected * lengths_.size())
    fail(what, " of ", counted(seen.ranges.size(), "range"), " and ",
         counted(seen.histograms.size(), "histogram"), ", expected ", counted(heads, "head"),
         " of ", counted(lengths_.size(), "sample"));
}

void ResumableForward::check(const LayerObservation& seen, int64_t layer) const {
  const int64_t heads = config_.has_own_cache(layer) ? config_.cache(layer).heads : 0;
  check("K", seen.k, heads);
  check("V", seen.v, heads);
  if (seen.q) check("Q", *seen.q, config_.attention(layer).heads);
  check(seen.linears);
}

void ResumableForward::check(const LinearObservation& seen) const {
  if (!seen.ranges.empty() && seen.ranges.size() != lengths_.size())
    fail("a Linear's input of ", counted(seen.ranges.size(), "sample"), ", expected ",
         lengths_.size());
}

void ResumableForward::check(const std::vector<LinearObservation>& linears) const {
  for (const LinearObservation& linear : linears) check(linear);
}

void ResumableForward::check(const AttentionComparison& comparison, int64_t layer) const {
  const auto heads = static_cast<size_t>(config_.attention(layer).heads);
  const int64_t expected = request_.compared_samples.value_or(0);
  if (std::cmp_not_equal(comparison.samples.size(), expected))
    fail("attention of ", counted(comparison.samples.size(), "sample"), ", expected ", expected);
  for (const auto& candidates : comparison.samples)
    for (const auto& errors : candidates)
      if (errors.size() != heads)
        fail("attention of ", counted(errors.size(), "head"), ", expected ", heads);
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
