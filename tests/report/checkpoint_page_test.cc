#include "report/checkpoint_report.h"

#include <cstdlib>

#include "core/file.h"
#include "report/assets.h"
#include "report/checkpoint_charts.h"
#include "report/page.h"
#include "report/support/html_check.h"
#include "report/support/page_check.h"
#include "report/support/sample_report.h"
#include "support/catch.h"

using namespace kvcal;
using namespace kvcal::test;
using report::checkpoint_page;
using report::CheckpointReport;

namespace {

report::CacheTensor with_scales_alone(const std::vector<float>& scales) {
  report::CacheTensor tensor;
  tensor.scales = scales;
  return tensor;
}

/// has_engines: their reports are shown, in place of what is known of them in general.
std::string page_with(const std::string& hostile, bool has_engines = false) {
  CheckpointReport report = sample_report({.layers = 2, .heads = 2, .linears_per_layer = 2});
  report.name = report.path = report.model_type = report.scale_format = report.version = hostile;
  report.gaps = {hostile};
  report.architecture = report.origin = {{hostile, hostile}};
  report.tensors = {{hostile, 1, 1}};
  if (has_engines) {
    VerifyReport& engine = report.engines.emplace_back();
    engine.engine = engine.version = engine.kv_cache_dtype = hostile;
    engine.layers = {{.layer = 0, .k = {{1.0f}, hostile}, .v = {{1.0f}, hostile}}};
    engine.findings = {{Severity::kNote, {}, hostile, hostile}};
    report.served = {{.name = hostile, .title = hostile, .note = hostile}};
  }
  report.engine_words = {
      {.name = hostile, .engine = hostile, .version = hostile, .format = hostile, .note = hostile}};
  for (report::CacheLayer& layer : report.layers) {
    layer.dtype = hostile;
    for (report::CacheTensor* side : {&layer.k, &layer.v})
      side->largest = {.record = 1, .text = hostile};
  }
  for (report::Fp8Linear& linear : report.linears) linear.kind = linear.input = hostile;
  return checkpoint_page(report);
}

}  // namespace

TEST_CASE("page: every layer and head is there, in drawings and in tables") {
  const CheckpointReport report = sample_report({.layers = 40, .heads = 6, .linears_per_layer = 7});
  const std::string page = checkpoint_page(report);
  check_page(page);
  for (const report::CacheLayer& layer : report.layers) {
    const std::string number = std::to_string(layer.layer);
    INFO("layer " << number);
    for (const std::string id : {"layer-", "strip-k", "strip-v", "large-k", "large-v", "numbers-"})
      CHECK(count_of(page, " id=\"" + id + number + "\"") == 1);
    CHECK(count_of(page, "href=\"#layer-" + number + "\"") == 5);
  }
  // Heat maps come in blocks of 32 layers; each number stands in a cell and in the table.
  for (const std::string side : {"k", "v"}) {
    CHECK(count_of(page, "<svg id=\"heads-" + side + "-0\"") == 1);
    CHECK(count_of(page, "<svg id=\"heads-" + side + "-32\"") == 1);
    const std::string table = between(page, "id=\"heads-" + side + "-numbers\"", "</table>");
    CHECK(count_of(table, "<td>") == 40 * 6);
    CHECK(count_of(table, "<tr>") == 41);
  }
  CHECK(count_of(page, "class=\"k mark\"") >= 2 * 40);
}

TEST_CASE("page: the policy names our own style and script, and nothing else runs") {
  const std::string page = checkpoint_page(sample_report({}));
  const std::string policy =
      between(page, "http-equiv=\"Content-Security-Policy\" content=\"", "\"");
  CHECK(policy.find("script-src &#39;sha256-" + report::policy_hash(report::kReportJs)) !=
        std::string::npos);
  CHECK(policy.find("unsafe") == std::string::npos);
  CHECK(between(page, "<script>", "</script>") == report::kReportJs);
  const std::string style = std::string(report::kDrawingCss).append(report::kReportCss);
  CHECK(between(page, "<style>", "</style>") == style);
  CHECK(policy.find("style-src &#39;sha256-" + report::policy_hash(style)) != std::string::npos);
  // sha256("") in base64, from RFC 4648's alphabet and FIPS 180's digest.
  CHECK(report::policy_hash("") == "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
  // Neither asset can end its element early.
  CHECK(report::kReportJs.find("</") == std::string_view::npos);
  CHECK(style.find("</") == std::string::npos);
}

TEST_CASE("page: what a checkpoint says stays text") {
  for (const std::string hostile :
       {"</script><script>alert(1)</script>", "\" onload=\"alert(1)", "' onload='alert(1)",
        "<svg/onload=alert(1)>", "&lt;script&gt;", "\x01\x02\x1b[31m\x7f", "\xff\xfe broken",
        "<!-- open", "]]>", "{{7*7}}", "\u202Eevil"}) {
    INFO(hostile);
    for (const bool has_engines : {false, true}) {
      const std::string page = page_with(hostile, has_engines);
      for (const std::string& problem : html_problems(page)) {
        INFO(problem);
        CHECK(problem.empty());
      }
      CHECK(count_of(page, "<script>") == 1);
      CHECK(count_of(page, "</script>") == 1);
      CHECK(count_of(page, "<svg/") == 0);
      CHECK(count_of(page, "<!--") == 0);
      CHECK(count_of(page, "onload=\"") == 0);
    }
  }
  CHECK(page_with(std::string(5'000'000, 'x')).size() < 300'000);
}

TEST_CASE("page: stays small for the largest models") {
  for (const SampleSize size : {SampleSize{.layers = 126, .heads = 8},
                                SampleSize{.layers = 126, .heads = 128, .linears_per_layer = 7},
                                SampleSize{.layers = 126, .heads = 128, .has_head_scales = true}}) {
    const std::string page = checkpoint_page(sample_report(size));
    INFO(size.layers << " layers of " << size.heads << " heads: " << page.size() << " bytes");
    CHECK(page.size() < 2'100'000);
    CHECK(count_of(page, "<svg id=\"heads-k-96\"") == 1);
  }
  // Numbers that no model has are told, not drawn.
  const std::string page = checkpoint_page(sample_report({.layers = 500, .heads = 200}));
  CHECK(count_of(page, "too many heads") == 1);
  CHECK(count_of(page, "heads-k") == 0);
}

TEST_CASE("page: says what is missing instead of showing nothing") {
  CheckpointReport report = sample_report({.layers = 3, .heads = 2});
  for (report::CacheLayer& layer : report.layers) {
    layer.damage.reset();
    for (report::CacheTensor* tensor : {&layer.k, &layer.v})
      *tensor = with_scales_alone(tensor->scales);
  }
  report.gaps = {"There is no manifest."};
  const std::string scales_alone = checkpoint_page(report);
  check_page(scales_alone);
  CHECK(count_of(scales_alone, "There is no manifest.") == 1);
  CHECK(count_of(scales_alone, "needs the manifest") == 2);
  CHECK(count_of(scales_alone, "id=\"scales-chart\"") == 1);  // the limits

  for (report::CacheLayer& layer : report.layers) layer.k = layer.v = {};
  const std::string nothing = checkpoint_page(report);
  check_page(nothing);
  CHECK(count_of(nothing, "0 of 3 layers") == 1);
  // There are no empty sections.
  CHECK(count_of(scales_alone, "<section id=\"scales\"") == 1);
  CHECK(count_of(nothing, "<section id=\"scales\"") == 0);
  for (const std::string id :
       {"damage", "heads", "magnitudes", "convergence", "positions", "weights"}) {
    CHECK(count_of(scales_alone, "<section id=\"" + id + "\"") == 0);
    CHECK(count_of(nothing, "<section id=\"" + id + "\"") == 0);
  }

  report.layers.clear();
  const std::string empty = checkpoint_page(report);
  check_page(empty);
}

TEST_CASE("page: what the cache does to attention, by layer and head") {
  CheckpointReport report = sample_report({.layers = 3, .heads = 2});
  report.layers[1].damage->calibrated.output_error = 0.515f;
  const std::string page = checkpoint_page(report);
  check_page(page);
  const std::string section = between(page, "<section id=\"damage\"", "</section>");
  CHECK(count_of(section, "<title>the scales, layer 1: 0.515</title>") == 1);
  CHECK(count_of(section, "51.5 %") >= 1);
  CHECK(count_of(section, "id=\"damage-heads") >= 1);
  for (report::CacheLayer& layer : report.layers) layer.damage.reset();
  CHECK(count_of(checkpoint_page(report), "<section id=\"damage\"") == 0);
}

TEST_CASE("page: the title names model and data, the chart of scales has scales") {
  CheckpointReport report = sample_report({.layers = 3, .heads = 2});
  report.name = "Llama";
  report.dataset = "";
  CHECK(count_of(checkpoint_page(report), "<h1>Llama: FP8 KV cache</h1>") == 1);
  report.dataset = "chats.jsonl";
  CHECK(count_of(checkpoint_page(report), "<h1>Llama: FP8 KV cache, data set chats.jsonl</h1>") ==
        1);
  const report::SeriesChart chart = report::scales_chart(report);
  REQUIRE(!chart.series.empty());
  CHECK(chart.series[0].name == "K scale");
  CHECK(chart.series[0].values[1] == static_cast<double>(report.layers[1].k.scales[0]));
}

TEST_CASE("page: zeros, dead heads and ragged lists do no harm") {
  CheckpointReport report = sample_report({.layers = 3, .heads = 4});
  report.layers[0].k.head_amax = {0.0f, 0.0f};
  report.layers[0].k.amax = 0.0f;
  report.layers[1].k.head_amax.clear();
  report.layers[1].v.histogram = OctaveCounts{.zeros = 10, .first_octave = 0, .counts = {}};
  report.layers[2].v.histogram = OctaveCounts{};
  report.layers[2].v.scales.clear();
  check_page(checkpoint_page(report));
}

TEST_CASE("page: shares against FP8's range are those of the histogram") {
  CheckpointReport report = sample_report({.layers = 1, .heads = 1});
  // With scale 1, E4M3 has its smallest code at 2^-9, its smallest normal one at 2^-6.
  report.layers[0].k.scales = {1.0f};
  report.layers[0].k.histogram = OctaveCounts{
      .zeros = 10, .first_octave = -11, .counts = {20, 0, 0, 0, 30, 0, 0, 0, 0, 0, 40}};
  const std::string page = checkpoint_page(report);
  const std::string row = between(page, "id=\"numbers-0\"", "</table>");
  CHECK(count_of(row, "<td>30 %<td>30 %<td>100") == 1);  // zeros and [2^-11, …); [2^-9, …)
}

TEST_CASE("page: what each engine loads is what the terminal says, with the reports of verify") {
  CheckpointReport report = sample_report({.layers = 3, .heads = 2});
  report.engines = sample_engines();
  report.served = {
      {.name = "", .title = "vLLM 0.32", .outcome = LoadOutcome::kLost, .note = "v_scale"},
      {.name = "", .title = "SGLang 1", .outcome = LoadOutcome::kLoaded, .note = "serve <it>"},
      {.name = "", .title = "TGI 2", .outcome = LoadOutcome::kNotKnown, .note = "not run"},
      {.name = "", .title = "LMDeploy 3", .outcome = LoadOutcome::kRefused, .note = "no format"}};
  report.warnings = {"scales still move"};
  const std::string page = checkpoint_page(report);
  check_page(page);
  CHECK(count_of(page, "id=\"engines-table\"") == 0);  // what is known in general
  const std::string table = between(page, "id=\"served-table\"", "</table>");
  for (const char* answer : {"<td>✗ lost<td>v_scale", "<td>✓ loaded<td>serve &lt;it&gt;",
                             "<td>? not known<td>not run", "<td>✗ refused<td>no format"})
    CHECK(count_of(table, answer) == 1);
  const std::string answers = between(page, "class=\"verdicts\"", "</ul>");
  CHECK(count_of(answers,
                 "Scales are loaded by SGLang 1; lost or refused by vLLM 0.32, LMDeploy 3; not "
                 "known of TGI 2") == 1);
  CHECK(count_of(answers, "Start SGLang 1: serve &lt;it&gt;") == 1);
  CHECK(count_of(answers, "Warning: scales still move") == 1);
  CHECK(count_of(page, "v_scale is lost: &lt;script&gt;alert(1)") == 1);
  CHECK(count_of(page, "kvcal convert --format compressed-tensors") == 1);
  CHECK(count_of(page, "model.layers.1.self_attn.k_scale") == 1);
  CHECK(count_of(page, "0.01 – 0.03") == 1);
  // An engine of which nothing is known is shown, too.
  report.engines = {{}};
  check_page(checkpoint_page(report));
}

TEST_CASE("page: FP8 weights are drawn by kind, experts of a layer together") {
  CheckpointReport report = sample_report({.layers = 5, .heads = 2, .linears_per_layer = 14});
  report.linears.push_back({.module = "lm_head",
                            .layer = {},
                            .kind = "lm_head",
                            .weight_scale = 0.5f,
                            .num_weight_scales = 100,
                            .input = "16 bits",
                            .input_scale = {}});
  const std::string page = checkpoint_page(report);
  check_page(page);
  const std::string table = between(page, "id=\"weights-table\"", "</table>");
  CHECK(count_of(table, "<tr>") == 1 + 8);
  CHECK(count_of(table, "<td>10<td>10<td>") == 7);       // two modules in each of five layers
  CHECK(count_of(page, "<svg id=\"weights-") == 7 + 2);  // and the legend's marks
  const std::string numbers = between(page, "id=\"weights-numbers\"", "</table>");
  CHECK(count_of(numbers, "<tr>") == 1 + 6);  // and the module that is in no layer
}

TEST_CASE("page: the same report gives the same bytes") {
  const SampleSize size{.layers = 7, .heads = 5, .linears_per_layer = 3};
  CHECK(checkpoint_page(sample_report(size)) == checkpoint_page(sample_report(size)));
}

TEST_CASE("page: how many samples the extremes took, and why calibration ended") {
  CheckpointReport report = sample_report({.layers = 3, .heads = 2});
  // Half of K's amax of layer 1 is seen after the first of four samples, the rest with the third.
  report.layers[1].k.convergence = {
      .num_samples = {1, 2, 4}, .running = {{4.0f}, {4.0f}, {8.0f}}, .low = {4.0f}, .high = {8.0f}};
  report.stop =
      StopOutcome{.rule = {.ratio = 0.01, .window = 32},
                  .num_samples = 96,
                  .max_samples = 512,
                  .is_stable = true,
                  .largest_move = ScaleMove{
                      .module = "model.layers.2.self_attn", .scale = "k_scale", .ratio = 0.0031}};
  std::string page = checkpoint_page(report);
  check_page(page);
  CHECK(count_of(page, "<svg id=\"convergence-1\"") == 1);
  CHECK(count_of(page, "K: 50 % of the final amax after the first sample, 99 % after 4.") == 1);
  const std::string table = between(page, "id=\"convergence-table\"", "</table>");
  CHECK(count_of(table, "<td>8<td>50 %<td>4<td>4<td>4 – 8") == 1);
  CHECK(count_of(page,
                 "stopped after 96 of at most 512 samples, when no scale moved by more than "
                 "1 % over 32 samples; the largest move was 0.31 %, of k_scale of "
                 "model.layers.2.self_attn.") == 1);
  report.stop->is_stable = false;
  report.stop->largest_move.reset();
  CHECK(count_of(checkpoint_page(report), "Calibration used all 96 samples") == 1);

  report.stop.reset();
  for (report::CacheLayer& layer : report.layers) layer.k.convergence = layer.v.convergence = {};
  page = checkpoint_page(report);
  check_page(page);
  CHECK(count_of(page, "<section id=\"convergence\"") == 0);
  CHECK(count_of(page, "Calibration stopped") == 0);
}

TEST_CASE("page: convergence shows the worst layer and the one in the middle") {
  CheckpointReport report = sample_report({.layers = 3, .heads = 1});
  const float first[] = {9.0f, 2.0f, 5.0f};
  for (size_t i = 0; i < 3; ++i)
    report.layers[i].k.convergence = {
        .num_samples = {1, 3}, .running = {{first[i]}, {10.0f}}, .low = {9.0f}, .high = {10.0f}};
  for (report::CacheLayer& layer : report.layers) layer.v.convergence = {};
  const std::string chart =
      between(checkpoint_page(report), "<svg id=\"convergence-chart\"", "</svg>");
  CHECK(count_of(chart, "<title>K, the worst layer, samples 1: 0.2</title>") == 1);
  CHECK(count_of(chart, "<title>K, the median layer, samples 1: 0.5</title>") == 1);
  CHECK(count_of(chart, "<title>K, the worst layer, samples 3: 1</title>") == 1);
}

TEST_CASE("plots: every drawing of a checkpoint is a file of its own") {
  CheckpointReport report = sample_report({.layers = 40, .heads = 3});
  const std::vector<std::string> names{"scales",      "heads-k",   "heads-v", "magnitudes",
                                       "convergence", "positions", "damage"};
  check_plots(report::checkpoint_plots(report), names);
  report.name = "</svg><script>alert(1)</script>";
  check_plots(report::checkpoint_plots(report), names);
  CHECK(plot_svg(report::checkpoint_plots(report)[0]) ==
        plot_svg(report::checkpoint_plots(report)[0]));
  // What is not known is left out.
  for (report::CacheLayer& layer : report.layers) {
    layer.k = layer.v = with_scales_alone({0.5f});
    layer.damage.reset();
  }
  check_plots(report::checkpoint_plots(report), {"scales"});
  report.layers.clear();
  check_plots(report::checkpoint_plots(report), {});
}

TEST_CASE("plots: the magnitudes are those of the layers that lose most") {
  CheckpointReport report = sample_report({.layers = 12, .heads = 1});
  for (report::CacheLayer& layer : report.layers)
    for (report::CacheTensor* side : {&layer.k, &layer.v}) {
      side->scales = {1.0f};
      side->saturated = 0.0;
      side->histogram = OctaveCounts{.zeros = 0, .first_octave = 0, .counts = {100}};
    }
  for (const size_t i : {2, 7, 9}) report.layers[i].v.histogram->zeros = 10 * i;
  report.layers[4].k.saturated = 0.9;
  const report::Plot plot = report::checkpoint_plots(report).back().name == "magnitudes"
                                ? report::checkpoint_plots(report).back()
                                : report::checkpoint_plots(report)[3];
  std::vector<std::string> titles;
  for (const report::Drawing& drawing : plot.drawings)
    if (drawing.css_class == "magnitudes") titles.push_back(drawing.title);
  CHECK(titles == std::vector<std::string>{"K magnitudes, layer 4", "V magnitudes, layer 9",
                                           "V magnitudes, layer 7", "V magnitudes, layer 2"});
}

TEST_CASE("page: samples for a browser", "[.][pages]") {
  const char* folder = std::getenv("KVCAL_REPORT_PAGES");
  REQUIRE(folder != nullptr);
  CheckpointReport engines = sample_report({.layers = 3, .heads = 2, .linears_per_layer = 7});
  engines.engines = sample_engines();
  const CheckpointReport wide =
      sample_report({.layers = 80, .heads = 64, .has_head_scales = true, .linears_per_layer = 7});
  write_file_atomically(fs::path(folder) / "engines.html", checkpoint_page(engines), true);
  write_file_atomically(fs::path(folder) / "wide.html", checkpoint_page(wide), true);
  for (const report::Plot& plot : report::checkpoint_plots(engines))
    write_file_atomically(fs::path(folder) / (plot.name + ".svg"), plot_svg(plot), true);
  CHECK(fs::file_size(fs::path(folder) / "wide.html") > 100'000);
}
