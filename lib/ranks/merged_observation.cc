#include "ranks/merged_observation.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "core/error.h"

namespace kvcal {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr ObservedRange kEmptyRange{.min = kInfinity, .max = -kInfinity, .first_nonfinite = -1};

void add(MagnitudeHistogram& sum, const MagnitudeHistogram& more) {
  for (size_t bin = 0; bin < sum.counts.size(); ++bin) sum.counts[bin] += more.counts[bin];
}

void add(SaturationCounts& sum, const SaturationCounts& more) {
  sum.k += more.k;
  sum.v += more.v;
  sum.q += more.q;
}

/// Puts the ranges [own samples, width] of one rank where they belong in [all samples, width].
void place(std::vector<ObservedRange>& all, std::span<const ObservedRange> own,
           std::span<const size_t> samples, size_t width) {
  if (own.size() != samples.size() * width)
    fail("has ", own.size(), " ranges, expected ", samples.size(), " samples of ", width);
  for (size_t i = 0; i < samples.size(); ++i)
    std::ranges::copy(own.subspan(i * width, width),
                      all.begin() + static_cast<std::ptrdiff_t>(samples[i] * width));
}

/// Of layers that were observed; without heads where they do not attend.
class SideMerger {
 public:
  explicit SideMerger(size_t num_samples) : num_samples_(num_samples) {}

  void add_part(const KvObservation& part, std::span<const size_t> samples) {
    const size_t heads = part.histograms.size();
    if (!has_begun_) {
      all_.histograms.resize(heads);
      all_.ranges.assign(num_samples_ * heads, kEmptyRange);
      has_begun_ = true;
    }
    if (heads != all_.histograms.size())
      fail("has ", heads, " heads, expected ", all_.histograms.size());
    place(all_.ranges, part.ranges, samples, heads);
    for (size_t head = 0; head < heads; ++head) add(all_.histograms[head], part.histograms[head]);
  }
  KvObservation take() { return std::move(all_); }

 private:
  size_t num_samples_;
  bool has_begun_ = false;
  KvObservation all_;
};

class LinearMerger {
 public:
  explicit LinearMerger(size_t num_samples) : num_samples_(num_samples) {}

  void add_part(const LinearObservation& part, std::span<const size_t> samples) {
    const auto [at, is_new] = all_.try_emplace({part.role, part.index});
    LinearObservation& seen = at->second;
    if (is_new) {
      seen.role = part.role;
      seen.index = part.index;
      if (!part.ranges.empty()) seen.ranges.assign(num_samples_, kEmptyRange);
    }
    if (seen.ranges.empty() != part.ranges.empty())
      fail("shows samples of a Linear's input where another rank does not");
    if (!part.ranges.empty()) place(seen.ranges, part.ranges, samples, 1);
    seen.amax.value = std::max(seen.amax.value, part.amax.value);
    seen.nonfinite += part.nonfinite;
    seen.tokens += part.tokens;
    add(seen.histogram, part.histogram);
  }
  void add_parts(const std::vector<LinearObservation>& parts, std::span<const size_t> samples) {
    for (const LinearObservation& part : parts) add_part(part, samples);
  }
  std::vector<LinearObservation> take() {
    std::vector<LinearObservation> linears;
    for (auto& [place, seen] : all_) linears.push_back(std::move(seen));
    return linears;
  }

 private:
  size_t num_samples_;
  std::map<std::pair<Role, int64_t>, LinearObservation> all_;  ///< in the order of merge_linears
};

/// Calls body with each part there is and the samples of its rank.
template <class Part, class Body>
void for_each_part(std::span<const std::optional<Part>> parts, const SampleAssignment& assignment,
                   const Body& body) {
  KVCAL_CHECK(parts.size() == assignment.samples_of.size());
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const auto& samples = assignment.samples_of[rank];
    in_context("rank " + std::to_string(rank), [&] {
      if (parts[rank].has_value() == samples.empty())
        fail("saw ", parts[rank] ? "something" : "nothing", ", but has ", samples.size(),
             " samples");
      if (parts[rank]) body(*parts[rank], std::span<const size_t>(samples));
    });
  }
}

}  // namespace

LayerObservation merged(std::span<const std::optional<LayerObservation>> parts,
                        const SampleAssignment& assignment) {
  const size_t samples = assignment.num_samples();
  SideMerger k(samples), v(samples), q(samples);
  LinearMerger linears(samples);
  std::optional<bool> has_queries;
  for_each_part(parts, assignment, [&](const LayerObservation& part, auto own) {
    k.add_part(part.k, own);
    v.add_part(part.v, own);
    if (part.q) q.add_part(*part.q, own);
    if (has_queries.value_or(part.q.has_value()) != part.q.has_value())
      fail("has queries where another rank has none, or none where it has");
    has_queries = part.q.has_value();
    linears.add_parts(part.linears, own);
  });
  LayerObservation all{.k = k.take(), .v = v.take()};
  if (has_queries.value_or(false)) all.q = q.take();
  all.linears = linears.take();
  return all;
}

LayerAdvance merged(std::span<const std::optional<LayerAdvance>> parts,
                    const SampleAssignment& assignment) {
  LayerAdvance all;
  LinearMerger linears(assignment.num_samples());
  for_each_part(parts, assignment, [&](const LayerAdvance& part, auto own) {
    add(all.saturated, part.saturated);
    linears.add_parts(part.linears, own);
  });
  all.linears = linears.take();
  return all;
}

LinearObservation merged(std::span<const std::optional<LinearObservation>> parts,
                         const SampleAssignment& assignment) {
  LinearMerger linears(assignment.num_samples());
  for_each_part(parts, assignment,
                [&](const LinearObservation& part, auto own) { linears.add_part(part, own); });
  std::vector<LinearObservation> all = linears.take();
  if (all.size() != 1) fail("the ranks saw ", all.size(), " inputs, expected the same one");
  return std::move(all[0]);
}

SaturationCounts merged(std::span<const std::optional<SaturationCounts>> parts,
                        const SampleAssignment& assignment) {
  SaturationCounts all;
  for_each_part(parts, assignment, [&](const SaturationCounts& part, auto) { add(all, part); });
  return all;
}

}  // namespace kvcal
