#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <utility>

#include "core/text.h"
#include "report/checkpoint_charts.h"
#include "report/markup.h"

namespace kvcal::report {
namespace {

/// How many times the largest head's amax is the smallest's.
double head_spread(const CacheTensor& tensor) {
  if (tensor.head_amax.size() < 2) return std::nan("");
  const auto [least, largest] = std::ranges::minmax(tensor.head_amax);
  return least > 0.0f ? static_cast<double>(largest) / static_cast<double>(least) : std::nan("");
}

/// The largest number of all K and V, and the tensor that has it; null where none is known.
struct Worst {
  double value = std::nan("");
  std::string where = {};  ///< "K of layer 3"
  const CacheTensor* tensor = nullptr;
};
template <class Number>
Worst worst_of(const CheckpointReport& report, const Number& number) {
  Worst worst;
  for (const CacheLayer& layer : report.layers)
    for (const CacheSide& side : kCacheSides) {
      const CacheTensor& tensor = layer.*side.tensor;
      const double value = number(tensor);
      if (std::isnan(value) || value <= worst.value) continue;
      worst = {value, std::string(side.name) + " of layer " + std::to_string(layer.layer), &tensor};
    }
  return worst;
}

/// Adds the largest number of all K and V, and the layer that has it. is_needed: says so where none
/// is known.
template <class Number, class Text>
void add_worst(Tiles& tiles, std::string_view name, const CheckpointReport& report, bool is_needed,
               const Number& number, const Text& text) {
  const Worst worst = worst_of(report, number);
  if (worst.tensor)
    tiles.add(name, text(worst.value), worst.value == 0.0 ? "in every layer" : worst.where);
  else if (is_needed)
    tiles.add(name, "not known", "needs the manifest");
}

/// The value furthest from the others, and the token that has it.
void add_outlier(Tiles& tiles, const CheckpointReport& report) {
  const Worst worst = worst_of(report, outlier_ratio);
  if (!worst.tensor) return;
  tiles.add("Furthest outlier", number_text(worst.value, 2) + " ×",
            "what 99.9 % of " + worst.where + " stay below" +
                (worst.tensor->largest ? "; " + place_words(*worst.tensor->largest) : ""));
}

bool has_scales(const CacheLayer& layer) {
  return !layer.k.scales.empty();
}

/// Whether a scale or a statistic of the cache, or a weight in FP8, is known.
bool is_calibrated(const CheckpointReport& report) {
  const auto is_known = [](const CacheTensor& tensor) {
    return !tensor.scales.empty() || tensor.amax || tensor.histogram;
  };
  return !report.linears.empty() || report.stop ||
         std::ranges::any_of(report.layers, [&](const CacheLayer& layer) {
           return is_known(layer.k) || is_known(layer.v);
         });
}

/// "Scales are loaded by vLLM 0.33 (run 2026-11-30), lost or refused by LMDeploy 0.18.0".
std::string engines_sentence(const std::vector<ServedEngine>& engines) {
  std::vector<std::string> parts;
  const auto add = [&](const std::string& words, const std::string& titles) {
    if (!titles.empty()) parts.push_back(words + titles);
  };
  add("loaded by ", titles_of(engines, {LoadOutcome::kLoaded}));
  add("lost or refused by ", titles_of(engines, {LoadOutcome::kLost, LoadOutcome::kRefused}));
  add("not known of ", titles_of(engines, {LoadOutcome::kNotKnown}));
  return "Scales are " + join(parts, "; ");
}

/// "Start vLLM 0.33 (run 2026-11-30): vllm serve OUT", of the first engine that loads the scales;
/// empty: none does.
std::string start_sentence(const std::vector<ServedEngine>& engines) {
  const auto loading = std::ranges::find(engines, LoadOutcome::kLoaded, &ServedEngine::outcome);
  return loading == engines.end() ? "" : "Start " + loading->title + ": " + loading->note;
}

/// What is good, what to do, and where it is served.
std::vector<std::string> answers_of(const CheckpointReport& report) {
  std::vector<std::string> answers = report.verdicts;
  for (const std::string& warning : report.warnings) answers.push_back("Warning: " + warning);
  if (report.served.empty()) return answers;
  answers.push_back(engines_sentence(report.served));
  if (std::string start = start_sentence(report.served); !start.empty())
    answers.push_back(std::move(start));
  return answers;
}

Section summary_section(const CheckpointReport& report) {
  const auto scaled = std::ranges::find_if(report.layers, has_scales);
  const char* granularity = scaled == report.layers.end()  ? "engines take 1.0"
                            : scaled->k.scales.size() == 1 ? "by tensor"
                            : scaled->has_channel_scales   ? "by channel"
                                                           : "by head";
  Tiles tiles;
  tiles.add(report.format.is_int8() ? "INT8 scales of the cache" : "FP8 scales of the cache",
            std::to_string(std::ranges::count_if(report.layers, has_scales)) + " of " +
                counted(report.layers.size(), "layer"),
            (scaled == report.layers.end() ? "" : report.scale_format + ", ") + granularity);
  tiles.add("Cache of one token", byte_text(report.cache_bytes_fp8),
            byte_text(report.cache_bytes_16_bit) + " in 16 bits");
  const bool is_seen = is_calibrated(report);
  add_worst(
      tiles, "Most clipped", report, is_seen,
      [](const CacheTensor& tensor) { return tensor.saturated.value_or(std::nan("")); },
      share_text);
  add_worst(
      tiles, "Most rounded to 0", report, is_seen,
      [&](const CacheTensor& tensor) { return zero_share(tensor, report.format); }, share_text);
  add_outlier(tiles, report);
  add_worst(tiles, "Heads furthest apart", report, false, head_spread,
            [](double spread) { return number_text(spread) + " ×"; });
  tiles.add(
      "Weights", byte_text(report.bytes),
      number_text(static_cast<double>(report.parameters) / 1e6) + " M parameters" +
          (report.linears.empty() ? std::string()
                                  : ", " + counted(report.linears.size(), "module") + " in FP8"));
  Markup body = verdicts_list(answers_of(report));
  body.append(tiles.finish());
  if (!report.gaps.empty()) {
    body.open("div", {{"class", "gaps"}, {"role", "note"}}).element("h3", "What is missing");
    body.open("ul");
    for (const std::string& gap : report.gaps) body.element("li", gap);
    body.close("ul").close("div");
  }
  return {"summary", "At a glance", body};
}

std::string name_of(const VerifyReport& engine) {
  return engine.engine + " " + dated_version(engine.version, engine.run_on);
}

/// One number, or least and largest of those of heads; "–" for none.
std::string value_text(const EngineLayer& layer, const EngineScale& scale) {
  if (layer.is_16_bit) return "–";
  if (scale.values.size() != 1) {
    std::vector<float> finite;
    std::ranges::copy_if(scale.values, std::back_inserter(finite),
                         [](float value) { return std::isfinite(value); });
    return range_text(finite);
  }
  const float value = scale.values.front();
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return number_text(value);
}

std::string source_text(const EngineLayer& layer, const EngineScale& scale) {
  if (layer.is_16_bit) return {};
  return scale.source.empty() ? "default" : scale.source;
}

/// The answer as the terminal has it, behind a mark.
std::string outcome_words(LoadOutcome outcome) {
  const char* mark = outcome == LoadOutcome::kLoaded     ? "✓ "
                     : outcome == LoadOutcome::kNotKnown ? "? "
                                                         : "✗ ";
  return mark + std::string(kvcal::name_of(outcome));
}

Markup findings(const VerifyReport& engine) {
  Markup out;
  out.open("ul", {{"class", "findings"}});
  for (const Finding& finding : engine.findings) {
    const std::string severity(kvcal::name_of(finding.severity));
    out.open("li", {{"class", severity}}).element("strong", severity + ": ");
    if (!finding.layers.empty()) out.text("layers " + kvcal::range_text(finding.layers) + ": ");
    out.text(finding.message);
    if (!finding.remedy.empty()) out.text(" ").element("em", finding.remedy);
    out.close("li");
  }
  return engine.findings.empty() ? Markup() : out.close("ul");
}

/// What the engine's rules find, and the scale of each layer that it would hold.
Markup engine_details(const VerifyReport& engine, size_t index) {
  TableMarkup table({.id = "engine-" + std::to_string(index),
                     .caption = "What " + name_of(engine) + " would hold",
                     .is_sortable = false,
                     .has_text = true},
                    {{"layer"}, {"K scale"}, {"V scale"}, {"K from"}, {"V from"}});
  for (const EngineLayer& layer : engine.layers)
    table.row(std::to_string(layer.layer))
        .cell(value_text(layer, layer.k))
        .cell(value_text(layer, layer.v))
        .cell(source_text(layer, layer.k))
        .cell(source_text(layer, layer.v));
  Markup body = findings(engine);
  if (engine.loads) body.append(table.finish());
  return body.empty() ? body : folded(name_of(engine), body);
}

Markup engine_words(const CheckpointReport& report) {
  TableMarkup table({.id = "engines-table",
                     .caption = "Engines and formats, as far as they were tried",
                     .is_sortable = true,
                     .has_text = true},
                    {{"engine"}, {"format"}, {"uses the scales"}, {"note"}});
  for (const EngineVerdict& word : report.engine_words)
    table.row(std::string(word.engine) + " " + dated_version(word.version, word.run_on))
        .cell(word.format)
        .cell(kvcal::name_of(word.reads))
        .cell(word.note);
  return table.finish();
}

Markup outcomes_table(const std::vector<ServedEngine>& engines) {
  TableMarkup table({.id = "served-table",
                     .caption = "The KV scales of this checkpoint in each engine",
                     .is_sortable = true,
                     .has_text = true},
                    {{"engine"}, {"the scales are"}, {"how to serve it, or why not"}});
  for (const ServedEngine& engine : engines)
    table.row(engine.title).cell(outcome_words(engine.outcome)).cell(engine.note);
  return table.finish();
}

Section engines_section(const CheckpointReport& report) {
  Section section{"engines", "What each engine would load"};
  if (report.served.empty()) {
    section.body.append(
        words("Which formats of scales engines read for this model type, as far as it is known."));
    section.body.append(engine_words(report));
    return section;
  }
  section.body.append(outcomes_table(report.served));
  Markup details;
  for (size_t i = 0; i < report.engines.size(); ++i)
    details.append(engine_details(report.engines[i], i));
  if (!details.empty()) section.body.element("h3", "What each holds").append(details);
  return section;
}

/// A bar of a share of the whole.
Markup bar(const std::string& id, const std::string& title, double share) {
  constexpr double kWidth = 240;
  Drawing drawing = drawing_of(id, title, share_text(share) + " of all bytes", kWidth, 14, "bar");
  drawing.content.leaf("rect", {{"class", "frame"},
                                {"x", "0.5"},
                                {"y", "0.5"},
                                {"width", coordinate(kWidth - 1)},
                                {"height", "13"}});
  drawing.content.leaf(
      "rect",
      {{"class", "fill"}, {"width", coordinate(std::max(1.0, kWidth * share))}, {"height", "14"}});
  return svg(drawing);
}

Section sizes_section(const CheckpointReport& report) {
  Section section{"sizes", "Sizes"};
  const auto total = static_cast<double>(std::max<uint64_t>(1, report.bytes));
  TableMarkup table({.id = "sizes-table", .caption = "Tensors by kind", .is_sortable = true},
                    {{"kind"}, {"tensors"}, {"size"}, {"share"}, {"of all bytes"}});
  for (size_t i = 0; i < report.tensors.size(); ++i) {
    const TensorKind& kind = report.tensors[i];
    const auto bytes = static_cast<double>(kind.bytes);
    table.row(kind.kind).cell(std::to_string(kind.count));
    table.cell(byte_text(bytes), bytes).cell(share_text(bytes / total));
    table.cell(bar("size-" + std::to_string(i), kind.kind, std::min(1.0, bytes / total)));
  }
  section.body.append(table.finish());
  section.body.append(pairs_table("cache-table", "KV cache of one token",
                                  {{"16 bits", byte_text(report.cache_bytes_16_bit)},
                                   {"FP8", byte_text(report.cache_bytes_fp8)}}));
  return section;
}

Section about_section(const CheckpointReport& report) {
  Markup body = pairs_table("origin-table", "What the scales were made of", report.origin);
  body.append(pairs_table("architecture-table", "Architecture as resolved", report.architecture));
  return {"facts", "Model and calibration", body};
}

}  // namespace

std::string checkpoint_page(const CheckpointReport& report) {
  Page page{.title = report.name + ": FP8 KV cache" +
                     (report.dataset.empty() ? std::string() : ", data set " + report.dataset),
            .footer = "Written by kvcal " + report.version + " from " + report.path};
  page.heading.element("p", {{"class", "lead"}},
                       report.model_type + " · scales: " + report.scale_format + " · " +
                           std::string(name_of(report.format)) + ", largest code " +
                           number_text(static_cast<double>(report.format.largest_code())));
  page.sections = {summary_section(report)};
  // Of a model that was never calibrated there is nothing to say of its calibration.
  if (is_calibrated(report))
    for (const auto& section :
         {damage_section, scales_section, heads_section, magnitudes_section, convergence_section,
          positions_section, layers_section, weights_section})
      page.sections.push_back(section(report));
  for (const auto& section : {engines_section, sizes_section, about_section})
    page.sections.push_back(section(report));
  return html(page);
}

}  // namespace kvcal::report
