#include <algorithm>
#include <array>
#include <cmath>

#include "report/checkpoint_sections.h"
#include "report/figure.h"
#include "report/numbers.h"

namespace kvcal::report {
namespace {

constexpr size_t kLeft = 280, kCell = 16, kRow = 26, kTop = 18;

std::string text_of(const Json& object, std::string_view key) {
  const Json* value = object.is_object() ? find_field(object, key) : nullptr;
  if (!value) return {};
  return value->is_string() ? value->get<std::string>() : value->dump();
}

const Json& list_of(const Json& object, std::string_view key) {
  static const Json kNone = Json::array();
  const Json* value = object.is_object() ? find_field(object, key) : nullptr;
  return value && value->is_array() ? *value : kNone;
}

bool loads(const Json& engine) {
  const Json* value = find_field(engine, "loads");
  return value && value->is_boolean() && value->get<bool>();
}

/// Of any finding that is an error: a scale is lost or changed.
bool has_errors(const Json& engine) {
  const Json& findings = list_of(engine, "findings");
  return std::any_of(findings.begin(), findings.end(),
                     [](const Json& finding) { return text_of(finding, "severity") == "error"; });
}

std::string name_of(const Json& engine) {
  return text_of(engine, "engine") + " " + text_of(engine, "engine_version");
}

/// One number, or least and largest of a list; "–" for null.
std::string value_text(const Json& layer, std::string_view key) {
  const Json* value = find_field(layer, key);
  if (!value) return "–";
  if (value->is_string()) return value->get<std::string>();  // "nan", "inf"
  if (value->is_number()) return number_text(value->get<double>());
  std::vector<float> values;
  if (value->is_array())
    for (const Json& one : *value)
      if (one.is_number()) values.push_back(one.get<float>());
  return range_text(values);
}

/// What becomes of one layer's scales in an engine.
enum class Fate { kLoaded, kHalf, kDefault, kNone };

Fate fate_of(const Json& layer) {
  int loaded = 0, defaults = 0;
  for (const char* key : {"k_source", "v_source"}) {
    const std::string source = text_of(layer, key);
    (source == "default" ? defaults : loaded) += !source.empty();
  }
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

void draw_fates(Markup& content, const Json& engine, size_t row) {
  std::array<std::string, kFates.size()> paths;
  size_t column = 0;
  for (const Json& layer : list_of(engine, "layers")) {
    const auto fate = static_cast<size_t>(fate_of(layer));
    paths[fate] += "M" + std::to_string(kLeft + kCell * column++ + 2) + " " +
                   std::to_string(kTop + kRow * row + 4) + kFates[fate].path;
  }
  for (size_t fate = 0; fate < kFates.size(); ++fate)
    if (!paths[fate].empty())
      content.leaf("path", {{"class", kFates[fate].css_class}, {"d", paths[fate]}});
}

Markup fates_drawing(const Json& engines) {
  size_t layers = 0;
  for (const Json& engine : engines) layers = std::max(layers, list_of(engine, "layers").size());
  if (layers == 0) return {};
  Drawing drawing{.id = "engines-chart",
                  .title = "What each engine loads, by layer",
                  .description =
                      "A row an engine, a column a layer. Filled: both scales loaded. "
                      "Cross: the default 1.0. The values are in the tables below.",
                  .width = static_cast<double>(kLeft + kCell * layers + 10),
                  .height = static_cast<double>(kTop + kRow * engines.size() + 6),
                  .css_class = "chart",
                  .content = {}};
  size_t row = 0;
  for (const Json& engine : engines) {
    draw_label(drawing.content,
               {.x = kLeft - 8.0,
                .y = static_cast<double>(kTop + kRow * row) + 17,
                .text = (loads(engine) && !has_errors(engine) ? "✓ " : "✗ ") + name_of(engine),
                .anchor = "end"});
    draw_fates(drawing.content, engine, row++);
  }
  const Json& first = list_of(engines[0], "layers");
  for (size_t i = 0; i < first.size(); i += 4)
    draw_label(drawing.content, {.x = static_cast<double>(kLeft + kCell * i) + 8,
                                 .y = kTop - 5.0,
                                 .text = text_of(first[i], "layer")});
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

Markup findings(const Json& engine) {
  Markup out;
  const Json& list = list_of(engine, "findings");
  if (list.empty()) return words("Nothing is amiss.");
  out.open("ul", {{"class", "findings"}});
  for (const Json& finding : list) {
    const std::string severity = text_of(finding, "severity");
    const bool is_known = severity == "error" || severity == "warning" || severity == "note";
    out.open("li", {{"class", is_known ? severity : "note"}});
    out.element("strong", severity + ": ");
    const std::string layer = text_of(finding, "layer");
    if (!layer.empty()) out.text("layers " + layer + ": ");
    out.text(text_of(finding, "message"));
    const std::string remedy = text_of(finding, "remedy");
    if (!remedy.empty()) out.text(" ").element("em", remedy);
    out.close("li");
  }
  return out.close("ul");
}

Markup values_table(const Json& engine, size_t index) {
  TableMarkup table({.id = "engine-" + std::to_string(index),
                     .caption = "What " + name_of(engine) + " would hold",
                     .is_sortable = false,
                     .has_text = true},
                    {{"layer"}, {"K scale"}, {"V scale"}, {"K from"}, {"V from"}});
  for (const Json& layer : list_of(engine, "layers")) {
    if (!layer.is_object()) continue;
    table.row(text_of(layer, "layer")).cell(value_text(layer, "k_scale"));
    table.cell(value_text(layer, "v_scale"));
    table.cell(text_of(layer, "k_source")).cell(text_of(layer, "v_source"));
  }
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
  Section section{"engines", "What each engine would load", {}};
  Json engines = Json::array();
  if (report.engines.is_array())
    for (const Json& engine : report.engines)
      if (engine.is_object()) engines.push_back(engine);
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
    const Json& engine = engines[i];
    section.body.open("div", {{"class", "engine"}}).element("h3", name_of(engine));
    const char* verdict = !loads(engine)       ? "✗ Does not load"
                          : has_errors(engine) ? "✗ Loads without the scales as they are"
                                               : "✓ Loads";
    section.body.element(
        "p", std::string(verdict) + "; cache dtype " + text_of(engine, "kv_cache_dtype") + ".");
    section.body.append(findings(engine)).append(values_table(engine, i)).close("div");
  }
  return section;
}

}  // namespace kvcal::report
