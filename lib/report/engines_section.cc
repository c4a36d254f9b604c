#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "report/checkpoint_sections.h"
#include "report/figure.h"
#include "report/numbers.h"

namespace kvcal::report {
namespace {

constexpr size_t kLeft = 280, kCell = 16, kRow = 26, kTop = 18;

/// Whether a finding is an error: a scale is lost or changed.
bool has_errors(const EngineLoad& engine) {
  return std::ranges::any_of(engine.findings, [](const EngineLoad::Finding& finding) {
    return finding.severity == "error";
  });
}

std::string name_of(const EngineLoad& engine) {
  return engine.engine + " " + engine.version;
}

/// One number, or least and largest of those of heads; "–" for none.
std::string value_text(const std::optional<LoadedScale>& scale) {
  if (!scale) return "–";
  if (scale->values.size() != 1) {
    std::vector<float> finite;
    std::ranges::copy_if(scale->values, std::back_inserter(finite),
                         [](float value) { return std::isfinite(value); });
    return range_text(finite);
  }
  const float value = scale->values.front();
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return number_text(static_cast<double>(value));
}

std::string source_text(const std::optional<LoadedScale>& scale) {
  if (!scale) return {};
  return scale->source.empty() ? "default" : scale->source;
}

/// The fate of one layer's scales in an engine.
enum class Fate { kLoaded, kHalf, kDefault, kNone };

Fate fate_of(const EngineLoad::Layer& layer) {
  int loaded = 0, defaults = 0;
  for (const auto* scale : {&layer.k, &layer.v})
    if (*scale) ++((*scale)->source.empty() ? defaults : loaded);
  if (loaded == 2) return Fate::kLoaded;
  if (loaded > 0) return Fate::kHalf;
  return defaults > 0 ? Fate::kDefault : Fate::kNone;
}

struct FateMark {
  const char *css_class, *path, *words;
};
/// A shape each, in a cell of 16 by 26.
constexpr std::array<FateMark, 4> kFates{
    {{"fate loaded", "h12v18h-12z", "both scales are loaded"},
     {"fate half", "v18h12z", "only one of K and V is loaded"},
     {"fate default", "l12 18m0-18l-12 18", "the default, 1.0"},
     {"fate none", "m3 9h6", "no cache scale"}}};

void draw_fates(Markup& content, const EngineLoad& engine, size_t row) {
  std::array<std::string, kFates.size()> paths;
  size_t column = 0;
  for (const EngineLoad::Layer& layer : engine.layers) {
    const auto fate = static_cast<size_t>(fate_of(layer));
    paths[fate] += "M" + std::to_string(kLeft + kCell * column++ + 2) + " " +
                   std::to_string(kTop + kRow * row + 4) + kFates[fate].path;
  }
  for (size_t fate = 0; fate < kFates.size(); ++fate)
    if (!paths[fate].empty()) draw_path(content, kFates[fate].css_class, paths[fate]);
}

Markup fates_drawing(const std::vector<EngineLoad>& engines) {
  size_t layers = 0;
  for (const EngineLoad& engine : engines) layers = std::max(layers, engine.layers.size());
  if (layers == 0) return {};
  Drawing drawing{.id = "engines-chart",
                  .title = "What each engine loads, by layer",
                  .description =
                      "A row an engine, a column a layer. Filled: both scales loaded. "
                      "Cross: the default 1.0. The values are in the tables below.",
                  .width = static_cast<double>(kLeft + kCell * layers + 10),
                  .height = static_cast<double>(kTop + kRow * engines.size() + 6),
                  .css_class = "chart"};
  size_t row = 0;
  for (const EngineLoad& engine : engines) {
    draw_label(drawing.content,
               {.x = kLeft - 8.0,
                .y = static_cast<double>(kTop + kRow * row) + 17,
                .text = (engine.loads && !has_errors(engine) ? "✓ " : "✗ ") + name_of(engine),
                .anchor = "end"});
    draw_fates(drawing.content, engine, row++);
  }
  const std::vector<EngineLoad::Layer>& first = engines[0].layers;
  for (size_t i = 0; i < first.size(); i += 4)
    draw_label(drawing.content, {.x = static_cast<double>(kLeft + kCell * i) + 8,
                                 .y = kTop - 5.0,
                                 .text = std::to_string(first[i].layer)});
  return svg(drawing);
}

Markup fates_legend() {
  Markup list;
  list.open("ul", {{"class", "legend"}});
  for (size_t i = 0; i < kFates.size(); ++i) {
    Markup content;
    content.leaf("path",
                 {{"class", kFates[i].css_class}, {"d", std::string("M2 1") + kFates[i].path}});
    list.open("li").append(svg({.id = "fate-" + std::to_string(i),
                                .title = kFates[i].words,
                                .description = "the mark of a layer",
                                .width = 16,
                                .height = 20,
                                .css_class = "",
                                .content = content}));
    list.text(kFates[i].words).close("li");
  }
  return list.close("ul");
}

Markup findings(const EngineLoad& engine) {
  Markup out;
  if (engine.findings.empty()) return words("Nothing is amiss.");
  out.open("ul", {{"class", "findings"}});
  for (const EngineLoad::Finding& finding : engine.findings) {
    out.open("li", {{"class", finding.severity}});
    out.element("strong", finding.severity + ": ");
    if (!finding.layers.empty()) out.text("layers " + finding.layers + ": ");
    out.text(finding.message);
    if (!finding.remedy.empty()) out.text(" ").element("em", finding.remedy);
    out.close("li");
  }
  return out.close("ul");
}

Markup values_table(const EngineLoad& engine, size_t index) {
  TableMarkup table({.id = "engine-" + std::to_string(index),
                     .caption = "What " + name_of(engine) + " would hold",
                     .is_sortable = false,
                     .has_text = true},
                    {{"layer"}, {"K scale"}, {"V scale"}, {"K from"}, {"V from"}});
  for (const EngineLoad::Layer& layer : engine.layers)
    table.row(std::to_string(layer.layer))
        .cell(value_text(layer.k))
        .cell(value_text(layer.v))
        .cell(source_text(layer.k))
        .cell(source_text(layer.v));
  return folded("Values, layer by layer", table.finish());
}

Markup engine_words(const CheckpointReport& report) {
  TableMarkup table({.id = "engines-table",
                     .caption = "Engines and formats, as far as they were tried",
                     .is_sortable = true,
                     .has_text = true},
                    {{"engine"}, {"version"}, {"format"}, {"uses the scales"}, {"note"}});
  for (const EngineWord& word : report.engine_words)
    table.row(word.engine).cell(word.version).cell(word.format).cell(word.reads).cell(word.note);
  return table.finish();
}

}  // namespace

Section engines_section(const CheckpointReport& report) {
  Section section{"engines", "What each engine would load"};
  const std::vector<EngineLoad>& engines = report.engines;
  if (engines.empty()) {
    section.body.append(
        words("The tensors of this checkpoint were not held against each engine's "
              "rules; this is what is known of the engines for its model type."));
    section.body.append(engine_words(report));
    return section;
  }
  section.body.append(figure({.label = "What each engine loads, by layer",
                              .caption = "Whether an engine finds the scales of each layer.",
                              .drawings = fates_drawing(engines).append(fates_legend())}));
  for (size_t i = 0; i < engines.size(); ++i) {
    const EngineLoad& engine = engines[i];
    section.body.open("div", {{"class", "engine"}}).element("h3", name_of(engine));
    const char* verdict = !engine.loads        ? "✗ Does not load"
                          : has_errors(engine) ? "✗ Loads without the scales as they are"
                                               : "✓ Loads";
    section.body.element("p",
                         std::string(verdict) + "; cache dtype " + engine.kv_cache_dtype + ".");
    section.body.append(findings(engine)).append(values_table(engine, i)).close("div");
  }
  return section;
}

}  // namespace kvcal::report
