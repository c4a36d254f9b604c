#include "sweep/results.h"

#include <cmath>

#include "support/catch.h"
#include "support/scratch_folder.h"
#include "sweep_fixture.h"

using namespace kvcal;
using kvcal::test::PlannedSweep;

TEST_CASE("pareto: the front of points worked out by hand") {
  //  y
  //  5 a . . . b
  //  3 . c . . d
  //  2 . . . e .
  //  1 . . . f .      f beats e and d, c is left of it
  const std::vector<ParetoPoint> points{{1, 5}, {5, 5}, {2, 3}, {5, 3}, {4, 2}, {4, 1}};
  CHECK(pareto_front(points) == std::vector<bool>{true, false, true, false, false, true});
}

TEST_CASE("pareto: equal points are both on the front, a single one and none are fine") {
  CHECK(pareto_front(std::vector<ParetoPoint>{{1, 2}, {1, 2}, {1, 3}}) ==
        std::vector<bool>{true, true, false});
  CHECK(pareto_front(std::vector<ParetoPoint>{{1, 2}}) == std::vector<bool>{true});
  CHECK(pareto_front({}).empty());
}

TEST_CASE("pareto: what differs within the standard error of the difference is as good") {
  // b is lower than a by 0.3, the error of the difference is 0.5: both stay; c needs more x for
  // nothing that is certain; d is lower for certain.
  const std::vector<ParetoPoint> points{
      {1, 5.0, 0.4}, {1, 4.7, 0.3}, {2, 4.6, 0.3}, {3, 1.0, 0.1}, {3, 1.05, 0.1}};
  CHECK(pareto_front(points) == std::vector<bool>{true, true, false, true, true});
  // The same numbers without errors.
  std::vector<ParetoPoint> exact = points;
  for (ParetoPoint& point : exact) point.error = 0.0;
  CHECK(pareto_front(exact) == std::vector<bool>{false, true, true, true, false});
}

TEST_CASE("pareto: of any points, those that no other beats") {
  std::vector<ParetoPoint> points;
  for (uint32_t i = 0, state = 7; i < 400; ++i) {
    state = state * 1664525u + 1013904223u;
    points.push_back({static_cast<double>(state >> 27), static_cast<double>((state >> 20) & 31u)});
  }
  const std::vector<bool> front = pareto_front(points);
  for (size_t i = 0; i < points.size(); ++i) {
    const bool is_beaten = std::ranges::any_of(points, [&](const ParetoPoint& other) {
      return other.x <= points[i].x && other.y <= points[i].y &&
             (other.x < points[i].x || other.y < points[i].y);
    });
    CHECK(front[i] == !is_beaten);
  }
}

namespace {

CellOutcome done(double kl, int64_t bytes) {
  return {.status = CellOutcome::Status::kDone,
          .result = {{"kl_mean", kl}, {"bytes_per_token", bytes}, {"num_tokens", 5}}};
}

}  // namespace

TEST_CASE("results: columns stand beside the data set where they were named") {
  PlannedSweep all("{models: m1, recipes: max, kv_cache_dtypes: fp8_e4m3, num_samples: 8}");
  const std::vector<CellOutcome> outcomes{done(0.0, 20)};
  CHECK(!results_json({all.sweep, all.plan, test::some_inputs()}, outcomes)["evaluation"].contains(
      "columns"));
  all.sweep.evaluation.records.columns.text = "review";
  all.sweep.calibration->records.columns = {.prompt = "q", .response = "a"};
  all.sweep.calibration->records.chat = {.template_file = "/t/chat.jinja",
                                         .variables = {{"thinking", false}}};
  const Json results = results_json({all.sweep, all.plan, test::some_inputs()}, outcomes);
  CHECK(results["evaluation"]["columns"] == Json{{"text_column", "review"}});
  CHECK(results["calibration"]["columns"] ==
        Json{{"prompt_column", "q"}, {"response_column", "a"}});
  CHECK(results["calibration"]["chat_template"] == "chat.jinja");
  CHECK(results["calibration"]["chat_template_kwargs"] == Json{{"thinking", false}});
  CHECK_FALSE(results["evaluation"].contains("chat_template"));
}

TEST_CASE("results: every cell has every key, and null where there is nothing") {
  const PlannedSweep all(
      "{models: m1, recipes: max, kv_cache_dtypes: [auto, fp8_e4m3, fp8_e5m2], "
      "num_samples: 8, shuffle_seeds: 7}");
  const std::vector<CellOutcome> outcomes{
      done(0.0, 20), {.status = CellOutcome::Status::kFailed, .error = "why", .result = {}}, {}};
  const Json results = results_json({all.sweep, all.plan, test::some_inputs()}, outcomes);
  CHECK(results["version"] == "1.2");
  CHECK(results["name"] == "test");
  CHECK(results["pareto"] == Json{{"x", "bytes_per_token"}, {"y", "kl_mean"}});
  CHECK(results["models"][1] ==
        Json{{"name", "second"}, {"sha256", "bb"}, {"compute_dtype", "float32"}});
  CHECK(results["evaluation"]["dataset"] == "e.txt");
  const Json& cells = results["cells"];
  REQUIRE(cells.size() == 3);
  for (const Json& cell : cells) {
    CHECK(cell.size() == 8 + 2 + kCellMetrics.names().size() + 2);
    for (const std::string& name : kCellMetrics.names()) CHECK(cell.contains(name));
  }
  CHECK(cells[0]["id"] == "m1/float16");
  CHECK(cells[0]["recipe"].is_null());
  CHECK(cells[0]["scale_source"].is_null());
  CHECK(cells[0]["status"] == "done");
  CHECK(cells[0]["kl_mean"] == 0.0);
  CHECK(cells[0]["perplexity"].is_null());
  CHECK(cells[0]["is_pareto"] == true);
  CHECK(cells[1]["recipe"] == "max");
  CHECK(cells[1]["kv_cache_dtype"] == "fp8_e4m3");
  CHECK(cells[1]["scale_source"] == "calibrated");
  CHECK(cells[1]["kv_forward"] == "quantized");
  CHECK(cells[1]["num_samples"] == 8);
  CHECK(cells[1]["seed"] == 7);
  CHECK(cells[1]["status"] == "failed");
  CHECK(cells[1]["error"] == "why");
  CHECK(cells[1]["is_pareto"].is_null());
  CHECK(cells[2]["status"] == "pending");
  CHECK(cells[2]["error"].is_null());
}

TEST_CASE("results: the front goes by the axes that the sweep names, and by what is better there") {
  PlannedSweep all(
      "{models: m1, recipes: [max, mse], kv_cache_dtypes: [auto, fp8_e4m3], "
      "num_samples: 8}");
  const auto front = [&](std::vector<CellOutcome> outcomes) {
    const Json results = results_json({all.sweep, all.plan, test::some_inputs()}, outcomes);
    std::string text;
    for (const Json& cell : results["cells"])
      text += cell["is_pareto"].is_null() ? '-' : cell["is_pareto"].get<bool>() ? '*' : '.';
    return text;
  };
  CHECK(front({done(0.0, 20), done(0.5, 10), done(0.4, 10)}) == "*.*");
  CHECK(front({done(0.0, 20), {}, done(0.4, 10)}) == "*-*");
  // Scored, and failed at its questions.
  CellOutcome failed = done(0.1, 10);
  failed.status = CellOutcome::Status::kFailed;
  CHECK(front({done(0.0, 20), failed, done(0.4, 10)}) == "*-*");
  all.sweep.pareto.y = "top1_agreement";
  const auto agreeing = [](double part, int64_t bytes) {
    CellOutcome outcome = done(0.0, bytes);
    outcome.result["top1_agreement"] = part;
    return outcome;
  };
  CHECK(front({agreeing(1.0, 20), agreeing(0.9, 10), agreeing(0.8, 10)}) == "**.");
}

TEST_CASE("results: the page has the cells' choices, and the dimensions that any of them has") {
  const PlannedSweep all(
      "{models: m1, recipes: max, kv_cache_dtypes: [auto, fp8_e4m3], num_samples: 8}");
  const report::SweepReport page = results_report(
      {all.sweep, all.plan, test::some_inputs()},
      std::vector<CellOutcome>{
          done(0.0, 20), {.status = CellOutcome::Status::kFailed, .error = "why", .result = {}}});
  CHECK(page.version == "1.2");
  CHECK(page.pareto_y == "kl_mean");
  CHECK(page.dimensions == std::vector<std::string>{"model", "kv_cache_dtype", "recipe",
                                                    "scale_source", "kv_forward", "num_samples"});
  REQUIRE(page.cells.size() == 2);
  CHECK(page.cells[0].choices == std::vector<std::string>{"m1", "float16", "", "", "", ""});
  CHECK(page.cells[0].metrics.at("bytes_per_token") == 20.0);
  CHECK(page.cells[0].is_pareto);
  CHECK(page.cells[1].choices.back() == "8");
  CHECK(page.cells[1].error == "why");
  CHECK(std::isnan(page.cells[1].metrics.at("kl_mean")));
}

TEST_CASE("csv: fields with commas, quotes and line breaks are quoted, as RFC 4180 says") {
  const PlannedSweep all(
      "{models: m1, recipes: max, kv_cache_dtypes: [auto, fp8_e4m3], "
      "num_samples: 8}");
  const std::vector<CellOutcome> outcomes{
      done(0.25, 20),
      {.status = CellOutcome::Status::kFailed, .error = "a \"b\", c\nd", .result = {}}};
  const std::string csv =
      to_csv(results_json({all.sweep, all.plan, test::some_inputs()}, outcomes));
  CHECK(csv ==
        "id,model,recipe,kv_cache_dtype,scale_source,kv_forward,num_samples,seed,status,error,"
        "perplexity,nll,kl_mean,kl_stderr,kl_p99,kl_max,top1_agreement,perplexity_increase,exact_"
        "match_strict,exact_match_strict_stderr,"
        "exact_match_flexible,exact_match_flexible_stderr,bytes_per_token,weight_bytes,is_pareto,"
        "verdict\r\n"
        "m1/float16,m1,,float16,,,,,done,,,,0.25,,,,,,,,,,20,,true,do_not_serve\r\n"
        "m1/max/fp8_e4m3/quantized/8,m1,max,fp8_e4m3,calibrated,quantized,8,,failed,"
        "\"a \"\"b\"\", c\nd\",,,,,,,,,,,,,,,,\r\n");
}

TEST_CASE("metrics: an unknown name is told with the nearest") {
  CHECK(kCellMetrics.at("kl_p99"));
  CHECK_FALSE(kCellMetrics.at("top1_agreement"));
  CHECK(test::contains(test::message_of([] { kCellMetrics.at("kl_men"); }),
                       "did you mean 'kl_mean'?"));
}
