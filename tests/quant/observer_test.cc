#include "quant/observer.h"

#include <algorithm>

#include "core/json.h"
#include "support/catch.h"

using namespace kvcal;

namespace {

QuantArgs args_of(const std::string& observer, Json kwargs = Json::object()) {
  QuantArgs args;
  args.observer = observer;
  args.observer_kwargs = std::move(kwargs);
  return args;
}

/// Samples of a tensor whose magnitudes are counted too: each value under its own bin.
TensorStatistics seen_of(const std::vector<std::vector<float>>& samples) {
  TensorStatistics seen{.ranges = {}, .histograms = std::vector<MagnitudeHistogram>(1)};
  for (const std::vector<float>& sample : samples) {
    Range range;
    for (const float value : sample) {
      range.fold({value, value});
      ++seen.histograms[0].counts[static_cast<size_t>(MagnitudeHistogram::bin_of(value))];
    }
    seen.ranges.push_back(range);
  }
  return seen;
}

float amax(const QuantArgs& args, const TensorStatistics& seen) {
  return make_observer(args)->amax(seen, fp8::Format::kE4m3Fn).value;
}

}  // namespace

TEST_CASE("observers refuse to answer before they saw anything") {
  CHECK(observers_for(ArgsRole::kKvCache).size() == 7);
  for (const std::string& name : observers_for(ArgsRole::kKvCache)) {
    INFO(name);
    TensorStatistics empty;
    CHECK_THROWS_AS(make_observer(args_of(name))->amax(empty, fp8::Format::kE4m3Fn), Error);
    empty.ranges.resize(3);  // none of which had anything
    CHECK_THROWS_AS(make_observer(args_of(name))->amax(empty, fp8::Format::kE4m3Fn), Error);
  }
}

TEST_CASE("extremes: of all samples, of the last, and averaged") {
  const TensorStatistics seen = seen_of({{-4.0f, 1.0f}, {-1.0f, 8.0f}, {}, {-2.0f, 2.0f}});
  CHECK(amax(args_of("static_minmax"), seen) == 8.0f);
  CHECK(amax(args_of("memoryless_minmax"), seen) == 2.0f);
  // min: -4, -2.5, -2.25; max: 1, 4.5, 3.25. A sample that had nothing is no batch.
  CHECK(amax(args_of("minmax", {{"averaging_constant", 0.5}}), seen) == 3.25f);
  CHECK_FALSE(make_observer(args_of("static_minmax"))->may_clip());
  for (const std::string name :
       {"memoryless_minmax", "minmax", "mse", "percentile", "entropy", "attention_mse"})
    CHECK(make_observer(args_of(name))->may_clip());
}

TEST_CASE("observers of the histogram lie between nothing and the extreme") {
  std::vector<float> values;
  for (int i = 1; i <= 4096; ++i) values.push_back(static_cast<float>(i % 64) * 0.01f - 0.3f);
  values.push_back(40.0f);  // one outlier
  const TensorStatistics seen = seen_of({values});
  for (const std::string name : {"mse", "percentile", "entropy"}) {
    INFO(name);
    const float chosen = amax(args_of(name), seen);
    CHECK(chosen > 0.3f);
    CHECK(chosen <= 40.0f);
  }
  CHECK(amax(args_of("percentile", {{"percentile", 100.0}}), seen) == 40.0f);
  CHECK(amax(args_of("percentile", {{"percentile", 99.0}}), seen) < 0.5f);
}

TEST_CASE(
    "attention_mse begins with the extremes and takes the least error, the first of equal ones") {
  const auto observer = make_observer(args_of("attention_mse"));
  CHECK(amax(args_of("attention_mse"), seen_of({{-4.0f, 1.0f}, {2.0f}})) == 4.0f);
  CHECK(observer->judges_attention());
  const std::vector<Scale> tried = observer->candidates({0.75f});
  CHECK(tried.front().value == 1.0f);
  CHECK(std::ranges::none_of(tried, [](Scale one) { return one.value == 0.75f; }));
  for (const float power : {0.015625f, 0.25f, 2.0f})  // of two, exactly
    CHECK(std::ranges::count(tried, 0.75f * power, &Scale::value) == 1);
  const auto error = [](double squares) { return AttentionError{.error = squares, .output = 8.0}; };
  CHECK(observer->best(std::vector{error(2), error(3), error(1), error(1)}) == 2);
  CHECK(observer->best(std::vector{error(2), error(2), error(4)}) == 0);
  for (const std::string& name : observers_for(ArgsRole::kKvCache)) {
    INFO(name);
    const auto other = make_observer(args_of(name));
    CHECK(other->judges_attention() == (name == "attention_mse"));
    CHECK(other->candidates({0.5f}).empty() == (name != "attention_mse"));
  }
  CHECK_FALSE(
      observers().at("attention_mse").why_not[static_cast<size_t>(ArgsRole::kWeights)].empty());
  CHECK_FALSE(
      observers().at("attention_mse").why_not[static_cast<size_t>(ArgsRole::kInputs)].empty());
}

TEST_CASE("an observer's arguments out of range are errors") {
  CHECK_THROWS_AS(make_observer(args_of("minmax", {{"averaging_constant", 0.0}})), Error);
  CHECK_THROWS_AS(amax(args_of("percentile", {{"percentile", 101.0}}), seen_of({{1.0f, 2.0f}})),
                  Error);
  CHECK_THROWS_AS(make_observer(args_of("mse", {{"grid", 0}})), Error);
}
