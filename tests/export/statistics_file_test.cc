#include "export/statistics_file.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>

#include "core/error.h"
#include "core/file.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;

namespace {

TensorStatistics some(int64_t heads, float seed) {
  TensorStatistics seen{.heads = heads, .ranges = {}, .histograms = {}};
  for (int64_t i = 0; i < 3 * heads; ++i)
    seen.ranges.push_back({-seed - static_cast<float>(i), seed * static_cast<float>(i)});
  seen.ranges.back() = {};  // a sample that had nothing
  if (heads == 2) seen.positions = {{-seed, seed}, {-1.0f, 2.0f * seed}};
  if (heads == 2) seen.kinds = {{-seed, seed}, {}};
  seen.histograms.resize(static_cast<size_t>(heads));
  for (MagnitudeHistogram& histogram : seen.histograms)
    histogram.counts[static_cast<size_t>(seed) + 100] = (uint64_t{1} << 40) + 7;
  return seen;
}

Statistics statistics() {
  Statistics all;
  all.origin = {.model_path = "some/model",
                .model_type = {},
                .model_sha256 = "ab",
                .family = {},
                .family_sha256 = {},
                .model_config = "{\"model_type\": \"llama\"}",
                .dataset_path = "data.jsonl",
                .dataset_sha256 = "cd",
                .dataset_columns = R"({"text_column":"review"})",
                .sample_indices = {2, 0, 5},
                .num_tokens = 1234,
                .longest_sample = 512,
                .compute_dtype = "float32",
                .kv_forward = "exact",
                .inputs = "as-served",
                .all_experts = true,
                .device = {}};
  all.attention.push_back(
      {.module = "model.layers.0.self_attn", .k = some(2, 1.5f), .v = some(2, 2.5f)});
  all.attention.push_back({.module = "model.layers.1.self_attn",
                           .k = some(2, 3.5f),
                           .v = some(2, 4.5f),
                           .q = some(4, 5.5f)});
  const AttentionError error{.error = 0.1, .output = 1.0 / 3.0, .kl = -1e-17, .queries = 16};
  all.attention[1].compared = ComparedScales{
      .damage = {.calibrated = {error, {}, error, error}, .unit = {{}, error, {}, {}}},
      .k = {{0.5f}, {0.25f}},
      .v = {{1.5f}, {3.0f}}};
  all.inputs.push_back({.name = "lm_head", .seen = some(1, 6.5f), .tokens = 77});
  return all;
}

void check_equal(const ComparedScales& a, const ComparedScales& b) {
  for (const auto heads : {&AttentionDamage::calibrated, &AttentionDamage::unit}) {
    REQUIRE((a.damage.*heads).size() == (b.damage.*heads).size());
    for (size_t head = 0; head < (a.damage.*heads).size(); ++head) {
      const AttentionError &one = (a.damage.*heads)[head], &other = (b.damage.*heads)[head];
      CHECK(one.error == other.error);
      CHECK(one.output == other.output);
      CHECK(one.kl == other.kl);
      CHECK(one.queries == other.queries);
    }
  }
  for (const auto side : {&ComparedScales::k, &ComparedScales::v})
    CHECK(std::ranges::equal(a.*side, b.*side, {}, &Scale::value, &Scale::value));
}

void check_equal(const TensorStatistics& a, const TensorStatistics& b) {
  CHECK(a.heads == b.heads);
  REQUIRE(a.ranges.size() == b.ranges.size());
  for (size_t i = 0; i < a.ranges.size(); ++i) {
    CHECK(a.ranges[i].min == b.ranges[i].min);
    CHECK(a.ranges[i].max == b.ranges[i].max);
  }
  REQUIRE(a.positions.size() == b.positions.size());
  for (size_t i = 0; i < a.positions.size(); ++i) {
    CHECK(a.positions[i].min == b.positions[i].min);
    CHECK(a.positions[i].max == b.positions[i].max);
  }
  REQUIRE(a.kinds.size() == b.kinds.size());
  for (size_t i = 0; i < a.kinds.size(); ++i) {
    CHECK(a.kinds[i].min == b.kinds[i].min);
    CHECK(a.kinds[i].max == b.kinds[i].max);
  }
  REQUIRE(a.histograms.size() == b.histograms.size());
  for (size_t head = 0; head < a.histograms.size(); ++head)
    CHECK(a.histograms[head].counts == b.histograms[head].counts);
}

std::string refusal(const fs::path& path) {
  try {
    read_statistics(path);
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

}  // namespace

TEST_CASE("statistics come back from their file as they were") {
  const test::ScratchFolder scratch;
  const fs::path path = scratch / "kept.safetensors";
  const Statistics all = statistics();
  write_statistics(path, all, false);
  const Statistics read = read_statistics(path);
  CHECK(read.origin.model_config == all.origin.model_config);
  CHECK(read.origin.sample_indices == all.origin.sample_indices);
  CHECK(read.origin.dataset_columns == all.origin.dataset_columns);
  CHECK(read.origin.num_tokens == 1234);
  CHECK(read.origin.longest_sample == 512);
  CHECK(read.origin.all_experts);
  REQUIRE(read.attention.size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    CHECK(read.attention[i].module == all.attention[i].module);
    check_equal(read.attention[i].k, all.attention[i].k);
    check_equal(read.attention[i].v, all.attention[i].v);
    REQUIRE(read.attention[i].q.has_value() == all.attention[i].q.has_value());
    if (all.attention[i].q) check_equal(*read.attention[i].q, *all.attention[i].q);
  }
  CHECK(!read.attention[0].compared.has_value());
  REQUIRE(read.attention[1].compared.has_value());
  check_equal(*read.attention[1].compared, *all.attention[1].compared);
  REQUIRE(read.inputs.size() == 1);
  CHECK(read.inputs[0].name == "lm_head");
  CHECK(read.inputs[0].tokens == 77);
  check_equal(read.inputs[0].seen, all.inputs[0].seen);
}

TEST_CASE("statistics: damage of attention that no run can have seen is refused") {
  const test::ScratchFolder scratch;
  const fs::path path = scratch / "kept.safetensors";
  Statistics all = statistics();
  all.attention[1].compared->damage.unit[2].kl = std::numeric_limits<double>::quiet_NaN();
  write_statistics(path, all, true);
  CHECK(refusal(path) == path.string() +
                             ": model.layers.1.self_attn.damage holds a number that is not finite, "
                             "or no number of queries");
}

TEST_CASE("statistics replace a file only where they may, and leave nothing behind") {
  const test::ScratchFolder scratch;
  const fs::path path = scratch / "kept.safetensors";
  test::write_file(path, "precious");
  CHECK_THROWS_AS(write_statistics(path, statistics(), false), Error);
  CHECK(read_text(path) == "precious");
  write_statistics(path, statistics(), true);
  CHECK(refusal(path).empty());
  CHECK(std::distance(fs::directory_iterator(path.parent_path()), fs::directory_iterator()) == 1);
}

TEST_CASE("statistics that no run can have seen are refused") {
  const test::ScratchFolder scratch;
  const fs::path path = scratch / "kept.safetensors";
  const auto refused = [&](const std::function<void(TensorStatistics&)>& change) {
    Statistics all = statistics();
    change(all.attention[1].k);
    write_statistics(path, all, true);
    return refusal(path);
  };
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::string ranges = path.string() + ": model.layers.1.self_attn.k.ranges holds a range ";
  CHECK(refused([&](TensorStatistics& seen) {
          seen.ranges[2] = {-1.0f, kInf};
        }) == ranges + "from -1 to inf, expected finite numbers");
  CHECK(refused([&](TensorStatistics& seen) {
          seen.ranges[2] = {kNan, kNan};
        }) == ranges + "from nan to nan, expected finite numbers");
  CHECK(refused([&](TensorStatistics& seen) { seen.histograms[1].counts[9] = ~uint64_t{0} - 4; }) ==
        path.string() + ": model.layers.1.self_attn.k.histogram holds -5, expected a count");
}

TEST_CASE("what is no statistics file is refused with what was expected") {
  const test::ScratchFolder scratch;
  const fs::path path = scratch / "kept.safetensors";
  write_statistics(path, statistics(), false);
  std::string bytes = read_text(path);
  // With the hash of what the file holds then.
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string copy = bytes;
    copy.replace(copy.find(from), from.size(), to);
    test::write_file(path, copy);
    std::string old, now;
    {
      const SafetensorsFile file(path);
      old = file.metadata().at("sha256");
      now = statistics_sha256(file);
    }
    test::write_file(path, copy.replace(copy.find(old), old.size(), now));
    return refusal(path);
  };
  CHECK(changed("kvcal-statistics", "other-statistics") ==
        path.string() +
            ": found format 'other-statistics', version '2', expected "
            "'kvcal-statistics', version '2', as kvcal calibrate --save-statistics "
            "writes it");
  CHECK(changed("\"lm_head.input.tokens\"", "\"lm_head.input.tokenz\"") ==
        path.string() + ": has no tensor lm_head.input.tokens");
  CHECK(changed("[2,0,5]", "[2,0,x]").starts_with(path.string() + ": "));
  // Before version 2, files had no hash.
  CHECK(changed("\"version\":\"2\"", "\"version\":\"1\"") ==
        path.string() +
            ": found format 'kvcal-statistics', version '1', expected 'kvcal-statistics', version "
            "'2', as kvcal calibrate --save-statistics writes it");
}

TEST_CASE("statistics with any flipped bit, or cut, are refused") {
  const test::ScratchFolder scratch;
  const fs::path path = scratch / "kept.safetensors";
  write_statistics(path, statistics(), false);
  const std::string bytes = read_text(path);
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  size_t flips = 0;
  // Every byte of the header, and of the data every 13th, which meets all of their tensors.
  for (size_t at = 0; at < bytes.size(); at += at < header + 8 ? 1 : 13) {
    std::string copy = bytes;
    copy[at] = static_cast<char>(copy[at] ^ (1 << (at % 8)));
    test::write_file(path, copy);
    INFO("byte " << at);
    CHECK(!refusal(path).empty());
    ++flips;
  }
  CHECK(flips > 1000);
  for (size_t size = 0; size < bytes.size(); size += 101) {
    test::write_file(path, bytes.substr(0, size));
    CHECK(!refusal(path).empty());
  }
  test::write_file(path, bytes);
  CHECK(refusal(path).empty());
  // The largest counts and ranges are what a flip would change most: the message says why.
  std::string last = bytes;
  last.back() = static_cast<char>(last.back() ^ 1);
  test::write_file(path, last);
  CHECK(test::contains(refusal(path), "has changed since it was written: its SHA-256 is '"));
}

TEST_CASE("statistics of a sweep's piece are those of no other") {
  const test::ScratchFolder scratch;
  const fs::path path = scratch / "kept.safetensors";
  write_statistics(path, statistics(), false, "one");
  CHECK_NOTHROW(read_statistics(path, "one"));
  CHECK(test::message_of([&] { read_statistics(path, "two"); }) ==
        path.string() + ": is of piece 'one' of a sweep, expected 'two'");
}
