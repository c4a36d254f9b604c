#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/text.h"
#include "report/checkpoint_charts.h"
#include "report/markup.h"

// Sections on scales: of K and V by layer and head, against magnitudes, and of weights.
namespace kvcal::report {
namespace {

double clipped_share(const CacheTensor& tensor) {
  return tensor.saturated.value_or(std::nan(""));
}

Markup scales_table(const CheckpointReport& report) {
  TableMarkup table({.id = "scales-table",
                     .caption = "Scales, extremes, clipping and size of every layer",
                     .is_sortable = true},
                    {{"layer"},
                     {"K scale"},
                     {"V scale"},
                     {"K amax", "largest magnitude seen"},
                     {"V amax", "largest magnitude seen"},
                     {"K clipped", "share of values above scale × largest code"},
                     {"V clipped", "share of values above scale × largest code"},
                     {"dtype", "of the K weights"},
                     {"size"}});
  for (const CacheLayer& layer : report.layers) {
    table.layer_row(layer.layer);
    table.cell(range_text(layer.k.scales)).cell(range_text(layer.v.scales));
    for (const CacheSide& side : kCacheSides) {
      const std::optional<float>& amax = (layer.*side.tensor).amax;
      table.cell(amax ? number_text(*amax) : "–");
    }
    for (const CacheSide& side : kCacheSides)
      table.cell(share_text(clipped_share(layer.*side.tensor)));
    const auto bytes = static_cast<double>(layer.bytes);
    table.cell(layer.dtype).cell(byte_text(bytes), bytes);
  }
  return table.finish();
}

/// The clipped shares of K and V; words, or nothing, where none is clipped.
Markup clipped_figure(const CheckpointReport& report) {
  SeriesChart chart{.id = "clipped-chart",
                    .title = "Clipped values by layer",
                    .description =
                        "Per cent of K and V above scale times the largest code; layers "
                        "without a mark clip nothing.",
                    .places = layer_names(report),
                    .height = 220};
  for (const CacheSide& side : kCacheSides) {
    Series& series = chart.series.emplace_back(
        Series{side.name + std::string(" clipped, per cent"), side.css_class, side.mark});
    for (const CacheLayer& layer : report.layers)
      series.values.push_back(clipped_share(layer.*side.tensor) * 100.0);
  }
  Markup drawn = series_figure(
      chart, "clipped-mark",
      {.label = "Clipped values by layer",
       .caption = "Values that a scale clips (per cent, logarithmic). An observer that "
                  "leaves extremes out buys precision for the rest with them."});
  if (drawn.empty() && !report.layers.empty() && report.layers[0].k.saturated)
    drawn = words("No value of any layer was clipped during calibration.");
  return drawn;
}

/// The scales where each head has one.
Markup head_scales_table(const CheckpointReport& report, const CacheSide& side) {
  HeatMap map = heads_map(report, side);
  map.id = std::string("head-scales-") + side.css_class;
  map.what = std::string(side.name) + " scale";
  for (size_t i = 0; i < report.layers.size(); ++i)
    map.rows[i] = (report.layers[i].*side.tensor).scales;
  return heat_map_table(map);
}

bool has_head_scales(const CacheLayer& layer) {
  return layer.k.scales.size() > 1 || layer.v.scales.size() > 1;
}

bool has_histogram(const CacheLayer& layer) {
  return layer.k.histogram || layer.v.histogram;
}

/// Adds the shares of one tensor that are rounded to 0 and that are subnormal; with a scale a head
/// those of the finest and the coarsest.
void add_shares(TableMarkup& table, const CacheTensor& tensor, const KvFormat& format) {
  if (!tensor.histogram || tensor.scales.empty()) {
    table.cell("–").cell("–");
    return;
  }
  const auto shares = [&](float scale) {
    return shares_of(*tensor.histogram, fp8_range(static_cast<double>(scale), format));
  };
  const auto [least, largest] = std::ranges::minmax(tensor.scales);
  const RangeShares fine = shares(least), coarse = shares(largest);
  for (double RangeShares::*share : {&RangeShares::to_zero, &RangeShares::subnormal}) {
    const std::string a = share_text(fine.*share), b = share_text(coarse.*share);
    table.cell(a == b ? a : a + " – " + b);
  }
}

Markup strips_table(const CheckpointReport& report, const MagnitudeDomain& domain) {
  std::vector<Column> columns{{"layer"}};
  for (const CacheSide& side : kCacheSides) {
    columns.push_back({.title = std::string(side.name) + " magnitudes",
                       .axis = draw_strip_axis(std::string("axis-") + side.css_class, domain)});
    columns.push_back({"→ 0", "share of values that are rounded to 0, about"});
    columns.push_back({"subnormal", "share of values that get a subnormal code, about"});
    columns.push_back({"clipped", "share of values above scale × largest code"});
  }
  TableMarkup table({.id = "strips", .caption = "Magnitudes by layer", .is_sortable = true},
                    columns);
  for (const CacheLayer& layer : report.layers) {
    table.layer_row(layer.layer);
    for (const CacheSide& side : kCacheSides) {
      const Magnitudes magnitudes = magnitudes_of(report, layer, side, "strip-");
      if (magnitudes.counts)
        table.cell(draw_strip(magnitudes, domain));
      else
        table.cell("not kept");
      add_shares(table, layer.*side.tensor, report.format);
      table.cell(share_text(clipped_share(layer.*side.tensor)));
    }
  }
  return table.finish();
}

Markup layer_table(const CheckpointReport& report, const CacheLayer& layer) {
  const std::string number = std::to_string(layer.layer);
  TableMarkup table({.id = "numbers-" + number, .caption = "Layer " + number},
                    {{"tensor"},
                     {"scale"},
                     {"limit", "scale × largest code"},
                     {"amax"},
                     {"clipped"},
                     {"rounded to 0"},
                     {"subnormal"},
                     {"values seen"}});
  for (const CacheSide& side : kCacheSides) {
    const CacheTensor& tensor = layer.*side.tensor;
    table.row(side.name).cell(range_text(tensor.scales));
    table.cell(number_text(range_of(tensor, report.format).largest));
    table.cell(number_text(tensor.amax.value_or(std::nanf(""))));
    table.cell(share_text(clipped_share(tensor)));
    add_shares(table, tensor, report.format);
    table.cell(tensor.histogram ? std::to_string(tensor.histogram->total()) : "–");
  }
  return table.finish();
}

/// Scales by layer: experts share a layer.
using ByLayer = std::map<int64_t, std::vector<float>>;

/// Scales of the modules of one kind.
struct Kind {
  ByLayer weights, inputs;
  std::set<std::string> input_formats;
  int64_t modules = 0, scales = 0;
};

constexpr int64_t kNoLayer = -1;
/// Kinds are few, but for names that a stranger made up.
constexpr size_t kMostKinds = 60;

std::map<std::string, Kind> kinds_of(const CheckpointReport& report) {
  std::map<std::string, Kind> kinds;
  for (const Fp8Linear& linear : report.linears) {
    Kind& kind = kinds[linear.kind];
    const int64_t layer = linear.layer.value_or(kNoLayer);
    kind.weights[layer].push_back(linear.weight_scale);
    if (linear.input_scale) kind.inputs[layer].push_back(*linear.input_scale);
    kind.input_formats.insert(linear.input);
    ++kind.modules;
    kind.scales += linear.num_weight_scales;
  }
  return kinds;
}

std::string all_text(const ByLayer& by_layer) {
  std::vector<float> all;
  for (const auto& [layer, values] : by_layer) all.insert(all.end(), values.begin(), values.end());
  return range_text(all);
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
    table.cell(all_text(kind.weights)).cell(join(kind.input_formats, "; "));
    table.cell(all_text(kind.inputs));
  }
  return table.finish();
}

/// The series of weights and of inputs, without values.
std::vector<Series> weight_series() {
  return {{"weight scale", "k", Mark::kCircle}, {"input scale", "v", Mark::kSquare}};
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
                    .series = weight_series(),
                    .width = 390,
                    .height = 190};
  const auto largest = [](const ByLayer& by_layer, int64_t layer) {
    const auto found = by_layer.find(layer);
    return found == by_layer.end() ? std::nan("")
                                   : static_cast<double>(std::ranges::max(found->second));
  };
  for (const int64_t layer : layers) {
    chart.series[0].values.push_back(largest(kind.weights, layer));
    chart.series[1].values.push_back(largest(kind.inputs, layer));
  }
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
      const auto weights = kind.weights.find(layer), inputs = kind.inputs.find(layer);
      table.cell((weights == kind.weights.end() ? "–" : range_text(weights->second)) +
                 (inputs == kind.inputs.end() ? "" : " / " + range_text(inputs->second)));
    }
  }
  return folded("Numbers of all layers", table.finish());
}

}  // namespace

Section scales_section(const CheckpointReport& report) {
  Section section{"scales", "Scales by layer"};
  section.body =
      series_figure(scales_chart(report), "scales-mark",
                    {.label = "Scales by layer",
                     .caption = "The scales of K and V, and, as dashes, the smallest scale with "
                                "which FP8 reaches the largest magnitude seen. A mark below its "
                                "dash clips, one above it leaves room.",
                     .numbers = folded("Numbers of all layers", scales_table(report))});
  if (!section.body.empty()) {
    section.body.append(clipped_figure(report));
    return section;
  }
  return section;
}

Section heads_section(const CheckpointReport& report) {
  Section section{"heads", "Heads"};
  Markup drawings, numbers;
  for (const CacheSide& side : kCacheSides) {
    const HeatMap map = heads_map(report, side);
    if (cells_of(map) > kMostCells) {
      section.body = words("There are too many heads to draw; inspect --json has the numbers.");
      return section;
    }
    if (cells_of(map) == 0) continue;
    drawings.append(heat_map_part(map));
    numbers.append(heat_map_table(map));
  }
  if (std::ranges::any_of(report.layers, has_head_scales))
    for (const CacheSide& side : kCacheSides) numbers.append(head_scales_table(report, side));
  if (!drawings.empty() || !numbers.empty())
    section.body = figure(
        {.label = "Extremes by layer and head",
         .caption = "The largest magnitude of every KV head: a row a layer, a column a head. "
                    "A scale of the whole tensor follows the largest head; FP8 loses little of the "
                    "others unless they fall into its subnormals, thousands of times smaller.",
         .drawings = drawings,
         .numbers = numbers});
  return section;
}

Section magnitudes_section(const CheckpointReport& report) {
  Section section{"magnitudes", "Magnitudes against FP8's range"};
  if (std::ranges::none_of(report.layers, has_histogram)) return section;
  section.body = words(
      "How often K and V had which magnitude, all heads of a layer together, between the ends "
      "of what FP8 can say with the layer's scale. Heights are shares of an octave, the "
      "largest full; less than a thousandth may lie left of what is drawn. Shares of subnormal "
      "and rounded values take magnitudes to be even inside half an octave.");
  section.body.append(legend_list("range-", range_legend()));
  section.body.append(strips_table(report, common_domain(report)));
  return section;
}

Section layers_section(const CheckpointReport& report) {
  Section section{"layers", "Layer by layer"};
  const MagnitudeDomain domain = common_domain(report);
  if (std::ranges::any_of(report.layers, has_histogram))
    section.body.append(magnitude_axes(domain));
  for (const CacheLayer& layer : report.layers) {
    Markup content, body;
    for (const CacheSide& side : kCacheSides) {
      const Magnitudes magnitudes = magnitudes_of(report, layer, side, "large-");
      if (magnitudes.counts) content.append(svg(draw_magnitudes(magnitudes, domain)));
    }
    if (!content.empty()) body.open("div", {{"class", "pair"}}).append(content).close("div");
    body.append(layer_table(report, layer));
    const std::string number = std::to_string(layer.layer);
    section.body.open("details", {{"id", "layer-" + number}, {"class", "layer"}});
    section.body.open("summary").text("Layer " + number);
    section.body.element("span", {{"class", "note"}},
                         " K " + range_text(layer.k.scales) + ", V " + range_text(layer.v.scales));
    section.body.close("summary").append(body).close("details");
  }
  return section;
}

Section weights_section(const CheckpointReport& report) {
  Section section{"weights", "FP8 weights and inputs"};
  if (report.linears.empty()) return section;
  const std::map<std::string, Kind> kinds = kinds_of(report);
  if (kinds.size() > kMostKinds) {
    section.body =
        words("There are too many kinds of modules to show; inspect --json has their number.");
    return section;
  }
  section.body = overview_table(kinds);
  Markup drawings;
  size_t index = 0;
  for (const auto& [name, kind] : kinds) drawings.append(kind_chart(name, kind, index++));
  if (drawings.empty()) {
    section.body.append(numbers_table(kinds));
    return section;
  }
  Markup blocks;
  blocks.open("div", {{"class", "blocks"}}).append(drawings).close("div");
  blocks.append(legend_list("weights-mark", series_legend(weight_series())));
  section.body.append(figure({.label = "Weight and input scales by layer",
                              .caption = "Scales by layer, each kind on an axis of its own.",
                              .drawings = blocks,
                              .numbers = numbers_table(kinds)}));
  return section;
}

}  // namespace kvcal::report
