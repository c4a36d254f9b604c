// Operations that do in one pass what others do in turn: the parts are the judge.
#include <cmath>

#include "quant/calibration.h"
#include "support/backends.h"
#include "support/near.h"

namespace kvcal {
namespace {

constexpr int64_t kBins = MagnitudeHistogram::kBins;
constexpr KvDType kDtypes[] = {KvDType::kFloat32, KvDType::kFloat16, KvDType::kBFloat16,
                               KvDType::kFp8E4m3, KvDType::kFp8E5m2, KvDType::kFp8E4m3Fnuz};

enum class Turns { kNone, kKeys, kValues };

struct EntryCase {
  std::string what;
  std::vector<Segment> segments;
  int64_t tokens = 0;  ///< rows of x; segments may leave some out
  int64_t heads = 1, k_dim = 64, v_dim = 64, extra_stride = 0;
  Turns turns = Turns::kKeys;
  int64_t rotary_dim = 64;
  bool interleaved = false;
  bool observes = true, stores = true, counts = true;
  int64_t first_row = -1;  ///< -1: none is given
  KvDType dtype = KvDType::kFp8E4m3;
};

std::vector<Segment> rows(std::vector<int64_t> lengths) {
  std::vector<Segment> segments;
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    segments.push_back(
        {.q_begin = begin, .q_count = length, .kv_begin = begin, .kv_count = length});
    begin += length;
  }
  return segments;
}

const std::vector<EntryCase> kCases{
    {.what = "one token", .segments = rows({1}), .tokens = 1, .heads = 2},
    {.what = "grouped", .segments = rows({5, 1, 130, 33}), .tokens = 169, .heads = 3},
    {.what = "strided, part of a head turns",
     .segments = rows({70, 9}),
     .tokens = 79,
     .heads = 2,
     .k_dim = 80,
     .v_dim = 80,
     .extra_stride = 37,
     .rotary_dim = 18},
    {.what = "pairs side by side",
     .segments = rows({41}),
     .tokens = 41,
     .heads = 5,
     .k_dim = 16,
     .v_dim = 7,
     .rotary_dim = 16,
     .interleaved = true},
    {.what = "a latent and the key that turns",
     .segments = rows({33, 8}),
     .tokens = 41,
     .k_dim = 512,
     .v_dim = 64,
     .turns = Turns::kValues,
     .interleaved = true},
    {.what = "wide heads, nothing turns",
     .segments = rows({20, 3}),
     .tokens = 23,
     .heads = 4,
     .k_dim = 256,
     .v_dim = 256,
     .turns = Turns::kNone},
    {.what = "rows outside the segments",
     .segments = {{.q_begin = 3, .q_count = 9, .kv_begin = 0, .kv_count = 9},
                  {.q_begin = 20, .q_count = 0, .kv_begin = 9, .kv_count = 0},
                  {.q_begin = 21, .q_count = 4, .kv_begin = 9, .kv_count = 4}},
     .tokens = 31,
     .heads = 2,
     .k_dim = 37,
     .v_dim = 37,
     .rotary_dim = 36},
    {.what = "segments longer than what goes through together",
     .segments = rows({513, 300}),
     .tokens = 813,
     .heads = 2,
     .extra_stride = 64},
    {.what = "an odd number of values",
     .segments = rows({301, 257}),
     .tokens = 558,
     .k_dim = 37,
     .v_dim = 7,
     .rotary_dim = 36},
    {.what = "segments that do not follow each other",
     .segments = {{.q_begin = 20, .q_count = 40, .kv_begin = 0, .kv_count = 40},
                  {.q_begin = 2, .q_count = 30, .kv_begin = 40, .kv_count = 30}},
     .tokens = 60,
     .heads = 2},
    {.what = "behind what the cache holds",
     .segments = rows({2}),
     .tokens = 2,
     .heads = 3,
     .observes = false,
     .first_row = 11},
};

/// What stands in the backend's memory afterwards.
struct Entered {
  std::vector<ObservedRange> k_ranges, v_ranges;
  std::vector<uint64_t> k_histogram, v_histogram, k_saturated, v_saturated;
  std::vector<uint8_t> k_out, v_out;
};

/// One side's buffers; what is only written is poisoned, what is added to begins at 3.
struct SideBuffers {
  SideBuffers(Backend& backend, const EntryCase& c, int64_t dim)
      : ranges(backend, std::vector<ObservedRange>(c.segments.size() * heads(c),
                                                   {std::nanf(""), std::nanf(""), 77})),
        histogram(backend, std::vector<uint64_t>(heads(c) * static_cast<size_t>(kBins), 3)),
        saturated(backend, std::vector<uint64_t>(heads(c), 3)),
        scales(backend, positive_scales(c)),
        out(backend, std::vector<uint8_t>(
                         static_cast<size_t>((c.tokens + std::max<int64_t>(c.first_row, 0) + 1) *
                                             c.heads * dim * bytes_per_element(c.dtype)),
                         0xab)) {}
  static size_t heads(const EntryCase& c) { return static_cast<size_t>(c.heads); }

  /// With which some values saturate.
  static std::vector<float> positive_scales(const EntryCase& c) {
    std::vector<float> scales = test::normal(c.heads, 5);
    for (float& scale : scales) scale = 0.002f + std::fabs(scale) / 100;
    return scales;
  }

  CacheSide side(const EntryCase& c, const HeadsView& x) const {
    CacheSide side;
    side.x = x;
    if (c.observes) {
      side.ranges = ranges.data();
      side.histogram = histogram.data();
    }
    if (c.stores) {
      side.dtype = c.dtype;
      side.scales = is_fp8(c.dtype) ? scales.data() : nullptr;
      side.out = out.data();
      side.saturated = c.counts ? saturated.data() : nullptr;
    }
    return side;
  }

  test::OnBackend<ObservedRange> ranges;
  test::OnBackend<uint64_t> histogram, saturated;
  test::OnBackend<float> scales;
  test::OnBackend<uint8_t> out;
};

Entered enter(Backend& backend, const EntryCase& c, bool at_once) {
  const int64_t stride = c.heads * (c.k_dim + c.v_dim) + c.extra_stride;
  const int64_t pairs = c.rotary_dim / 2, positions = 2 * c.tokens + 3;
  std::vector<float> values = test::normal(c.tokens * stride, 1);
  for (size_t i = 0; i < values.size(); i += 97) values[i] *= 100.0f;
  std::vector<float> cos, sin;
  for (int64_t i = 0; i < positions * pairs; ++i) {
    cos.push_back(std::cos(0.37f * static_cast<float>(i)));
    sin.push_back(std::sin(0.37f * static_cast<float>(i)));
  }
  std::vector<int32_t> places;
  for (int64_t token = 0; token < c.tokens; ++token)
    places.push_back(static_cast<int32_t>((token * 7 + 2) % positions));
  const test::OnBackend<float> x(backend, values), cosines(backend, cos), sines(backend, sin);
  const test::OnBackend<int32_t> position_rows(backend, places);
  const test::OnBackend<int64_t> first_row(backend, {c.first_row});
  const SideBuffers k(backend, c, c.k_dim), v(backend, c, c.v_dim);

  EnterCacheArgs args;
  args.k = k.side(c, {x.data(), c.tokens, c.heads, c.k_dim, stride});
  args.v = v.side(c, {x.data() + c.heads * c.k_dim, c.tokens, c.heads, c.v_dim, stride});
  if (c.turns != Turns::kNone)
    args.rope = {.x = c.turns == Turns::kKeys ? args.k.x : args.v.x,
                 .positions = position_rows.data(),
                 .cos = cosines.data(),
                 .sin = sines.data(),
                 .rotary_dim = c.rotary_dim,
                 .interleaved = c.interleaved};
  if (c.observes) args.segments = c.segments;
  if (c.first_row >= 0) args.first_row = first_row.data();
  if (at_once) {
    backend.enter_cache(args);
  } else {
    backend.Backend::enter_cache(args);
  }
  return {k.ranges.values(),    v.ranges.values(),    k.histogram.values(), v.histogram.values(),
          k.saturated.values(), v.saturated.values(), k.out.values(),       v.out.values()};
}

void check_same(const Entered& actual, const Entered& expected) {
  CHECK(test::same_bytes(actual.k_ranges, expected.k_ranges));
  CHECK(test::same_bytes(actual.v_ranges, expected.v_ranges));
  CHECK(test::same_bytes(actual.k_histogram, expected.k_histogram));
  CHECK(test::same_bytes(actual.v_histogram, expected.v_histogram));
  CHECK(test::same_bytes(actual.k_saturated, expected.k_saturated));
  CHECK(test::same_bytes(actual.v_saturated, expected.v_saturated));
  CHECK(test::same_bytes(actual.k_out, expected.k_out));
  CHECK(test::same_bytes(actual.v_out, expected.v_out));
}

std::vector<float> ends(const std::vector<ObservedRange>& ranges) {
  std::vector<float> values;
  for (const ObservedRange& range : ranges)
    for (const float end : {range.min, range.max})
      values.push_back(std::isfinite(end) ? end : 0.0f);
  return values;
}

TEST_CASE("enter_cache: gives the bytes of its parts, and within their limits the reference's") {
  const auto reference = test::make_backend("reference");
  for (EntryCase c : kCases)
    for (const KvDType dtype : kDtypes) {
      c.dtype = dtype;
      const Entered expected = enter(*reference, c, false);
      test::for_each_backend([&](Backend& backend) {
        INFO(c.what << " as " << name_of(dtype));
        const Entered actual = enter(backend, c, true);
        check_same(actual, enter(backend, c, false));
        if (c.turns == Turns::kNone) check_same(actual, expected);
        if (c.observes) {
          CHECK(test::agree_relatively(ends(actual.k_ranges), ends(expected.k_ranges), 1e-5, 1e-2));
          CHECK(test::agree_relatively(ends(actual.v_ranges), ends(expected.v_ranges), 1e-5, 1e-2));
        }
      });
    }
}

TEST_CASE("enter_cache: observes, stores and counts only what is asked for") {
  for (EntryCase c : kCases)
    for (const auto& [observes, stores, counts] :
         {std::tuple{true, false, false}, {false, true, false}, {false, true, true}}) {
      c.observes = observes;
      c.stores = stores;
      c.counts = counts;
      test::for_each_backend([&](Backend& backend) {
        INFO(c.what << ", observes " << observes << ", stores " << stores);
        check_same(enter(backend, c, true), enter(backend, c, false));
      });
    }
}

TEST_CASE("enter_cache: rows before the first one keep what they hold") {
  EntryCase c = kCases.back();
  REQUIRE(c.first_row == 11);
  for (const KvDType dtype : kDtypes) {
    c.dtype = dtype;
    test::for_each_backend([&](Backend& backend) {
      const Entered entered = enter(backend, c, true);
      for (const auto& [out, dim] :
           {std::pair{&entered.k_out, c.k_dim}, {&entered.v_out, c.v_dim}}) {
        const auto row = static_cast<size_t>(c.heads * dim * bytes_per_element(dtype));
        CHECK(std::all_of(out->begin(), out->begin() + static_cast<std::ptrdiff_t>(11 * row),
                          [](uint8_t byte) { return byte == 0xab; }));
        CHECK(std::all_of(out->end() - static_cast<std::ptrdiff_t>(row), out->end(),
                          [](uint8_t byte) { return byte == 0xab; }));
      }
    });
  }
}

}  // namespace
}  // namespace kvcal
