#include "forward/observation_bytes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>
#include <variant>

#include "core/byte_stream.h"
#include "core/checked.h"
#include "core/error.h"
#include "quant/position_buckets.h"

namespace kvcal {
namespace {

constexpr uint32_t kMagic = 0x624f564b;  // "KVOb"
constexpr uint16_t kVersion = 4;

constexpr uint64_t kRangeBytes = 2 * sizeof(float) + sizeof(int32_t);
constexpr uint64_t kLeastHistogramBytes = 2 * sizeof(uint16_t);
constexpr uint64_t kErrorBytes = 3 * sizeof(double) + sizeof(int64_t);
constexpr uint64_t kLeastLinearBytes = 1 + 8 + 4 + 8 + 8 + 8 + kLeastHistogramBytes;

void put(ByteWriter& out, const std::vector<ObservedRange>& ranges) {
  out.put(static_cast<uint64_t>(ranges.size()));
  for (const ObservedRange& range : ranges) {
    out.put(range.min);
    out.put(range.max);
    out.put(range.first_nonfinite);
  }
}

/// Writes a histogram compactly, since most bins are zero: the first nonzero bin, the number up to
/// the last, and these bins.
void put(ByteWriter& out, const MagnitudeHistogram& histogram) {
  const auto is_counted = [](uint64_t count) { return count != 0; };
  const auto& counts = histogram.counts;
  const auto first = std::ranges::find_if(counts, is_counted);
  const auto end = std::find_if(counts.rbegin(), counts.rend(), is_counted).base();
  const bool is_empty = first == counts.end();
  const auto begin = is_empty ? counts.begin() : first;
  out.put(static_cast<uint16_t>(begin - counts.begin()));
  out.put(static_cast<uint16_t>(is_empty ? 0 : end - begin));
  if (!is_empty) out.put_bytes(std::as_bytes(std::span(begin, end)));
}

void put(ByteWriter& out, const KvObservation& side) {
  out.put(static_cast<uint64_t>(side.histograms.size()));
  for (const MagnitudeHistogram& histogram : side.histograms) put(out, histogram);
  put(out, side.ranges);
  out.put(static_cast<uint64_t>(side.positions.size()));
  for (const Range& range : side.positions) {
    out.put(range.min);
    out.put(range.max);
  }
}

void put(ByteWriter& out, const std::vector<float>& magnitudes) {
  out.put(static_cast<uint64_t>(magnitudes.size()));
  out.put_bytes(std::as_bytes(std::span(magnitudes)));
}

void put(ByteWriter& out, const LinearObservation& seen) {
  out.put(static_cast<uint8_t>(seen.role));
  out.put(seen.index);
  out.put(seen.amax.value);
  out.put(seen.nonfinite);
  out.put(seen.tokens);
  put(out, seen.histogram);
  put(out, seen.ranges);
}

void put(ByteWriter& out, const std::vector<LinearObservation>& linears) {
  out.put(static_cast<uint64_t>(linears.size()));
  for (const LinearObservation& one : linears) put(out, one);
}

void put(ByteWriter& out, const SaturationCounts& counts) {
  out.put(counts.k);
  out.put(counts.v);
  out.put(counts.q);
}

void put(ByteWriter& out, const LayerObservation& seen) {
  put(out, seen.k);
  put(out, seen.v);
  out.put(static_cast<uint8_t>(seen.q ? 1 : 0));
  if (seen.q) put(out, *seen.q);
  out.put(static_cast<uint8_t>(seen.channels ? 1 : 0));
  if (seen.channels) {
    put(out, seen.channels->k);
    put(out, seen.channels->v);
  }
  out.put(static_cast<uint64_t>(seen.key_rows.size()));
  for (const KeyRows& rows : seen.key_rows) {
    put(out, rows.before);
    put(out, rows.cached);
  }
  put(out, seen.linears);
}

void put(ByteWriter& out, const LayerAdvance& advance) {
  put(out, advance.saturated);
  put(out, advance.linears);
}

void put(ByteWriter& out, const AttentionComparison& comparison) {
  const auto& samples = comparison.samples;
  const size_t candidates = samples.empty() ? 0 : samples[0].size();
  const size_t heads = candidates == 0 ? 0 : samples[0][0].size();
  for (const size_t count :
       {samples.size(), candidates, heads, samples.size() * candidates * heads})
    out.put(static_cast<uint64_t>(count));
  for (const auto& of_sample : samples)
    for (const auto& of_candidate : of_sample)
      for (const AttentionError& error : of_candidate) {
        out.put(error.error);
        out.put(error.output);
        out.put(error.kl);
        out.put(error.queries);
      }
}

/// Whether min and max are extremes of finite values, or of none.
bool is_range(float min, float max) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (min == kInfinity && max == -kInfinity) return true;
  return std::isfinite(min) && std::isfinite(max) && min <= max;
}

std::vector<ObservedRange> ranges_from(ByteReader& in) {
  std::vector<ObservedRange> ranges(in.get_count(kRangeBytes));
  for (ObservedRange& range : ranges) {
    const size_t at = in.offset();
    range.min = in.get<float>();
    range.max = in.get<float>();
    range.first_nonfinite = in.get<int32_t>();
    if (!is_range(range.min, range.max) || range.first_nonfinite < -1)
      fail("range at offset ", at, " is ", range.min, " to ", range.max,
           ", first not finite at token ", range.first_nonfinite,
           ", expected finite extremes or none");
  }
  return ranges;
}

std::vector<Range> positions_from(ByteReader& in) {
  const size_t begin = in.offset();
  std::vector<Range> positions(in.get_count(2 * sizeof(float)));
  if (positions.size() > kMostPositionBuckets)
    fail("observation at offset ", begin, " has ", positions.size(),
         " buckets of positions, expected at most ", kMostPositionBuckets);
  for (Range& range : positions) {
    const size_t at = in.offset();
    range.min = in.get<float>();
    range.max = in.get<float>();
    if (!is_range(range.min, range.max))
      fail("range of positions at offset ", at, " is ", range.min, " to ", range.max,
           ", expected finite extremes or none");
  }
  return positions;
}

MagnitudeHistogram histogram_from(ByteReader& in) {
  const size_t at = in.offset();
  const auto begin = in.get<uint16_t>(), count = in.get<uint16_t>();
  if (begin + count > MagnitudeHistogram::kBins)
    fail("histogram at offset ", at, " has bins ", begin, " to ", begin + count,
         ", expected up to ", MagnitudeHistogram::kBins);
  MagnitudeHistogram histogram;
  uint64_t all = 0;
  for (size_t bin = begin; bin < size_t{begin} + count; ++bin) {
    histogram.counts[bin] = in.get<uint64_t>();
    all = checked_add(all, histogram.counts[bin]);
  }
  const bool is_trimmed =
      count == 0 ? begin == 0
                 : histogram.counts[begin] != 0 && histogram.counts[begin + count - 1u] != 0;
  if (!is_trimmed) fail("histogram at offset ", at, " begins or ends with empty bins");
  return histogram;
}

KvObservation side_from(ByteReader& in) {
  KvObservation side;
  const size_t at = in.offset();
  const uint64_t heads = in.get_count(kLeastHistogramBytes);
  for (uint64_t head = 0; head < heads; ++head) side.histograms.push_back(histogram_from(in));
  side.ranges = ranges_from(in);
  if (heads == 0 ? !side.ranges.empty() : side.ranges.size() % heads != 0)
    fail("observation at offset ", at, " has ", side.ranges.size(), " ranges of ", heads,
         " heads, expected one of each head in each sample");
  side.positions = positions_from(in);
  return side;
}

std::vector<float> numbers_from(ByteReader& in) {
  std::vector<float> numbers(in.get_count(sizeof(float)));
  for (float& number : numbers) number = in.get<float>();
  return numbers;
}

std::vector<KeyRows> key_rows_from(ByteReader& in) {
  std::vector<KeyRows> samples(in.get_count(2 * sizeof(uint64_t)));
  for (KeyRows& rows : samples) {
    rows = {.before = numbers_from(in), .cached = numbers_from(in)};
    if (rows.before.size() != rows.cached.size())
      fail("has ", rows.before.size(), " numbers of K without RoPE and ", rows.cached.size(),
           " with it, expected the same");
  }
  return samples;
}

std::vector<float> magnitudes_from(ByteReader& in) {
  std::vector<float> magnitudes(in.get_count(sizeof(float)));
  for (float& magnitude : magnitudes) {
    const size_t at = in.offset();
    magnitude = in.get<float>();
    if (!std::isfinite(magnitude) || magnitude < 0.0f)
      fail("magnitude at offset ", at, " is ", magnitude, ", expected a finite one, not below 0");
  }
  return magnitudes;
}

/// Whether an optional part follows.
bool flag_from(ByteReader& in, const char* part) {
  const auto flag = in.get<uint8_t>();
  if (flag > 1) fail("says ", int{flag}, " of ", part, ", expected 0 or 1");
  return flag == 1;
}

size_t samples_of(const KvObservation& side) {
  return side.histograms.empty() ? 0 : side.ranges.size() / side.histograms.size();
}

LinearObservation linear_from(ByteReader& in) {
  const size_t at = in.offset();
  LinearObservation seen;
  const auto role = in.get<uint8_t>();
  seen.role = static_cast<Role>(role);
  seen.index = in.get<int64_t>();
  seen.amax.value = in.get<float>();
  seen.nonfinite = in.get<uint64_t>();
  seen.tokens = in.get<uint64_t>();
  if (role >= role_rows().size() || seen.index < 0 || !std::isfinite(seen.amax.value) ||
      seen.amax.value < 0.0f)
    fail("Linear at offset ", at, " has role ", int{role}, ", index ", seen.index, ", amax ",
         seen.amax.value, ", expected a role of this version, and neither below zero");
  seen.histogram = histogram_from(in);
  seen.ranges = ranges_from(in);
  return seen;
}

std::vector<LinearObservation> linears_from(ByteReader& in) {
  const auto place = [](const LinearObservation& one) { return std::pair(one.role, one.index); };
  std::vector<LinearObservation> linears;
  const uint64_t count = in.get_count(kLeastLinearBytes);
  for (uint64_t i = 0; i < count; ++i) {
    const size_t at = in.offset();
    linears.push_back(linear_from(in));
    if (i == 0) continue;
    const LinearObservation &before = linears[i - 1], &last = linears[i];
    if (place(before) >= place(last) || before.ranges.size() != last.ranges.size())
      fail("Linear at offset ", at, " comes after role ", int(before.role), ", index ",
           before.index, " of ", before.ranges.size(), " samples: it has role ", int(last.role),
           ", index ", last.index, " and ", last.ranges.size(), " samples");
  }
  return linears;
}

SaturationCounts counts_from(ByteReader& in) {
  SaturationCounts counts;
  counts.k = in.get<uint64_t>();
  counts.v = in.get<uint64_t>();
  counts.q = in.get<uint64_t>();
  return counts;
}

AttentionError error_from(ByteReader& in) {
  const size_t at = in.offset();
  AttentionError error;
  error.error = in.get<double>();
  error.output = in.get<double>();
  error.kl = in.get<double>();
  error.queries = in.get<int64_t>();
  if (error.queries < 0)
    fail("attention error at offset ", at, " is of ", error.queries, " queries");
  return error;
}

AttentionComparison comparison_from(ByteReader& in) {
  AttentionComparison comparison;
  const auto samples = in.get<uint64_t>(), candidates = in.get<uint64_t>(),
             heads = in.get<uint64_t>();
  const uint64_t errors = in.get_count(kErrorBytes);
  const bool is_none = samples == 0 && candidates == 0 && heads == 0;
  if (checked_mul(checked_mul(samples, candidates), heads) != errors || (errors == 0 && !is_none))
    fail("has ", errors, " attention errors, expected those of ", samples, " samples, ", candidates,
         " candidates and ", heads, " heads");
  for (uint64_t sample = 0; sample < samples; ++sample) {
    auto& of_sample = comparison.samples.emplace_back(candidates);
    for (auto& of_candidate : of_sample)
      for (uint64_t head = 0; head < heads; ++head) of_candidate.push_back(error_from(in));
  }
  return comparison;
}

LayerObservation observation_from(ByteReader& in) {
  LayerObservation seen{.k = side_from(in), .v = side_from(in)};
  if (flag_from(in, "queries")) seen.q = side_from(in);
  if (flag_from(in, "channels"))
    seen.channels = {.k = magnitudes_from(in), .v = magnitudes_from(in)};
  seen.key_rows = key_rows_from(in);
  seen.linears = linears_from(in);
  if (seen.k.histograms.size() != seen.v.histograms.size() ||
      samples_of(seen.k) != samples_of(seen.v) ||
      (seen.q && samples_of(*seen.q) != samples_of(seen.k)))
    fail("has K of ", seen.k.histograms.size(), " heads in ", samples_of(seen.k), " samples, V of ",
         seen.v.histograms.size(), " heads in ", samples_of(seen.v), ", queries in ",
         samples_of(seen.q ? *seen.q : seen.k), ", expected the same");
  return seen;
}

/// Place of a pass's result among the alternatives of LayerResult.
size_t alternative_of(LayerPass pass) {
  switch (pass) {
    case LayerPass::kObserve:
    case LayerPass::kObserveAndAdvanceExact:
      return 0;
    case LayerPass::kAdvance:
    case LayerPass::kAdvanceExact:
    case LayerPass::kAdvanceWithoutAttention:
      return 1;
    case LayerPass::kObserveHead:
      return 2;
    case LayerPass::kCountSaturated:
      return 3;
    case LayerPass::kCompareAttention:
      return 4;
  }
  KVCAL_CHECK(false);
}

LayerResult result_from(size_t alternative, ByteReader& in) {
  switch (alternative) {
    case 0:
      return observation_from(in);
    case 1:
      return LayerAdvance{.saturated = counts_from(in), .linears = linears_from(in)};
    case 2:
      return linear_from(in);
    case 3:
      return counts_from(in);
    default:
      return comparison_from(in);
  }
}

/// Number of an alternative in the bytes.
uint16_t kind_of(size_t alternative) {
  return static_cast<uint16_t>(alternative + 1);
}

}  // namespace

std::vector<std::byte> to_bytes(const LayerResult& result) {
  ByteWriter out;
  out.put(kMagic);
  out.put(kVersion);
  out.put(kind_of(result.index()));
  std::visit([&](const auto& one) { put(out, one); }, result);
  return out.take();
}

LayerResult layer_result_from(LayerPass pass, std::span<const std::byte> bytes) {
  return in_context("observation", [&] {
    ByteReader in(bytes);
    const size_t alternative = alternative_of(pass);
    const auto magic = in.get<uint32_t>();
    const auto version = in.get<uint16_t>(), found = in.get<uint16_t>();
    if (magic != kMagic || version != kVersion || found != kind_of(alternative))
      fail("begins with ", magic, ", version ", version, ", kind ", found, ", expected ", kMagic,
           ", version ", kVersion, ", kind ", kind_of(alternative));
    LayerResult result = result_from(alternative, in);
    in.expect_end();
    return result;
  });
}

}  // namespace kvcal
