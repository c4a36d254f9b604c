#include "report/eval_report.h"

#include <cstdlib>

#include "core/file.h"
#include "report/eval_charts.h"
#include "report/support/html_check.h"
#include "report/support/page_check.h"
#include "report/support/report_reader.h"
#include "support/catch.h"

using namespace kvcal;
using namespace kvcal::test;
using report::eval_page;
using report::EvalReport;
using report::read_eval_report;

namespace {

EvalReport report_of(const std::string& json) {
  return read_eval_report(parse_json(json));
}

/// Every string of a result replaced.
void replace_strings(Json& json, const std::string& text) {
  if (json.is_string()) json = text;
  if (json.is_structured())
    for (Json& part : json) replace_strings(part, text);
}

}  // namespace

TEST_CASE("eval page: every variant, layer, position and sequence is there") {
  const std::string page = eval_page(read_eval_report(result_fixture("kl")));
  check_page(page);
  const std::string variants = between(page, "id=\"variants-table\"", "</table>");
  CHECK(count_of(variants, "<tr>") == 1 + 4);
  for (const char* column : {"perplexity", "mean KL", "p99 KL", "largest KL", "same top token"})
    CHECK(count_of(variants, column) >= 1);
  CHECK(count_of(variants, "exact match") == 0);  // nothing was asked
  CHECK(count_of(variants, "<td data-value=\"0.0061\">0.0061") == 1);
  CHECK(count_of(between(page, "id=\"layers-table\"", "</table>"), "<tr>") == 1 + 30);
  CHECK(count_of(between(page, "id=\"kl-positions-table\"", "</table>"), "<tr>") == 1 + 11);
  CHECK(count_of(between(page, "id=\"nll-positions-table\"", "</table>"), "reference") == 1);
  CHECK(count_of(between(page, "id=\"sequences-table\"", "</table>"), "<tr>") == 1 + 4);
  for (const char* chart : {"layers", "kl-positions", "nll-positions", "sequences"})
    CHECK(count_of(page, std::string("<svg id=\"") + chart + "-chart\"") == 1);
  // Four variants at 11 ranges of positions, each with its standard error; so has the reference.
  CHECK(count_of(between(page, "<svg id=\"kl-positions-chart\"", "</svg>"), " deviation\"") ==
        4 * 11);
  CHECK(count_of(between(page, "<svg id=\"nll-positions-chart\"", "</svg>"), " deviation\"") ==
        5 * 11);
  // Four variants in 30 layers, each with a mark.
  CHECK(count_of(between(page, "<svg id=\"layers-chart\"", "</svg>"), "layer 29: ") == 4);
}

TEST_CASE("eval page: the first difference of texts is marked, and KL is told") {
  const std::string page = eval_page(read_eval_report(result_fixture("kl")));
  const std::string first = between(page, "Prompt 1", "Prompt 2");
  CHECK(count_of(first, "the same as the reference") == 1);
  CHECK(count_of(first, "differs from token 6 on") == 1);
  // In the variant and where the reference went on otherwise.
  CHECK(count_of(first, "<mark>") == 2);
  CHECK(count_of(first, "<mark><span class=\"hidden\">first difference: </span> a</mark>") == 1);
  CHECK(count_of(between(first, "id=\"tokens-0\"", "</table>"), "“ which”") == 1);
  CHECK(count_of(page, "&lt;b&gt;bold&lt;/b&gt;") >= 3);
  CHECK(count_of(page, "<b>") == 0);
}

TEST_CASE("eval page: shades are powers of ten of KL") {
  const std::string page = eval_page(report_of(
      R"({"task": "kl", "texts": [{"prompt": "p", "reference": {"name": "r", "tokens": ["a"]}, "variants":
          [{"name": "v", "tokens": ["a", "b", "c", "d", "e", "f"], "first_divergence": 1,
            "kl": [0, 0.0009, 0.001, 0.05, 0.5, 20]}]}]})"));
  check_page(page);
  CHECK(count_of(page, "<span class=\"token shade0\" title=\"KL 0\">a</span>") == 1);
  CHECK(count_of(page, "<span class=\"token shade0\" title=\"KL 0.0009\">b</span></mark>") == 1);
  CHECK(count_of(page, "<span class=\"token shade1\" title=\"KL 0.001\">c</span>") == 1);
  CHECK(count_of(page, "<span class=\"token shade2\" title=\"KL 0.05\">d</span>") == 1);
  CHECK(count_of(page, "<span class=\"token shade3\" title=\"KL 0.5\">e</span>") == 1);
  CHECK(count_of(page, "<span class=\"token shade4\" title=\"KL 20\">f</span>") == 1);
}

TEST_CASE("eval page: layers to keep, their KL, bytes and argument") {
  const std::string page = eval_page(read_eval_report(result_fixture("sensitivity")));
  check_page(page);
  const std::string chart = between(page, "<svg id=\"sensitivity-chart\"", "</svg>");
  CHECK(count_of(chart, "class=\"ring\"") == 1);
  CHECK(count_of(chart, "budget 0.004") == 1);
  CHECK(count_of(chart, "class=\"point\"") == 8 + 1);  // and 16 bits
  CHECK(count_of(chart, "all layers in 16 bits: 23.0 kB") == 1);
  CHECK(count_of(page, "--kv-cache-dtype-skip-layers") == 1);
  CHECK(count_of(page, "QuantizationModifier") == 1);
  CHECK(count_of(between(page, "id=\"ranking-table\"", "</table>"), "<tr>") == 1 + 30);
}

TEST_CASE("eval page: questions with what was found and what is right") {
  const EvalReport report = read_eval_report(result_fixture("gsm8k"));
  REQUIRE(report.variants.size() == 1);
  CHECK(report.variants[0].cache.name == "fp8_e4m3");
  const std::string page = eval_page(report);
  check_page(page);
  const std::string table = between(page, "id=\"questions-table\"", "</table>");
  CHECK(count_of(table, "\n<tr>") == 12);
  // Of 0 to 11, 3, 6 and 9 are wrong; strict finds nothing in 0, 5 and 10.
  CHECK(count_of(table, "<td>✗ wrong") == 3 + 6);
  CHECK(count_of(table, "[invalid]") == 3);
  CHECK(count_of(table, "Question: What is 7 times 4?") == 1);
  CHECK(count_of(table, "an example?") == 0);
  CHECK(count_of(page, "<td data-value=\"0.75\">75") == 1);
}

TEST_CASE("eval page: what was not measured is left out") {
  const EvalReport bare = report_of(
      R"({"task": "perplexity", "kv_cache_dtype": "auto", "scales": "none", "num_tokens": 5,
          "nll": 2.5, "perplexity": 12.182493960703473})");
  const std::string page = eval_page(bare);
  check_page(page);
  CHECK(count_of(page, ">12.182") == 2);  // a tile and the table
  for (const char* section : {"layers", "positions", "sequences", "texts", "sensitivity"})
    CHECK(count_of(page, std::string("<section id=\"") + section) == 0);
  check_plots(eval_plots(bare), {});
  check_page(eval_page(report_of(R"({"task": ""})")));
  check_page(eval_page(report_of(R"({"task": "kl", "variants": [], "texts": []})")));
  // Numbers that are not there, nulls and zeros in every place.
  check_page(eval_page(report_of(
      R"({"task": "kl", "variants": [{"name": "v", "kl_mean": 0, "perplexity": null,
          "positions": [{"first": 0, "last": 0}, {"first": 1, "last": 1, "kl_mean": 0}],
          "layers": [{"layer": 3}, {"layer": 5, "kl_mean": 0.0}],
          "sequences": [{}, {"kl_mean": 0}]}], "sensitivity": {"rows": [{}]}})")));
}

TEST_CASE("eval page: the verdicts are the first to read") {
  EvalReport report = read_eval_report(result_fixture("kl"));
  CHECK(count_of(eval_page(report), "class=\"verdicts\"") == 0);
  report.variants[1].verdict = "do not serve so: KL <0.37>";
  const std::string page = eval_page(report);
  check_page(page);
  CHECK(count_of(page, "<ul class=\"verdicts\"><li>" + report.variants[1].cache.name +
                           ": do not serve so: KL &lt;0.37&gt;</li></ul>") == 1);
  CHECK(page.find("class=\"verdicts\"") < page.find("class=\"tile"));
}

TEST_CASE("eval page: what a result says stays text") {
  for (const std::string hostile :
       {"</script><script>alert(1)</script>", "\" onload=\"alert(1)", "<svg/onload=alert(1)>",
        "\x01\x1b[31m", "<!-- open", "\u202Eevil"}) {
    INFO(hostile);
    for (const char* name : {"kl", "sensitivity", "gsm8k"}) {
      Json result = result_fixture(name);
      replace_strings(result, hostile);
      const EvalReport report = read_eval_report(result);
      check_page(eval_page(report));
      for (const report::Plot& plot : eval_plots(report))
        CHECK(xml_problems(plot_svg(plot)).empty());
    }
  }
}

TEST_CASE("eval report: what has another type is an error that names its place") {
  const auto message = [](const std::string& json) {
    try {
      report_of(json);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  CHECK(message("[]") == "found an array, expected an object");
  CHECK(message("{}").find("task") != std::string::npos);
  CHECK(message(R"({"task": "kl", "variants": 3})").find("key 'variants'") == 0);
  CHECK(message(R"({"task": "kl", "variants": [{}, {"positions": [{"first": "x"}]}]})")
            .find("variants[1]: positions[0]: key 'first'") == 0);
  CHECK(message(R"({"task": "kl", "texts": [{}]})").find("texts[0]: ") == 0);
  CHECK(message(R"({"task": "kl", "sensitivity": {"rows": [{"layers": [1.5]}]}})")
            .find("sensitivity: rows[0]: layers[0]: ") == 0);
}

TEST_CASE("plots: every chart of an evaluation is a file of its own") {
  check_plots(eval_plots(read_eval_report(result_fixture("kl"))),
              {"kl-by-layer", "kl-by-position", "nll-by-position", "kl-by-sequence"});
  check_plots(eval_plots(read_eval_report(result_fixture("sensitivity"))),
              {"sensitivity", "ranking"});
}

TEST_CASE("quantile: linear between the values that are numbers") {
  CHECK(report::quantile({4, 1, 3, 2}, 0.5) == 2.5);
  CHECK(report::quantile({4, 1, 3, 2}, 0.0) == 1.0);
  CHECK(report::quantile({4, 1, 3, 2}, 1.0) == 4.0);
  CHECK(report::quantile({7, std::nan("")}, 0.3) == 7.0);
  CHECK(std::isnan(report::quantile({}, 0.5)));
}

TEST_CASE("page: samples of evaluations for a browser", "[.][pages]") {
  const char* folder = std::getenv("KVCAL_REPORT_PAGES");
  REQUIRE(folder != nullptr);
  for (const char* name : {"kl", "sensitivity", "gsm8k"}) {
    const EvalReport report = read_eval_report(result_fixture(name));
    write_file_atomically(fs::path(folder) / (std::string(name) + ".html"), eval_page(report),
                          true);
    for (const report::Plot& plot : eval_plots(report))
      write_file_atomically(fs::path(folder) / (plot.name + ".svg"), plot_svg(plot), true);
  }
  CHECK(fs::exists(fs::path(folder) / "kl-by-layer.svg"));
}
