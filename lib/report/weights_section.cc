#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/join.h"
#include "report/checkpoint_sections.h"
#include "report/numbers.h"
#include "report/series_chart.h"

namespace kvcal::report {
namespace {

/// Scales of the modules of one kind, by layer: experts share a layer.
struct Kind {
  std::map<int64_t, std::vector<float>> weights, inputs;
  std::set<std::string> input_forms;
  int64_t modules = 0, scales = 0;
};

constexpr int64_t kNoLayer = -1;

std::map<std::string, Kind> kinds_of(const CheckpointReport& report) {
  std::map<std::string, Kind> kinds;
  for (const Fp8Linear& linear : report.linears) {
    Kind& kind = kinds[linear.kind];
    const int64_t layer = linear.layer.value_or(kNoLayer);
    kind.weights[layer].push_back(linear.weight_scale);
    if (linear.input_scale) kind.inputs[layer].push_back(*linear.input_scale);
    kind.input_forms.insert(linear.input);
    ++kind.modules;
    kind.scales += linear.num_weight_scales;
  }
  return kinds;
}

std::vector<float> all_of(const std::map<int64_t, std::vector<float>>& by_layer) {
  std::vector<float> all;
  for (const auto& [layer, values] : by_layer) all.insert(all.end(), values.begin(), values.end());
  return all;
}

Markup overview_table(const std::map<std::string, Kind>& kinds) {
  TableMarkup table(
      {.id = "weights-table", .caption = "Modules with FP8 weights, by kind", .is_sortable = true},
      {{"kind"},
       {"modules"},
       {"scales", "of weights, in all modules"},
       {"weight scale", "least and largest; of a module with several scales its largest"},
       {"input"},
       {"input scale", "least and largest"}});
  for (const auto& [name, kind] : kinds) {
    table.row(name).cell(std::to_string(kind.modules)).cell(std::to_string(kind.scales));
    table.cell(range_text(all_of(kind.weights))).cell(join(kind.input_forms, "; "));
    table.cell(range_text(all_of(kind.inputs)));
  }
  return table.finish();
}

Series series_of(const std::map<int64_t, std::vector<float>>& by_layer,
                 const std::vector<int64_t>& layers, const Series& like) {
  Series series = like;
  for (const int64_t layer : layers) {
    const auto found = by_layer.find(layer);
    series.values.push_back(found == by_layer.end()
                                ? std::nan("")
                                : static_cast<double>(std::ranges::max(found->second)));
  }
  return series;
}

Markup kind_chart(const std::string& name, const Kind& kind, size_t index) {
  std::vector<int64_t> layers;
  for (const auto& [layer, values] : kind.weights)
    if (layer != kNoLayer) layers.push_back(layer);
  if (layers.size() < 2) return {};
  SeriesChart chart{.id = "weights-" + std::to_string(index),
                    .title = "Scales of " + name + " by layer",
                    .description =
                        "Circles: weight scale. Squares: input scale. The largest of a "
                        "layer's modules.",
                    .places = place_names(layers),
                    .width = 390,
                    .height = 190};
  chart.series = {series_of(kind.weights, layers,
                            {.name = "weight scale", .css_class = "k", .mark = Mark::kCircle}),
                  series_of(kind.inputs, layers,
                            {.name = "input scale", .css_class = "v", .mark = Mark::kSquare})};
  Markup out;
  out.open("div", {{"class", "small"}}).element("h3", name);
  return out.append(svg(draw_series(chart))).close("div");
}

/// A row a layer, a column a kind: weight scale, and after a slash the input's.
Markup numbers_table(const std::map<std::string, Kind>& kinds) {
  std::set<int64_t> layers;
  std::vector<Column> columns{{"layer"}};
  for (const auto& [name, kind] : kinds) {
    columns.push_back({name});
    for (const auto& [layer, values] : kind.weights) layers.insert(layer);
  }
  TableMarkup table({.id = "weights-numbers",
                     .caption = "Weight scale / input scale by layer (of several modules the least "
                                "and the largest)"},
                    columns);
  for (const int64_t layer : layers) {
    table.row(layer == kNoLayer ? "none" : std::to_string(layer));
    for (const auto& [name, kind] : kinds) {
      const auto weights = kind.weights.find(layer);
      const auto inputs = kind.inputs.find(layer);
      std::string text = weights == kind.weights.end() ? "–" : range_text(weights->second);
      if (inputs != kind.inputs.end()) text += " / " + range_text(inputs->second);
      table.cell(text);
    }
  }
  return folded("Numbers of all layers", table.finish());
}

/// Kinds are few, but for names that a stranger made up.
constexpr size_t kMostKinds = 60;

}  // namespace

Section weights_section(const CheckpointReport& report) {
  Section section{"weights", "FP8 weights and inputs"};
  if (report.linears.empty()) {
    section.body.append(words("No module has FP8 weights."));
    return section;
  }
  const std::map<std::string, Kind> kinds = kinds_of(report);
  if (kinds.size() > kMostKinds) {
    section.body.append(
        words("There are too many kinds of modules to show; inspect --json has "
              "their number."));
    return section;
  }
  section.body.append(overview_table(kinds));
  Markup drawings;
  size_t index = 0;
  for (const auto& [name, kind] : kinds) drawings.append(kind_chart(name, kind, index++));
  if (drawings.empty()) {
    section.body.append(numbers_table(kinds));
    return section;
  }
  Markup blocks;
  blocks.open("div", {{"class", "blocks"}}).append(drawings).close("div");
  blocks.append(legend_list(
      "weights-mark",
      series_legend({{.name = "weight scale", .css_class = "k", .mark = Mark::kCircle},
                     {.name = "input scale", .css_class = "v", .mark = Mark::kSquare}})));
  section.body.append(figure({.label = "Weight and input scales by layer",
                              .caption = "Scales by layer, each kind on an axis of its own.",
                              .drawings = blocks,
                              .numbers = numbers_table(kinds)}));
  return section;
}

}  // namespace kvcal::report
