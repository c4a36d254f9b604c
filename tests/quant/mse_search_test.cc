#include "quant/range_search.h"

#include <array>
#include <cstring>
#include <string>

#include "core/json.h"
#include "expected_codes.h"
#include "quant/weight_scales.h"
#include "support/catch.h"
#include "support/folders.h"

using namespace kvcal;

namespace {

std::string message(const char* kwargs) {
  try {
    mse_options(parse_json(kwargs));
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

/// Feeds the errors of one group, step by step; how many steps were taken.
int steps_of(RangeSearch& search, std::initializer_list<double> errors) {
  int steps = 0;
  for (const double error : errors) {
    if (!search.next()) break;
    search.tell({&error, 1});
    ++steps;
  }
  return steps;
}

}  // namespace

TEST_CASE("mse_search: weights get the scales of llm-compressor's memoryless_mse") {
  const Json cases =
      parse_json(read_text(test::tests_folder().string() + "/fixtures/quant/mse.json"));
  const auto bytes = test::read_expected<std::byte>("mse.bin");
  const auto at = [&](const Json& place) {
    return std::span(bytes).subspan(place[0].get<size_t>(), place[1].get<size_t>());
  };
  ThreadPool pool(2);
  for (const Json& one : cases) {
    INFO(one.dump());
    const TensorView weight{"w", *dtype_from_name(one["dtype"].get<std::string>()),
                            Shape(one["shape"].get<std::vector<int64_t>>()), at(one["weight"])};
    QuantArgs args;
    args.observer = "mse";
    args.observer_kwargs = one["options"];
    const std::string strategy = one["args"]["strategy"].get<std::string>();
    args.strategy = strategy == "tensor"    ? Strategy::kTensor
                    : strategy == "channel" ? Strategy::kChannel
                                            : Strategy::kBlock;
    if (strategy == "block") args.block_structure = {16, 32};
    const WeightScales found = weight_scales(
        weight, args,
        one["arithmetic"] == "model" ? ScaleArithmetic::kModelDtype : ScaleArithmetic::kFloat32,
        &pool);
    const auto expected = at(one["scales"]);
    REQUIRE(found.scales.size() * sizeof(float) == expected.size());
    test::Mismatches mismatches;
    for (size_t i = 0; i < found.scales.size(); ++i) {
      uint32_t bits;
      std::memcpy(&bits, expected.data() + 4 * i, 4);
      mismatches.compare(static_cast<uint32_t>(i), bits_of(found.scales[i].value), bits);
    }
    CHECK(mismatches.text() == "");
  }
  CHECK(cases.size() == 72);
}

TEST_CASE("mse_search: the first of the least errors wins, and patience ends the search") {
  MseOptions options;
  options.patience = 2;
  RangeSearch tied(options, 1);
  CHECK(steps_of(tied, {5, 3, 3, 3, 1}) == 4);  // two steps without gain after the second
  CHECK(tied.best()[0] == 0.99f);
  RangeSearch gaining(options, 1);
  CHECK(steps_of(gaining, {5, 6, 4, 6, 3, 6, 6, 1}) == 7);
  CHECK(gaining.best()[0] == 0.96f);
}

TEST_CASE("mse_search: one group's gain keeps all groups searching") {
  MseOptions options;
  options.patience = 2;
  RangeSearch search(options, 2);
  int steps = 0;
  for (; search.next(); ++steps) search.tell(std::array{10.0 - steps, steps == 6 ? 0.5 : 1.0});
  CHECK(steps == 20);  // maxshrink * grid
  CHECK(search.best()[0] == static_cast<float>(1 - 19 / 100.0));
  CHECK(search.best()[1] == static_cast<float>(1 - 6 / 100.0));
}

TEST_CASE("mse_search: without a step the whole range is kept") {
  MseOptions options;
  options.grid = 4;  // 0.2 * 4 steps
  RangeSearch search(options, 3);
  CHECK_FALSE(search.next().has_value());
  CHECK(search.best() == std::vector<float>{1.0f, 1.0f, 1.0f});
}

TEST_CASE("mse_options: llm-compressor's defaults, and values out of range") {
  const MseOptions defaults = mse_options(Json::object());
  CHECK(defaults.maxshrink == 0.2);
  CHECK(defaults.grid == 100);
  CHECK(defaults.norm == 2.4);
  CHECK(defaults.patience == 5);
  CHECK(defaults.expand == 1);
  const MseOptions given = mse_options(
      parse_json(R"({"maxshrink": 1, "grid": 20, "norm": 2, "patience": 3, "expand": 1.5})"));
  CHECK(given.maxshrink == 1);
  CHECK(given.grid == 20);
  CHECK(given.norm == 2);
  CHECK(given.patience == 3);
  CHECK(given.expand == 1.5);
  CHECK(message(R"({"maxshrink": 0})") ==
        "observer_kwargs.maxshrink: found 0, expected a number above 0 to 1");
  CHECK(message(R"({"grid": -1})") ==
        "observer_kwargs.grid: found -1, expected a number from 1 to 100000");
  CHECK(message(R"({"norm": 0})") ==
        "observer_kwargs.norm: found 0, expected a number above 0 to 100");
  CHECK(message(R"({"patience": 0})") ==
        "observer_kwargs.patience: found 0, expected a number from 1 to 1000000");
  CHECK(message(R"({"expand": 0.5})") ==
        "observer_kwargs.expand: found 0.5, expected a number from 1 to 100");
  CHECK(message(R"({"norm": "2"})") == "observer_kwargs.norm: found \"2\", expected a number");
}
