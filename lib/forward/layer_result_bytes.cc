#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "core/byte_stream.h"
#include "core/error.h"
#include "core/number.h"
#include "forward/layer_forward.h"
#include "quant/observations.h"

namespace kvcal {
namespace {

constexpr uint32_t kMagic = 0x624f564b;  // "KVOb"
constexpr uint16_t kVersion = 6;

// Least bytes of elements of lists.
constexpr uint64_t kRangeBytes = 2 * sizeof(float) + sizeof(int32_t);
constexpr uint64_t kLeastHistogramBytes = 2 * sizeof(uint16_t);
constexpr uint64_t kErrorBytes = 3 * sizeof(double) + sizeof(int64_t);
constexpr uint64_t kLeastLinearBytes = 1 + 8 + 4 + 8 + 8 + 8 + kLeastHistogramBytes;

/// Whether min and max are extremes of finite values, or of none.
bool is_range(float min, float max) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (min == kInfinity && max == -kInfinity) return true;
  return std::isfinite(min) && std::isfinite(max) && min <= max;
}

size_t samples_of(const KvObservation& side) {
  return side.histograms.empty() ? 0 : side.ranges.size() / side.histograms.size();
}

/// One declaration of the bytes of each struct: writes a value where Io is a ByteWriter; reads it
/// and checks it where Io is a ByteReader.
template <class Io>
class Fields {
 public:
  explicit Fields(Io& io) : io_(io) {}

  void one(LayerObservation& seen) {
    all(seen.k, seen.v);
    optional(seen.q, "queries");
    optional(seen.channels, "channels");
    list(seen.key_rows, 2 * sizeof(uint64_t));
    linears(seen.linears);
    if (kReads && (seen.k.histograms.size() != seen.v.histograms.size() ||
                   samples_of(seen.k) != samples_of(seen.v) ||
                   (seen.q && samples_of(*seen.q) != samples_of(seen.k))))
      fail("has K of ", seen.k.histograms.size(), " heads in ", samples_of(seen.k),
           " samples, V of ", seen.v.histograms.size(), " heads in ", samples_of(seen.v),
           ", queries in ", samples_of(seen.q ? *seen.q : seen.k), ", expected the same");
  }

  void one(LayerAdvance& advance) {
    one(advance.saturated);
    linears(advance.linears);
  }

  void one(SaturationCounts& counts) { all(counts.k, counts.v, counts.q); }

  void one(LinearObservation& seen) {
    const size_t begin = at();
    auto role = static_cast<uint8_t>(seen.role);
    all(role, seen.index, seen.amax.value, seen.nonfinite, seen.tokens);
    seen.role = static_cast<Role>(role);
    if (kReads && (role >= role_rows().size() || seen.index < 0 ||
                   !std::isfinite(seen.amax.value) || seen.amax.value < 0.0f))
      fail("Linear at offset ", begin, " has role ", int{role}, ", index ", seen.index, ", amax ",
           seen.amax.value, ", expected a role of this version, and neither below zero");
    one(seen.histogram);
    list(seen.ranges, kRangeBytes);
  }

  void one(AttentionComparison& comparison) {
    auto& all_samples = comparison.samples;
    uint64_t samples = all_samples.size(), candidates = samples == 0 ? 0 : all_samples[0].size();
    uint64_t heads = candidates == 0 ? 0 : all_samples[0][0].size();
    all(samples, candidates, heads);
    const uint64_t errors = count(samples * candidates * heads, kErrorBytes);
    const bool is_none = samples == 0 && candidates == 0 && heads == 0;
    if (kReads && (checked_mul(checked_mul(samples, candidates), heads) != errors ||
                   (errors == 0 && !is_none)))
      fail("has ", errors, " attention errors, expected those of ", samples, " samples, ",
           candidates, " candidates and ", heads, " heads");
    if (kReads) all_samples.resize(samples);
    for (auto& of_sample : all_samples) {
      if (kReads) of_sample.resize(candidates);
      for (auto& of_candidate : of_sample) each(of_candidate, heads);
    }
  }

 private:
  static constexpr bool kReads = std::is_same_v<Io, ByteReader>;

  size_t at() const {
    if constexpr (kReads) return io_.offset();
    return 0;
  }
  template <class... T>
  void all(T&... values) {
    (one(values), ...);
  }
  template <class T>
  requires std::is_arithmetic_v<T>
  void one(T& value) {
    if constexpr (kReads)
      value = io_.template get<T>();
    else
      io_.put(value);
  }
  /// Number of elements that follow: own where it is written.
  uint64_t count(uint64_t own, uint64_t least_bytes) {
    if constexpr (kReads) return io_.get_count(least_bytes);
    one(own);
    return own;
  }
  template <class T>
  void each(std::vector<T>& values, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      if (kReads) values.emplace_back();
      one(values[i]);
    }
  }
  template <class T>
  void list(std::vector<T>& values, uint64_t least_bytes) {
    each(values, count(values.size(), least_bytes));
  }
  template <class T>
  void optional(std::optional<T>& value, const char* part) {
    uint8_t flag = value ? 1 : 0;
    one(flag);
    if (flag > 1) fail("says ", int{flag}, " of ", part, ", expected 0 or 1");
    if (kReads && flag == 1) value.emplace();
    if (value) one(*value);
  }

  void one(ObservedRange& range) {
    const size_t begin = at();
    all(range.min, range.max, range.first_nonfinite);
    if (kReads && (!is_range(range.min, range.max) || range.first_nonfinite < -1))
      fail("range at offset ", begin, " is ", range.min, " to ", range.max,
           ", first not finite at token ", range.first_nonfinite,
           ", expected finite extremes or none");
  }

  void one(Range& range) {
    const size_t begin = at();
    all(range.min, range.max);
    if (kReads && !is_range(range.min, range.max))
      fail("range at offset ", begin, " is ", range.min, " to ", range.max,
           ", expected finite extremes or none");
  }

  /// Compact, since most bins are zero: the first nonzero bin, the number up to the last, and these
  /// bins.
  void one(MagnitudeHistogram& histogram) {
    const size_t offset = at();
    auto& counts = histogram.counts;
    size_t end = counts.size(), first = 0;
    while (end > 0 && counts[end - 1] == 0) --end;
    while (first < end && counts[first] == 0) ++first;
    auto begin = static_cast<uint16_t>(first), bins = static_cast<uint16_t>(end - first);
    all(begin, bins);
    if (begin + bins > MagnitudeHistogram::kBins)
      fail("histogram at offset ", offset, " has bins ", begin, " to ", begin + bins,
           ", expected up to ", MagnitudeHistogram::kBins);
    uint64_t sum = 0;
    for (size_t bin = begin; bin < size_t{begin} + bins; ++bin) {
      one(counts[bin]);
      if (kReads) sum = checked_add(sum, counts[bin]);
    }
    if (bins == 0 ? begin != 0 : counts[begin] == 0 || counts[begin + bins - 1u] == 0)
      fail("histogram at offset ", offset, " begins or ends with empty bins");
  }

  void one(KvObservation& side) {
    const size_t begin = at();
    const uint64_t heads = count(side.histograms.size(), kLeastHistogramBytes);
    each(side.histograms, heads);
    list(side.ranges, kRangeBytes);
    if (kReads && (heads == 0 ? !side.ranges.empty() : side.ranges.size() % heads != 0))
      fail("observation at offset ", begin, " has ", side.ranges.size(), " ranges of ", heads,
           " heads, expected one of each head in each sample");
    const size_t positions_at = at();
    const uint64_t positions = count(side.positions.size(), 2 * sizeof(float));
    if (kReads && positions > kMostPositionBuckets)
      fail("observation at offset ", positions_at, " has ", positions,
           " buckets of positions, expected at most ", kMostPositionBuckets);
    each(side.positions, positions);
    const size_t kinds_at = at();
    const uint64_t kinds = count(side.kinds.size(), 2 * sizeof(float));
    if (kReads && kinds != 0 && kinds != 2)
      fail("observation at offset ", kinds_at, " has ranges of ", kinds,
           " kinds of tokens, expected those of text and images, or none");
    each(side.kinds, kinds);
    const size_t channels_at = at();
    list(side.channels, kRangeBytes);
    const size_t samples = samples_of(side);
    if (kReads && (samples == 0 ? !side.channels.empty() : side.channels.size() % samples != 0))
      fail("observation at offset ", channels_at, " has ", side.channels.size(),
           " ranges of channels in ", samples, " samples, expected as many in each");
  }

  void one(KeyRows& rows) {
    list(rows.before, sizeof(float));
    list(rows.cached, sizeof(float));
    if (kReads && rows.before.size() != rows.cached.size())
      fail("has ", rows.before.size(), " numbers of K without RoPE and ", rows.cached.size(),
           " with it, expected the same");
  }

  void one(ChannelAmax& channels) {
    for (std::vector<float>* side : {&channels.k, &channels.v}) {
      const uint64_t channel_count = count(side->size(), sizeof(float));
      for (uint64_t i = 0; i < channel_count; ++i) {
        const size_t begin = at();
        if (kReads) side->emplace_back();
        float& magnitude = (*side)[i];
        one(magnitude);
        if (kReads && (!std::isfinite(magnitude) || magnitude < 0.0f))
          fail("magnitude at offset ", begin, " is ", magnitude,
               ", expected a finite one, not below 0");
      }
    }
  }

  void linears(std::vector<LinearObservation>& all_linears) {
    const auto place = [](const LinearObservation& one) { return std::pair(one.role, one.index); };
    const uint64_t linear_count = count(all_linears.size(), kLeastLinearBytes);
    for (uint64_t i = 0; i < linear_count; ++i) {
      const size_t begin = at();
      if (kReads) all_linears.emplace_back();
      one(all_linears[i]);
      if (!kReads || i == 0) continue;
      const LinearObservation &before = all_linears[i - 1], &last = all_linears[i];
      if (place(before) >= place(last) || before.ranges.size() != last.ranges.size())
        fail("Linear at offset ", begin, " comes after role ", int(before.role), ", index ",
             before.index, " of ", before.ranges.size(), " samples: it has role ", int(last.role),
             ", index ", last.index, " and ", last.ranges.size(), " samples");
    }
  }

  void one(AttentionError& error) {
    const size_t begin = at();
    all(error.error, error.output, error.kl, error.queries);
    if (kReads && error.queries < 0)
      fail("attention error at offset ", begin, " is of ", error.queries, " queries");
  }

  Io& io_;
};

/// The kind of result that such a pass has.
LayerResult empty_result(LayerPass pass) {
  switch (pass) {
    case LayerPass::kObserve:
    case LayerPass::kObserveAndAdvanceExact:
      return LayerObservation{};
    case LayerPass::kAdvance:
    case LayerPass::kAdvanceExact:
    case LayerPass::kAdvanceWithoutAttention:
      return LayerAdvance{};
    case LayerPass::kObserveHead:
      return LinearObservation{};
    case LayerPass::kCountSaturated:
      return SaturationCounts{};
    case LayerPass::kCompareAttention:
      return AttentionComparison{};
  }
  KVCAL_CHECK(false);
}

uint16_t kind_of(const LayerResult& result) {
  return static_cast<uint16_t>(result.index() + 1);
}

}  // namespace

std::vector<std::byte> to_bytes(const LayerResult& result) {
  ByteWriter out;
  out.put(kMagic);
  out.put(kVersion);
  out.put(kind_of(result));
  // Fields has one signature for both directions; a writer changes nothing.
  std::visit([&](auto& one) { Fields<ByteWriter>(out).one(one); },
             const_cast<LayerResult&>(result));
  return out.take();
}

LayerResult layer_result_from(LayerPass pass, std::span<const std::byte> bytes) {
  return in_context("observation", [&] {
    ByteReader in(bytes);
    LayerResult result = empty_result(pass);
    const auto magic = in.get<uint32_t>();
    const auto version = in.get<uint16_t>(), kind = in.get<uint16_t>();
    if (magic != kMagic || version != kVersion || kind != kind_of(result))
      fail("begins with ", magic, ", version ", version, ", kind ", kind, ", expected ", kMagic,
           ", version ", kVersion, ", kind ", kind_of(result));
    std::visit([&](auto& one) { Fields<ByteReader>(in).one(one); }, result);
    in.expect_end();
    return result;
  });
}

}  // namespace kvcal
