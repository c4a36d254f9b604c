#include "forward/layerwise.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "core/interrupt.h"
#include "forward/memory_plan.h"

namespace kvcal {

namespace {

std::vector<int64_t> lengths_of(std::span<const std::span<const TokenId>> samples) {
  std::vector<int64_t> lengths;
  for (const auto& sample : samples) lengths.push_back(static_cast<int64_t>(sample.size()));
  return lengths;
}

uint64_t sum_of(Backend& backend, const Buffer& counts) {
  if (counts.size() == 0) return 0;
  const auto host = downloaded(backend, counts.as<uint64_t>(), count_of<uint64_t>(counts));
  return std::accumulate(host.begin(), host.end(), uint64_t{0});
}

SaturationCounts saturated(Backend& backend, const KvBuffers& storage) {
  return {sum_of(backend, storage.k.saturated), sum_of(backend, storage.v.saturated),
          sum_of(backend, storage.q_saturated)};
}

int64_t longest_sample_of(std::span<const std::span<const TokenId>> samples,
                          const LayerwiseOptions& options) {
  int64_t longest = options.longest_sample;
  for (const auto& sample : samples) longest = std::max(longest, std::ssize(sample));
  return longest;
}

}  // namespace

LayerwiseForward::LayerwiseForward(const ModelConfig& config, const Weights& weights,
                                   Backend& backend,
                                   std::span<const std::span<const TokenId>> samples,
                                   const LayerwiseOptions& options, Diagnostics& diagnostics)
    : config_(config),
      weights_(weights),
      backend_(backend),
      diagnostics_(diagnostics),
      type_(options.compute_type),
      layer_bytes_(options.layer_bytes),
      longest_sample_(longest_sample_of(samples, options)),
      planes_(planes_of(config, longest_sample_)) {
  if (!backend.supports(type_))
    fail("compute dtype ", name_of(type_), " is not supported by ", backend.description());
  config.check_length(longest_sample_);
  const std::vector<int64_t> lengths = lengths_of(samples);
  const MemoryPlan plan(config, weights, backend, options, lengths);
  make_batches(samples, options, lengths, plan.batch_tokens());
  std::vector<int64_t> batch_tokens;
  for (const SampleBatch& batch : batches_) {
    pieces_.add_batch(batch.tokens);
    batch_tokens.push_back(batch.tokens.num_tokens);
    longest_batch_ = std::max(longest_batch_, batch.tokens.num_tokens);
  }
  Backend* const one = &backend;
  group_ = backend.make_pack_group(std::span(&one, 1));
  embedding_ = pack_embedding(weights, config, *group_, type_);
  runner_ = std::make_unique<LayerRunner>(config, backend, type_, longest_batch_);
  if (config.has_layer_inputs) {
    embedded_ = allocate<float>(backend, longest_batch_ * config.hidden_size);
    input_rows_ = allocate<float>(backend, longest_batch_ * config.layer_input_size);
  }
  if (config.ngrams.longest > 0)
    input_rows_ = allocate<float>(backend, longest_batch_ * config.ngrams.width);
  if (config.has_draft()) make_draft_batches();
  hidden_.emplace(backend, config.carried_width(longest_sample_), std::move(batch_tokens),
                  HiddenRoom{.bytes = plan.hidden_bytes(longest_batch_),
                             .scratch_folder = options.scratch_folder});
  if (backend.is_host() && plan.is_limit_found() && !hidden_->are_in_backend())
    diagnostics.warn("hidden states go to a scratch file in '" + options.scratch_folder.string() +
                     "': this process can have no more than " + std::to_string(*plan.limit()) +
                     " bytes of memory");
  // Half of the room, because packing and libraries take device memory that no plan counts.
  room_to_keep_ =
      plan.room_beside(longest_batch_, num_tokens_ * config.carried_width(longest_sample_),
                       hidden_->are_in_backend())
          .value_or(std::numeric_limits<uint64_t>::max()) /
      2;
  if (!options.is_restored) embed(plan);
  // "= {}" would keep their memory.
  if (!config.reads_ids_in_layers())
    for (SampleBatch& batch : batches_) batch.tokens.ids = std::vector<TokenId>();
}

LayerwiseForward::~LayerwiseForward() = default;

void LayerwiseForward::report(const SampleBatch& batch, Share share) {
  for (const std::string& warning : backend_.take_warnings()) diagnostics_.warn(warning);
  if (share == Share::kNone) return;
  int64_t done = batch.first_token + batch.tokens.num_tokens;
  if (share != Share::kWhole) done = (done + (share == Share::kSecondHalf ? num_tokens_ : 0)) / 2;
  // Tokens that would have finished all layers if the work went sample by sample, as users expect.
  diagnostics_.progress("calibrating", (layer_ * num_tokens_ + done) / config_.num_layers(),
                        num_tokens_, "tokens");
}

void LayerwiseForward::run_batches(const PackedLayer& layer, Share share, const Pass& pass) {
  using Access = HiddenStates::Access;
  // Passes that end the layer see all its inputs; other passes would show some of them twice.
  show_linears(pass.finishes ? linears_.get() : nullptr);
  if (pass.compares && request_.compares(layer_, config_)) compared_->begin_layer(layer_);
  hidden_->walk(pass.finishes ? Access::kUpdate : Access::kRead, [&](size_t index, float* hidden) {
    throw_if_interrupted();
    run_batch(layer, index, hidden, pass);
    report(batches_[index], share);
  });
  if (pass.finishes) advanced_layers_ = layer_ + 1;
}

void LayerwiseForward::run_batch(const PackedLayer& layer, size_t index, float* hidden,
                                 const Pass& pass) {
  const SampleBatch& batch = batches_[index];
  batch_sample_ = batch.first_sample;
  if (pass.finishes) release_hidden(batch);
  give_inputs(batch);
  const BatchInput input = input_of(layer, index, hidden);
  const TokenBatch& tokens = input.tokens;
  if (tokens.num_tokens == 0) {
    if (pass.observers) pass.observers->clear(batch.first_sample, tokens.segments.size());
    return;
  }
  const LayerRunner::Exchanged held(*runner_, kept_of(index, pass));
  runner_->begin(layer, layer_, tokens);
  ObservedQueries queries;
  if (pass.observers) queries = pass.observers->queries(batch.first_sample);
  if (config_.has_attention(layer_)) {
    const KeysValues made = keys_values(input.hidden, pass, held.kept);
    if (pass.compares && request_.compares(layer_, config_) &&
        compared_->compares(batch.first_sample)) {
      compared_->keep_keys(batch.first_sample, tokens, made);
      queries.keep = [&](const HeadsView& q, const HeadsView& relative) {
        compared_->keep_queries(batch.first_sample, tokens.segments, q, relative);
      };
    }
    if (config_.has_own_cache(layer_)) enter_cache(made, tokens, index, pass);
  }
  if (pass.finishes) {
    runner_->finish(hidden, storage_for(batch, pass.storage->view(), hidden), queries);
    inject_images(tokens, hidden);
    show_hidden(batch, hidden);
  } else if (queries.are_wanted()) {
    runner_->query(queries);
  }
}

void LayerwiseForward::enter_cache(const KeysValues& made, const TokenBatch& tokens, size_t batch,
                                   const Pass& pass) {
  EnterCacheArgs args = made.entry();
  if (pass.observers) pass.observers->join(args, batch);
  if (pass.storage) pass.storage->join(args);
  ChannelObserver* channels =
      pass.observers && pass.observers->channels ? &*pass.observers->channels : nullptr;
  if (channels) channels->see_keys(args.k.x, tokens.segments);
  if (pass.observers && pass.observers->channel_ranges)
    pass.observers->channel_ranges->see(args, tokens.segments);
  backend_.enter_cache(args);
  if (pass.storage && pass.storage->format) {
    const LayerCache& cache = config_.cache(layer_);
    const auto stored = [&](const KvBuffers::Side& side, int64_t head_dim) {
      return contiguous(side.rows.as<float>(), tokens.num_tokens, cache.heads, head_dim);
    };
    pass.storage->simulate(stored(pass.storage->k, cache.k_dim),
                           stored(pass.storage->v, cache.v_dim), backend_);
  }
  if (!channels) return;
  channels->see(pass.storage->k.rows.as<float>(), pass.storage->v.rows.as<float>(),
                tokens.num_tokens, tokens.segments);
}

LayerRunner::BatchKeysValues* LayerwiseForward::kept_of(size_t batch, const Pass& pass) {
  if (batch == kept_.size() && pass.keeps && runner_->can_keep()) {
    const int64_t tokens = batches_[batch].tokens.num_tokens;
    const uint64_t bytes = runner_->kept_bytes(tokens);
    if (bytes > room_to_keep_) return nullptr;
    kept_.push_back(runner_->make_kept(tokens));
    room_to_keep_ -= bytes;
  }
  if (batch >= kept_.size()) return nullptr;
  LayerRunner::BatchKeysValues& kept = kept_[batch];
  return pass.keeps || kept.layer == layer_ ? &kept : nullptr;
}

KeysValues LayerwiseForward::keys_values(const float* hidden, const Pass& pass,
                                         LayerRunner::BatchKeysValues* kept) {
  if (kept && kept->layer == layer_ && !pass.keeps) {
    if (pass.finishes) kept->layer = -1;  // finish writes over what it reads
    return runner_->keys_values_of(*kept);
  }
  const KeysValues made = runner_->keys_values(hidden);
  if (kept) {
    kept->made = made;
    kept->layer = layer_;
  }
  return made;
}

PassObservers LayerwiseForward::make_observers() const {
  const PositionPieces& pieces = config_.is_draft(layer_) ? draft_->pieces : pieces_;
  const bool has_cache = config_.has_own_cache(layer_);
  PassObservers observers(backend_, pieces, num_samples_,
                          has_cache ? config_.cache(layer_).heads : 0,
                          request_.query ? config_.attention(layer_).heads : 0);
  if (request_.channels && has_cache)
    observers.channels.emplace(backend_, config_.cache(layer_), request_.key_rows);
  if (request_.channel_ranges && has_cache)
    observers.channel_ranges.emplace(backend_, config_.cache(layer_), longest_batch_);
  return observers;
}

std::optional<LayerParts> LayerwiseForward::parts_of(const LayerCall& call) const {
  switch (call.pass) {
    case LayerPass::kObserveHead:
      return std::nullopt;
    case LayerPass::kCountSaturated:
      return LayerParts::kKeyValue;
    case LayerPass::kObserve:
      return request_.ends_with(call.layer, config_) && !request_.query &&
                     !request_.compares(call.layer, config_)
                 ? LayerParts::kKeyValue
                 : LayerParts::kAll;
    default:
      return LayerParts::kAll;
  }
}

LayerResult LayerwiseForward::run(const LayerCall& call) {
  const std::optional<LayerParts> parts = parts_of(call);
  if (!parts) return run(call, nullptr);
  if (!layers_) {
    Backend* const one = &backend_;
    layers_.emplace(weights_, config_, std::span(&one, 1), type_, layer_bytes_, request_);
  }
  return run(call, &layers_->bring(call.layer, *parts).front());
}

LayerResult LayerwiseForward::run(const LayerCall& call, const PackedLayer* layer) {
  if (call.pass == LayerPass::kObserveHead) return observe_final_norm();
  KVCAL_CHECK(layer != nullptr);
  layer_ = call.layer;
  switch (call.pass) {
    case LayerPass::kObserve:
    case LayerPass::kObserveAndAdvanceExact:
      return observe_layer(*layer, call.pass == LayerPass::kObserveAndAdvanceExact);
    case LayerPass::kCountSaturated: {
      const KvBuffers storage = make_storage(call.quantization);
      run_batches(*layer, Share::kNone, {.storage = &storage});
      return saturated(backend_, storage);
    }
    case LayerPass::kCompareAttention:
      return compare(*layer, call.candidates);
    default:
      return advance_layer(*layer, call.quantization);
  }
}

KvBuffers LayerwiseForward::make_storage(const KvQuantization* quantization) const {
  const LayerConfig& layer = config_.layer(layer_);
  const bool has_cache = config_.has_own_cache(layer_);
  // transformers computes K and V in bfloat16 there; float16 would lose those beyond its range.
  const bool is_bfloat16 = has_cache && type_ == ComputeType::kBFloat16 && !request_.channels;
  KvBuffers storage{.dtype = has_cache && quantization ? quantization->type.dtype
                             : is_bfloat16             ? KvDType::kBFloat16
                                                       : KvDType::kFloat32};
  const auto put = [&](const std::vector<float>& values, int64_t heads, Buffer& scales,
                       Buffer& saturated) {
    scales = upload<float>(values, backend_);
    saturated = zeros<uint64_t>(backend_, heads);
  };
  if (has_cache) storage.reserve(layer.cache, longest_batch_, backend_);
  if (has_cache && quantization) {
    const int64_t heads = layer.cache.heads;
    storage.format = quantization->type.format;
    const auto put_side = [&](const std::vector<float>& values, int64_t head_dim,
                              KvBuffers::Side& side) {
      side.scale_per_channel = storage.format && std::ssize(values) == heads * head_dim;
      KVCAL_CHECK(side.scale_per_channel || std::ssize(values) == heads);
      put(values, heads, side.scales, side.saturated);
    };
    put_side(quantization->k_scales, layer.cache.k_dim, storage.k);
    put_side(quantization->v_scales, layer.cache.v_dim, storage.v);
  }
  if (!quantization || quantization->q_scales.empty()) return storage;
  KVCAL_CHECK(std::ssize(quantization->q_scales) == layer.attention.heads);
  storage.q_dtype = quantization->type.dtype;
  put(quantization->q_scales, layer.attention.heads, storage.q_scales, storage.q_saturated);
  return storage;
}

LayerObservation LayerwiseForward::observe_layer(const PackedLayer& packed, bool finishes) {
  const bool is_end = finishes || request_.ends_with(layer_, config_);
  PassObservers observers = make_observers();
  std::optional<KvBuffers> storage;
  if (finishes || observers.channels) storage.emplace(make_storage(nullptr));
  run_batches(packed, is_end ? Share::kWhole : Share::kFirstHalf,
              {.observers = &observers,
               .storage = storage ? &*storage : nullptr,
               .finishes = finishes,
               .keeps = !is_end,
               .compares = is_end || request_.compares_first});
  LayerObservation seen = observers.take();
  refuse_zero_cache(seen, config_, weights_, layer_);
  if (finishes) seen.linears = take_linears();
  return seen;
}

LayerAdvance LayerwiseForward::advance_layer(const PackedLayer& packed,
                                             const KvQuantization* quantization) {
  const KvBuffers storage = make_storage(quantization);
  run_batches(packed, config_.has_attention(layer_) ? Share::kSecondHalf : Share::kWhole,
              {.storage = &storage, .finishes = true, .compares = true});
  return {saturated(backend_, storage), take_linears()};
}

AttentionComparison LayerwiseForward::compare(const PackedLayer& packed,
                                              std::span<const KvQuantization> candidates) {
  if (!compared_) return {};
  // Inputs of Linears were observed by the passes.
  runner_->observe_linear_inputs({});
  runner_->fold_linear_amax({});
  return compared_->compare(runner_->attention(), packed, candidates);
}

LinearObservation LayerwiseForward::observe_final_norm() {
  KVCAL_CHECK(advanced_layers_ == config_.num_hidden_layers);
  const PackedHeadInput input = pack_head_input(weights_, config_, *group_, type_);
  LinearCollector head(config_, backend_, request_.head_detail(), num_samples_);
  show_linears(&head);
  hidden_->walk(HiddenStates::Access::kRead, [&](size_t index, float* hidden) {
    throw_if_interrupted();
    const SampleBatch& batch = batches_[index];
    batch_sample_ = batch.first_sample;
    runner_->make_head_input(input, hidden, batch.tokens);
  });
  show_linears(nullptr);
  return std::move(head.take().at(0));
}

void LayerwiseForward::request(const ObservationRequest& request) {
  KVCAL_CHECK(layer_ < 0);  // what is prefetched is known by then
  request_ = request;
  linears_ =
      request.linears == LinearDetail::kNone
          ? nullptr
          : std::make_unique<LinearCollector>(config_, backend_, request.linears, num_samples_);
  runner_->show_all_experts(request.all_experts);
  compared_ = request.compared_samples ? std::make_unique<ComparedAttention>(
                                             config_, backend_, *request.compared_samples)
                                       : nullptr;
}

void LayerwiseForward::show_linears(LinearCollector* linears) {
  runner_->fold_linear_amax(
      linears && linears->wants_amax()
          ? [linears](Role role, int64_t index) { return linears->slot(role, index); }
          : AmaxSlotOf{});
  if (!linears) return runner_->observe_linear_inputs(linear_observer_);
  runner_->observe_linear_inputs([this, linears](const LinearInput& input) {
    linears->see(input, batch_sample_);
    if (linear_observer_) linear_observer_(input);
  });
}

std::vector<LinearObservation> LayerwiseForward::take_linears() {
  return linears_ ? linears_->take() : std::vector<LinearObservation>{};
}

void LayerwiseForward::observe_linear_inputs(LinearInputObserver observer) {
  linear_observer_ = std::move(observer);
}

}  // namespace kvcal
