#include "forward/merged_observation.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "core/error.h"

namespace kvcal {
namespace {

void add(MagnitudeHistogram& sum, const MagnitudeHistogram& more) {
  for (size_t bin = 0; bin < sum.counts.size(); ++bin) sum.counts[bin] += more.counts[bin];
}

void add(SaturationCounts& sum, const SaturationCounts& more) {
  sum.k += more.k;
  sum.v += more.v;
  sum.q += more.q;
}

/// Copies the ranges [own samples, width] of one part to their places in [all samples, width].
void place(std::vector<ObservedRange>& all, std::span<const ObservedRange> own,
           std::span<const size_t> samples, size_t width) {
  if (own.size() != samples.size() * width)
    fail("has ", own.size(), " ranges, expected ", samples.size(), " samples of ", width);
  for (size_t i = 0; i < samples.size(); ++i)
    std::ranges::copy(own.subspan(i * width, width),
                      all.begin() + static_cast<std::ptrdiff_t>(samples[i] * width));
}

/// Observed layers; without heads where the layer has no attention.
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
    if (all_.positions.size() < part.positions.size()) all_.positions.resize(part.positions.size());
    for (size_t bucket = 0; bucket < part.positions.size(); ++bucket)
      all_.positions[bucket].fold(part.positions[bucket]);
  }
  KvObservation take() { return std::move(all_); }

 private:
  size_t num_samples_;
  bool has_begun_ = false;
  KvObservation all_;
};

/// Folds magnitudes of the same channels into all, which is empty before the first part.
void fold_channels(const std::vector<float>& part, std::vector<float>& all) {
  if (all.empty()) all.resize(part.size(), 0.0f);
  if (part.size() != all.size()) fail("has ", part.size(), " channels, expected ", all.size());
  for (size_t i = 0; i < part.size(); ++i) all[i] = std::max(all[i], part[i]);
}

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
      fail("shows samples of a Linear's input where another part does not");
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
  std::map<std::pair<Role, int64_t>, LinearObservation> all_;  ///< by role, then index
};

/// Calls body with each existing part and its samples.
template <class Part, class Body>
void for_each_part(std::span<const std::optional<Part>> parts, const SampleParts& samples,
                   const Body& body) {
  KVCAL_CHECK(parts.size() == samples.samples_of.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto& own = samples.samples_of[i];
    in_context(std::string(samples.name) + " " + std::to_string(i), [&] {
      if (parts[i].has_value() == own.empty())
        fail("saw ", parts[i] ? "something" : "nothing", ", but has ", own.size(), " samples");
      if (parts[i]) body(*parts[i], std::span<const size_t>(own));
    });
  }
}

size_t count_of(const SampleParts& samples) {
  size_t count = 0;
  for (const auto& own : samples.samples_of) count += own.size();
  return count;
}

}  // namespace

SampleParts SampleParts::behind_each_other(std::span<const size_t> counts) {
  SampleParts parts;
  size_t begin = 0;
  for (const size_t count : counts) {
    std::vector<size_t>& own = parts.samples_of.emplace_back(count);
    std::iota(own.begin(), own.end(), begin);
    begin += count;
  }
  return parts;
}

LayerObservation merged(std::span<const std::optional<LayerObservation>> parts,
                        const SampleParts& samples) {
  const size_t count = count_of(samples);
  SideMerger k(count), v(count), q(count);
  LinearMerger linears(count);
  std::optional<ChannelAmax> channels;
  std::vector<KeyRows> key_rows;
  std::optional<bool> has_queries;
  for_each_part(parts, samples, [&](const LayerObservation& part, auto own) {
    k.add_part(part.k, own);
    v.add_part(part.v, own);
    if (part.q) q.add_part(*part.q, own);
    if (has_queries.value_or(part.q.has_value()) != part.q.has_value())
      fail("has queries where another part has none, or none where it has");
    has_queries = part.q.has_value();
    if (part.channels) {
      if (!channels) channels.emplace();
      fold_channels(part.channels->k, channels->k);
      fold_channels(part.channels->v, channels->v);
    }
    if (!part.key_rows.empty()) {
      if (part.key_rows.size() != own.size())
        fail("has rows of K of ", part.key_rows.size(), " samples, expected ", own.size());
      key_rows.resize(count);
      for (size_t i = 0; i < own.size(); ++i) key_rows[own[i]] = part.key_rows[i];
    }
    linears.add_parts(part.linears, own);
  });
  LayerObservation all{.k = k.take(), .v = v.take()};
  if (has_queries.value_or(false)) all.q = q.take();
  all.channels = std::move(channels);
  all.key_rows = std::move(key_rows);
  all.linears = linears.take();
  return all;
}

LayerAdvance merged(std::span<const std::optional<LayerAdvance>> parts,
                    const SampleParts& samples) {
  LayerAdvance all;
  LinearMerger linears(count_of(samples));
  for_each_part(parts, samples, [&](const LayerAdvance& part, auto own) {
    add(all.saturated, part.saturated);
    linears.add_parts(part.linears, own);
  });
  all.linears = linears.take();
  return all;
}

LinearObservation merged(std::span<const std::optional<LinearObservation>> parts,
                         const SampleParts& samples) {
  LinearMerger linears(count_of(samples));
  for_each_part(parts, samples,
                [&](const LinearObservation& part, auto own) { linears.add_part(part, own); });
  std::vector<LinearObservation> all = linears.take();
  if (all.size() != 1) fail("the parts saw ", all.size(), " inputs, expected the same one");
  return std::move(all[0]);
}

SaturationCounts merged(std::span<const std::optional<SaturationCounts>> parts,
                        const SampleParts& samples) {
  SaturationCounts all;
  for_each_part(parts, samples, [&](const SaturationCounts& part, auto) { add(all, part); });
  return all;
}

AttentionComparison merged(std::span<const std::optional<AttentionComparison>> parts,
                           const SampleParts& samples) {
  // The compared samples are the first of all, and so are those of each part.
  std::map<size_t, std::vector<std::vector<AttentionError>>> by_sample;
  for_each_part(parts, samples, [&](const AttentionComparison& part, auto own) {
    if (part.samples.size() > own.size())
      fail("compared ", part.samples.size(), " samples, but has ", own.size());
    for (size_t i = 0; i < part.samples.size(); ++i) by_sample[own[i]] = part.samples[i];
  });
  AttentionComparison all;
  for (auto& [sample, errors] : by_sample) {
    if (sample != all.samples.size())
      fail("no part compared sample ", all.samples.size(), ", expected the first ones");
    all.samples.push_back(std::move(errors));
  }
  return all;
}

LayerResult merged(std::vector<std::optional<LayerResult>> parts, const SampleParts& samples) {
  const auto first = std::ranges::find_if(parts, [](const auto& part) { return part.has_value(); });
  KVCAL_CHECK(first != parts.end());
  const auto merged_as = [&]<class Result>(const Result&) -> LayerResult {
    std::vector<std::optional<Result>> typed(parts.size());
    for (size_t i = 0; i < parts.size(); ++i)
      if (parts[i]) typed[i] = std::get<Result>(std::move(*parts[i]));
    return merged(std::span<const std::optional<Result>>(typed), samples);
  };
  return std::visit(merged_as, **first);
}

}  // namespace kvcal
