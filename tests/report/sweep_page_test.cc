#include <cmath>
#include <cstdlib>

#include "core/file.h"
#include "report/support/html_check.h"
#include "report/support/page_check.h"
#include "report/support/report_reader.h"
#include "report/sweep_report.h"
#include "support/catch.h"

using namespace kvcal;
using namespace kvcal::test;
using report::read_sweep_report;
using report::sweep_page;
using report::SweepReport;

TEST_CASE("sweep page: every cell is a row and a mark, failures say why") {
  const SweepReport report = read_sweep_report(result_fixture("sweep"));
  const std::string page = sweep_page(report);
  check_page(page);
  CHECK(report.cells.size() == 22);
  const std::string table = between(page, "id=\"cells-table\"", "</table>");
  CHECK(count_of(table, "\n<tr data-key=") == 22);
  CHECK(count_of(table, "<td class=\"word\">✓ done") == 20);
  const std::string chart = between(page, "<svg id=\"pareto-chart\"", "</svg>");
  CHECK(count_of(chart, "<g class=\"point\"") == 20);
  CHECK(count_of(chart, "class=\"ring\"") == 2);
  CHECK(count_of(chart, "class=\"front\"") == 1);
  for (const report::SweepCell& cell : report.cells)
    if (cell.is_done()) CHECK(count_of(chart, "data-key=\"" + cell.id + "\"") == 1);
  const std::string failures = between(page, "id=\"failures-table\"", "</table>");
  CHECK(count_of(failures, "\n<tr>") == 1);
  CHECK(count_of(failures, "expected &lt;minmax&gt;; did you mean &#39;minmax&#39;?") == 1);
  CHECK(count_of(page, "20 of 22") == 1);
  CHECK(count_of(page, "1 failed, 1 not yet run") == 1);
}

TEST_CASE("sweep page: choices are the cells' texts and whole numbers") {
  const SweepReport report = read_sweep_report(result_fixture("sweep"));
  CHECK(report.dimensions == std::vector<std::string>{"model", "kv_cache_dtype", "scale_source",
                                                      "recipe", "kv_forward", "num_samples",
                                                      "seed"});
  const std::string page = sweep_page(report);
  // A list each for the columns that have several values; the script makes it of these.
  CHECK(count_of(between(page, "id=\"cells-table\"", "<tbody>"), "data-column=\"choice\"") == 9);
  // Of the dimensions in which cells that are done differ.
  std::vector<std::string> titles;
  for (const report::SpreadChart& chart : report::choice_charts(report))
    titles.push_back(chart.title);
  CHECK(titles == std::vector<std::string>{"mean KL by kv cache dtype", "mean KL by scale source",
                                           "mean KL by recipe", "mean KL by kv forward"});
  CHECK(report::choice_words("recipes/kv_mse.yaml") == "kv_mse");
  CHECK(report::choice_words("a/b/SmolLM2-135M") == "SmolLM2-135M");
  CHECK(report::choice_words("fp8_e4m3") == "fp8_e4m3");
}

TEST_CASE("pareto picture: marks on one spot stand beside each other, zero has a place") {
  const SweepReport report = read_sweep_report(parse_json(
      R"({"pareto": {"x": "bytes_per_token", "y": "kl_mean"}, "cells": [
          {"id": "a", "status": "done", "bytes_per_token": 10, "kl_mean": 0.5},
          {"id": "b", "status": "done", "bytes_per_token": 10, "kl_mean": 0.5},
          {"id": "zero", "status": "done", "bytes_per_token": 20, "kl_mean": 0, "is_pareto": true},
          {"id": "no", "status": "done", "bytes_per_token": 20},
          {"id": "other", "status": "failed", "bytes_per_token": 20, "kl_mean": 1}]})"));
  const report::ScatterChart chart = report::pareto_chart(report);
  REQUIRE(chart.points.size() == 3);
  CHECK(chart.front == std::vector<size_t>{2});
  const std::string drawn = draw_scatter(chart).content.str();
  const auto place = [&](const std::string& id, const std::string& key) {
    const std::string mark = between(drawn, "data-key=\"" + id + "\">", "</g>");
    const std::string outline = between(mark, "<circle class=\"s0 mark\"", ">");
    return std::stod(between(outline, key + "=\"", "\""));
  };
  CHECK(place("b", "cx") == Approx(place("a", "cx") + 8));
  CHECK(place("b", "cy") == Approx(place("a", "cy")));
  CHECK(place("zero", "cy") > place("a", "cy") + 20);
  CHECK(place("zero", "cx") > place("a", "cx") + 100);
}

TEST_CASE("pareto picture: a standard error is a bar and is told in words") {
  const auto drawn = [](const std::string& more) {
    const report::ScatterChart chart = report::pareto_chart(read_sweep_report(parse_json(
        R"({"pareto": {"x": "bytes_per_token", "y": "kl_mean"}, "cells": [
            {"id": "a", "status": "done", "bytes_per_token": 10, "kl_mean": 0.5)" +
        more + "}]}")));
    return draw_scatter(chart).content.str();
  };
  CHECK(count_of(drawn(""), "deviation") == 0);
  const std::string with_bar = drawn(R"(, "kl_stderr": 0.125)");
  CHECK(count_of(with_bar, "class=\"s0 deviation\"") == 1);
  CHECK(count_of(with_bar, "mean KL 0.5 ± 0.125") == 1);
}

TEST_CASE("chart: an axis says that it is logarithmic, marks its breaks and keeps its numbers") {
  report::ScatterChart chart{.id = "c",
                             .x_title = "bytes",
                             .y_title = "KL, nats",
                             .points = {{.x = 100, .y = 0.5}, {.x = 110, .y = 0.25}}};
  const report::Drawing log = draw_scatter(chart);
  CHECK(count_of(log.pane.str(), "KL, nats, logarithmic") == 1);
  CHECK(count_of(log.pane.str(), "break") == 0);     // no value is left out
  CHECK(count_of(log.content.str(), "break") == 1);  // bytes do not begin at 0
  CHECK(count_of(log.content.str(), ">0</text>") == 0);
  chart.points.push_back({.x = 0, .y = 0});
  const report::Drawing from_zero = draw_scatter(chart);
  CHECK(count_of(from_zero.pane.str(), "break") == 1);  // between 0 and the powers of ten
  CHECK(count_of(from_zero.content.str(), "break") == 0);
  CHECK(count_of(from_zero.pane.str(), ">0</text>") == 1);
  // In a page the numbers are a part of their own; in a file they are in the drawing.
  const std::string framed = report::framed(log).str(), whole = report::svg(log).str();
  CHECK(count_of(framed, "class=\"pane\"") == 1);
  CHECK(count_of(between(framed, "class=\"pane\"", "</svg>"), "logarithmic") == 1);
  CHECK(count_of(whole, "<svg") == 1);
  CHECK(count_of(whole, "logarithmic") == 1);
}

TEST_CASE("pareto picture: labels say what tells cells apart, but for what is usual") {
  Json results = {{"pareto", {{"x", "bytes_per_token"}, {"y", "kl_mean"}}},
                  {"cells", Json::array()}};
  const auto add = [&](const char* recipe, int samples, Json seed) {
    results["cells"].push_back({{"id", "cell " + std::to_string(results["cells"].size())},
                                {"model", "a/model"},
                                {"recipe", recipe},
                                {"num_samples", samples},
                                {"seed", seed},
                                {"status", "done"},
                                {"bytes_per_token", 1},
                                {"kl_mean", 0.1}});
  };
  for (const char* recipe : {"mse.yaml", "max.yaml", "p.yaml", "q.yaml"}) add(recipe, 64, nullptr);
  add("max.yaml", 16, nullptr);
  add("max.yaml", 64, 7);
  std::vector<std::string> labels;
  for (const report::ScatterPoint& point : report::pareto_chart(read_sweep_report(results)).points)
    labels.push_back(point.label);
  // The recipe is told by the mark; 64 samples and no seed are usual.
  CHECK(labels == std::vector<std::string>{"cell 0", "cell 1", "cell 2", "cell 3", "num samples 16",
                                           "seed 7"});
  for (Json& cell : results["cells"]) cell["kv_cache_dtype"] = "fp8_e4m3";
  results["cells"][0]["kv_cache_dtype"] = "fp8_e5m2";
  labels.clear();
  for (const report::ScatterPoint& point : report::pareto_chart(read_sweep_report(results)).points)
    labels.push_back(point.label);
  CHECK(labels ==
        std::vector<std::string>{"mse", "max", "p", "q", "max · num samples 16", "max · seed 7"});
}

TEST_CASE("sweep page: empty, unfinished and hostile results") {
  check_page(sweep_page(read_sweep_report(parse_json("{}"))));
  check_plots(sweep_plots(read_sweep_report(parse_json("{}"))), {});
  const std::string pending = sweep_page(
      read_sweep_report(parse_json(R"({"pareto": {"x": "bytes_per_token", "y": "kl_mean"},
                     "cells": [{"id": "a", "status": "pending"}]})")));
  check_page(pending);
  CHECK(count_of(pending, "No cell has both measures yet.") == 1);
  Json hostile = result_fixture("sweep");
  for (Json& cell : hostile.at("cells"))
    for (const char* key : {"id", "model", "recipe", "kv_cache_dtype", "error"})
      cell[key] = "\"></svg><script>alert(1)</script>" + cell.at("id").get<std::string>();
  check_page(sweep_page(read_sweep_report(hostile)));
  for (const report::Plot& plot : sweep_plots(read_sweep_report(hostile)))
    CHECK(xml_problems(plot_svg(plot)).empty());
}

TEST_CASE("sweep report: what is wrong is an error that names its place") {
  const auto message = [](const std::string& json) {
    try {
      read_sweep_report(parse_json(json));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  CHECK(message(R"({"cells": [{"id": "a", "status": "done"}, {"status": "done"}]})")
            .find("cells[1]: ") == 0);
  CHECK(message(R"({"cells": [{"id": "a", "status": "done", "kl_mean": "x"}]})")
            .find("cells[0]: key 'kl_mean'") == 0);
  CHECK(message(R"({"pareto": {"x": "bytes", "y": "kl_mean"}})").find("pareto: 'bytes'") == 0);
}

TEST_CASE("plots: of a sweep") {
  check_plots(sweep_plots(read_sweep_report(result_fixture("sweep"))),
              {"pareto", "choices-1", "choices-2", "choices-3", "choices-4"});
}

TEST_CASE("sweep page: stays quick for a grid of thousands") {
  Json results = {{"pareto", {{"x", "bytes_per_token"}, {"y", "kl_mean"}}},
                  {"cells", Json::array()}};
  for (int i = 0; i < 2000; ++i)
    results["cells"].push_back({{"id", "cell " + std::to_string(i)},
                                {"status", "done"},
                                {"seed", i % 10},
                                {"kv_forward", i % 3 ? "quantized" : "exact"},
                                {"bytes_per_token", 100 + i % 2},
                                {"kl_mean", 0.01 * (1 + i % 7)}});
  const std::string page = sweep_page(read_sweep_report(results));
  check_page(page);
  CHECK(page.size() < 2'000'000);
}

TEST_CASE("page: a sample of a sweep for a browser", "[.][pages]") {
  const char* folder = std::getenv("KVCAL_REPORT_PAGES");
  REQUIRE(folder != nullptr);
  const SweepReport report = read_sweep_report(result_fixture("sweep"));
  write_file_atomically(fs::path(folder) / "sweep.html", sweep_page(report), true);
  for (const report::Plot& plot : sweep_plots(report))
    write_file_atomically(fs::path(folder) / (plot.name + ".svg"), plot_svg(plot), true);
  CHECK(fs::exists(fs::path(folder) / "pareto.svg"));
}
