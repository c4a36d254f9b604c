#include "forward/linear_observation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"

namespace kvcal {
namespace {

/// Upper bound of inputs of a layer: two for each expert, two for each stream, and the others.
int64_t most_inputs(const ModelConfig& config) {
  return 32 + 2 * (config.moe.num_experts + config.streams);
}

}  // namespace

LinearCollector::LinearCollector(const ModelConfig& config, Backend& backend, LinearDetail detail,
                                 int64_t num_samples)
    : backend_(backend),
      detail_(detail),
      capacity_(most_inputs(config)),
      num_samples_(num_samples) {
  const auto count = static_cast<size_t>(capacity_);
  if (wants_amax()) {
    amax_ = backend.allocate(count * sizeof(float));
    nonfinite_ = backend.allocate(count * sizeof(uint64_t));
  } else {
    ranges_ = backend.allocate(count * static_cast<size_t>(num_samples) * sizeof(ObservedRange));
    histograms_ = backend.allocate(count * sizeof(MagnitudeHistogram));
  }
  reset(count);
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
  const auto read = [&](const Buffer& buffer, auto out) {
    const auto bytes = std::as_writable_bytes(out);
    backend_.copy_out(buffer.data() + static_cast<size_t>(at.place) * bytes.size(), bytes);
  };
  if (wants_amax()) {
    read(amax_, std::span(&seen.amax.value, 1));
    read(nonfinite_, std::span(&seen.nonfinite, 1));
    return seen;
  }
  seen.ranges.resize(static_cast<size_t>(num_samples_));
  read(ranges_, std::span(seen.ranges));
  read(histograms_, std::span(seen.histogram.counts));
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

}  // namespace kvcal
