#include "forward/layer_observers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string_view>

#include "core/error.h"
#include "family/architecture.h"
#include "quant/observations.h"

namespace kvcal {
namespace {

/// Upper bound of inputs of a layer: two for each expert, shared or not, two for each stream, and
/// the others.
int64_t most_inputs(const ModelConfig& config) {
  return 32 + 2 * (config.moe.num_experts + config.moe.scored_shared + config.streams);
}

bool is_zero(const KvObservation& seen) {
  const auto is_empty = [](const ObservedRange& range) { return range.min > range.max; };
  const auto holds_zeros = [&](const ObservedRange& range) {
    return range.first_nonfinite < 0 &&
           (is_empty(range) || (range.min == 0.0f && range.max == 0.0f));
  };
  return std::ranges::all_of(seen.ranges, holds_zeros) &&
         !std::ranges::all_of(seen.ranges, is_empty);
}

/// Whether the role's weights are all zero, as the forward pass applies them.
bool has_zeros_alone(const ModelConfig& config, const Weights& weights, int64_t layer, Role role) {
  if (!weights.has(layer, role)) return false;
  const bool is_norm = role == Role::kInputNorm || role == Role::kKeyNorm;
  const float zero = is_norm && config.architecture->norm_adds_one ? -1.0f : 0.0f;
  const WeightRows rows = weights.rows(layer, role);
  return std::ranges::all_of(rows.parts, [&](const TensorView& part) {
    return std::ranges::all_of(as_float32(std::span(&part, 1)),
                               [&](float value) { return value == zero; });
  });
}

void refuse(std::string_view side, const KvObservation& seen, std::span<const Role> roles,
            const ModelConfig& config, const Weights& weights, int64_t layer) {
  if (!is_zero(seen)) return;
  for (const Role role : roles)
    if (has_zeros_alone(config, weights, layer, role)) return;
  fail(
      side, " of layer ", layer,
      " is zero in every head of every record, and its weights are not: expected values from which "
      "a scale can be made; a norm before it may have numbers beyond the range of float32, or an "
      "earlier layer makes zeros");
}

}  // namespace

LinearCollector::LinearCollector(const ModelConfig& config, Backend& backend, LinearDetail detail,
                                 int64_t num_samples)
    : backend_(backend),
      detail_(detail),
      capacity_(most_inputs(config)),
      num_samples_(num_samples) {
  if (wants_amax()) {
    amax_ = allocate<float>(backend, capacity_);
    nonfinite_ = allocate<uint64_t>(backend, capacity_);
  } else {
    ranges_ = allocate<ObservedRange>(backend, capacity_ * num_samples);
    histograms_ = allocate<MagnitudeHistogram>(backend, capacity_);
  }
  reset(static_cast<size_t>(capacity_));
}

uint64_t LinearCollector::bytes(const ModelConfig& config, LinearDetail detail,
                                size_t num_samples) {
  if (detail == LinearDetail::kNone) return 0;
  const size_t each = detail == LinearDetail::kAmax
                          ? sizeof(float) + sizeof(uint64_t)
                          : num_samples * sizeof(ObservedRange) + sizeof(MagnitudeHistogram);
  return static_cast<uint64_t>(most_inputs(config)) * (2 * each + sizeof(LinearObservation));
}

LinearCollector::Place& LinearCollector::place_of(Role role, int64_t index) {
  const auto next = static_cast<int64_t>(places_.size());
  Place& at = places_.try_emplace({role, index}, Place{.place = next}).first->second;
  KVCAL_CHECK(at.place < capacity_);
  return at;
}

AmaxSlot LinearCollector::slot(Role role, int64_t index) {
  const int64_t at = place_of(role, index).place;
  return {.amax = amax_.as<float>() + at, .nonfinite = nonfinite_.as<uint64_t>() + at};
}

void LinearCollector::see(const LinearInput& input, int64_t first_sample) {
  Place& at = place_of(input.role, input.index);
  at.tokens += static_cast<uint64_t>(input.rows);
  at.values += static_cast<uint64_t>(input.rows * input.width);
  if (wants_amax()) return;
  KVCAL_CHECK(first_sample + std::ssize(input.segments) <= num_samples_);
  backend_.observe_rows(
      {.x = input.x,
       .type = input.type,
       .rows = input.rows,
       .width = input.width,
       .segments = input.segments,
       .ranges = ranges_.as<ObservedRange>() + at.place * num_samples_ + first_sample,
       .histogram = histograms_.as<uint64_t>() + at.place * MagnitudeHistogram::kBins});
}

void LinearCollector::reset(size_t places) {
  if (places == 0) return;
  if (wants_amax()) {
    backend_.fill_zero(amax_.data(), places * sizeof(float));
    backend_.fill_zero(nonfinite_.data(), places * sizeof(uint64_t));
    return;
  }
  const std::vector<ObservedRange> empty(places * static_cast<size_t>(num_samples_), kEmptyRange);
  backend_.copy_in(std::as_bytes(std::span(empty)), ranges_.data());
  backend_.fill_zero(histograms_.data(), places * sizeof(MagnitudeHistogram));
}

LinearObservation LinearCollector::observation(const std::pair<Role, int64_t>& key,
                                               const Place& at) const {
  LinearObservation seen{.role = key.first, .index = key.second, .tokens = at.tokens};
  if (wants_amax()) {
    download(backend_, amax_.as<float>() + at.place, {&seen.amax.value, 1});
    download(backend_, nonfinite_.as<uint64_t>() + at.place, {&seen.nonfinite, 1});
    return seen;
  }
  seen.ranges =
      downloaded(backend_, ranges_.as<ObservedRange>() + at.place * num_samples_, num_samples_);
  download(backend_, histograms_.as<MagnitudeHistogram>() + at.place, {&seen.histogram, 1});
  for (const ObservedRange& range : seen.ranges)
    if (range.min <= range.max)
      seen.amax.value = std::max({seen.amax.value, std::fabs(range.min), std::fabs(range.max)});
  const auto& counts = seen.histogram.counts;
  seen.nonfinite = at.values - std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  return seen;
}

std::vector<LinearObservation> LinearCollector::take() {
  std::vector<LinearObservation> result;
  for (const auto& [key, at] : places_) result.push_back(observation(key, at));
  reset(places_.size());
  places_.clear();
  return result;
}

void PositionPieces::add_batch(const TokenBatch& batch) {
  firsts_.push_back(segments_.size());
  for (size_t i = 0; i < batch.segments.size(); ++i) {
    const Segment& sample = batch.segments[i];
    int64_t position = 0;
    if (const EmbeddedTokens* images = batch.embedded_of(i))
      for (const EmbeddedRun& run : runs_of(*images)) {
        has_images_ = true;
        add_piece(sample, position, run.position, /*is_image=*/false);
        position = run.position + run.count;
        add_piece(sample, run.position, position, /*is_image=*/true);
      }
    add_piece(sample, position, sample.q_count, /*is_image=*/false);
    ++num_samples_;
  }
}

void PositionPieces::add_piece(const Segment& sample, int64_t position, int64_t end,
                               bool is_image) {
  while (position < end) {
    const size_t bucket = position_bucket(position);
    const int64_t count = std::min(first_position(bucket + 1), end) - position;
    const int64_t row = sample.q_begin + position;
    segments_.push_back({.q_begin = row, .q_count = count, .kv_begin = row, .kv_count = count});
    pieces_.push_back(
        {.sample = num_samples_, .bucket = bucket, .position = position, .is_image = is_image});
    position += count;
  }
}

std::span<const Segment> PositionPieces::segments(size_t batch) const {
  const size_t end = batch + 1 < firsts_.size() ? firsts_[batch + 1] : segments_.size();
  return std::span(segments_).subspan(firsts_[batch], end - firsts_[batch]);
}

void PositionPieces::fold(std::span<const ObservedRange> pieces, size_t heads,
                          KvObservation& seen) const {
  KVCAL_CHECK(pieces.size() == pieces_.size() * heads);
  seen.ranges.assign(num_samples_ * heads, kEmptyRange);
  if (has_images_ && heads > 0) seen.kinds.resize(2);
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const Piece& piece = pieces_[i];
    if (heads > 0 && seen.positions.size() <= piece.bucket) seen.positions.resize(piece.bucket + 1);
    for (size_t head = 0; head < heads; ++head) {
      const ObservedRange& part = pieces[i * heads + head];
      ObservedRange& whole = seen.ranges[piece.sample * heads + head];
      whole.min = std::min(whole.min, part.min);
      whole.max = std::max(whole.max, part.max);
      if (whole.first_nonfinite < 0 && part.first_nonfinite >= 0)
        whole.first_nonfinite = static_cast<int32_t>(piece.position) + part.first_nonfinite;
      seen.positions[piece.bucket].fold({part.min, part.max});
      if (has_images_) seen.kinds[piece.is_image ? 1 : 0].fold({part.min, part.max});
    }
  }
}

ChannelObserver::ChannelObserver(Backend& backend, const LayerCache& cache, int64_t key_rows)
    : backend_(backend), rows_of_sample_(key_rows) {
  seen_.k.resize(static_cast<size_t>(cache.heads * cache.k_dim), 0.0f);
  seen_.v.resize(static_cast<size_t>(cache.heads * cache.v_dim), 0.0f);
}

void ChannelObserver::see_keys(const HeadsView& k, std::span<const Segment> segments) {
  if (rows_of_sample_ == 0) return;
  for (const Segment& sample : segments)
    keep_rows(k.data, k.row_stride, sample, key_rows_.emplace_back().before);
}

void ChannelObserver::see(float* k, float* v, int64_t rows, std::span<const Segment> segments) {
  if (rows_of_sample_ > 0)
    for (size_t i = 0; i < segments.size(); ++i)
      keep_rows(k, std::ssize(seen_.k), segments[i],
                key_rows_[key_rows_.size() - segments.size() + i].cached);
  see_side(k, rows, segments, seen_.k);
  see_side(v, rows, segments, seen_.v);
}

// A row of each of so many equal parts, at places in them that follow the golden ratio: with the
// same distance everywhere, pairs that turn as fast would all show the same angle.
void ChannelObserver::keep_rows(const float* x, int64_t stride, const Segment& sample,
                                std::vector<float>& rows) {
  constexpr double kGolden = 0.6180339887498949;
  const int64_t length = sample.q_count, count = std::min(rows_of_sample_, length);
  const size_t width = seen_.k.size();
  rows.resize(static_cast<size_t>(count) * width);
  for (int64_t i = 0; i < count; ++i) {
    const double share = std::fmod(static_cast<double>(i + 1) * kGolden, 1.0);
    const auto token =
        static_cast<int64_t>((static_cast<double>(i) + share) * static_cast<double>(length) /
                             static_cast<double>(count));
    const float* row = x + (sample.q_begin + std::min(token, length - 1)) * stride;
    download(backend_, row, std::span(rows).subspan(static_cast<size_t>(i) * width, width));
  }
}

// A channel is observed as a head of one dimension.
void ChannelObserver::see_side(float* x, int64_t rows, std::span<const Segment> segments,
                               std::vector<float>& magnitudes) {
  const int64_t channels = std::ssize(magnitudes), count = std::ssize(segments) * channels;
  if (count == 0) return;
  backend_.observe_kv({.x = contiguous(x, rows, channels, 1),
                       .segments = segments,
                       .ranges = grown<ObservedRange>(backend_, ranges_, count)});
  const auto ranges = downloaded(backend_, ranges_.as<ObservedRange>(), count);
  for (size_t i = 0; i < ranges.size(); ++i) {
    float& most = magnitudes[i % magnitudes.size()];
    if (ranges[i].min <= ranges[i].max)
      most = std::max({most, std::fabs(ranges[i].min), std::fabs(ranges[i].max)});
  }
}

ChannelRanges::ChannelRanges(Backend& backend, const LayerCache& cache, int64_t most_tokens)
    : backend_(backend),
      k_channels_(cache.heads * cache.k_dim),
      v_channels_(cache.heads * cache.v_dim) {
  rows_.reserve(cache, most_tokens, backend);
}

void ChannelRanges::see(EnterCacheArgs& entry, std::span<const Segment> samples) {
  EnterCacheArgs own{.k = {.x = entry.k.x}, .v = {.x = entry.v.x}, .rope = entry.rope};
  rows_.join(own);
  backend_.enter_cache(own);
  if (!backend_.leaves_entered_heads()) entry.rope = {};
  see_side(rows_.k, k_channels_, entry.k.x.tokens, samples, k_);
  see_side(rows_.v, v_channels_, entry.v.x.tokens, samples, v_);
}

// A channel is observed as a head of one dimension.
void ChannelRanges::see_side(const KvBuffers::Side& side, int64_t channels, int64_t rows,
                             std::span<const Segment> samples, std::vector<ObservedRange>& ranges) {
  const int64_t count = std::ssize(samples) * channels;
  if (count == 0) return;
  backend_.observe_kv({.x = contiguous(side.rows.as<float>(), rows, channels, 1),
                       .segments = samples,
                       .ranges = grown<ObservedRange>(backend_, scratch_, count)});
  const auto seen = downloaded(backend_, scratch_.as<ObservedRange>(), count);
  ranges.insert(ranges.end(), seen.begin(), seen.end());
}

void ChannelRanges::see_none(size_t samples) {
  k_.resize(k_.size() + samples * static_cast<size_t>(k_channels_), kEmptyRange);
  v_.resize(v_.size() + samples * static_cast<size_t>(v_channels_), kEmptyRange);
}

void ChannelRanges::take(LayerObservation& seen) {
  seen.k.channels = std::move(k_);
  seen.v.channels = std::move(v_);
}

PassObservers::Side::Side(Backend& backend, size_t rows, int64_t num_heads)
    : heads(static_cast<size_t>(num_heads)),
      ranges(allocate<ObservedRange>(backend, static_cast<int64_t>(rows) * num_heads)),
      histogram(zeros<MagnitudeHistogram>(backend, num_heads)) {}

KvObservation PassObservers::Side::take(Backend& backend) const {
  return {downloaded(backend, ranges.as<ObservedRange>(), count_of<ObservedRange>(ranges)),
          downloaded(backend, histogram.as<MagnitudeHistogram>(), static_cast<int64_t>(heads))};
}

PassObservers::PassObservers(Backend& backend, const PositionPieces& pieces, int64_t samples,
                             int64_t heads, int64_t query_heads)
    : backend_(backend),
      pieces_(pieces),
      k_(backend, pieces.count(), heads),
      v_(backend, pieces.count(), heads) {
  if (query_heads > 0) q_.emplace(backend, static_cast<size_t>(samples), query_heads);
}

void PassObservers::join(EnterCacheArgs& args, size_t batch) const {
  args.segments = pieces_.segments(batch);
  args.k.ranges = k_.ranges_from(pieces_.first(batch));
  args.k.histogram = k_.histogram.as<uint64_t>();
  args.v.ranges = v_.ranges_from(pieces_.first(batch));
  args.v.histogram = v_.histogram.as<uint64_t>();
}

ObservedQueries PassObservers::queries(int64_t first_sample) const {
  if (!q_) return {};
  return {q_->ranges_from(static_cast<size_t>(first_sample)), q_->histogram.as<uint64_t>()};
}

void PassObservers::clear(int64_t first_sample, size_t samples) {
  if (channels) channels->see_none(samples);
  if (channel_ranges) channel_ranges->see_none(samples);
  if (!q_) return;
  const std::vector<ObservedRange> none(q_->heads * samples, kEmptyRange);
  backend_.copy_in(
      std::as_bytes(std::span(none)),
      reinterpret_cast<std::byte*>(q_->ranges_from(static_cast<size_t>(first_sample))));
}

LayerObservation PassObservers::take() {
  const auto folded = [&](const Side& side) {
    KvObservation seen = side.take(backend_);
    pieces_.fold(std::exchange(seen.ranges, {}), side.heads, seen);
    return seen;
  };
  LayerObservation seen{.k = folded(k_), .v = folded(v_)};
  if (q_) seen.q = q_->take(backend_);
  if (channel_ranges) channel_ranges->take(seen);
  if (channels) {
    seen.key_rows = channels->take_key_rows();
    seen.channels = channels->take();
  }
  return seen;
}

void refuse_zero_cache(const LayerObservation& seen, const ModelConfig& config,
                       const Weights& weights, int64_t layer) {
  if (!config.has_own_cache(layer)) return;
  constexpr std::array kKeyRoles{Role::kInputNorm, Role::kKey, Role::kKeyNorm};
  constexpr std::array kValueRoles{Role::kInputNorm, Role::kValue};
  constexpr std::array kLatentRoles{Role::kInputNorm, Role::kLatent, Role::kLatentNorm};
  const bool is_latent = config.architecture->has_latent_attention;
  const bool has_value = config.layer(layer).has_value_projection;
  const std::span<const Role> keys = is_latent ? std::span<const Role>(kLatentRoles) : kKeyRoles;
  const std::span<const Role> values = is_latent   ? std::span<const Role>(kLatentRoles)
                                       : has_value ? std::span<const Role>(kValueRoles)
                                                   : std::span<const Role>(kKeyRoles).first(2);
  refuse("K", seen.k, keys, config, weights, layer);
  if (config.cache(layer).v_dim > 0) refuse("V", seen.v, values, config, weights, layer);
}

}  // namespace kvcal
