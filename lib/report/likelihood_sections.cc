#include <algorithm>
#include <cmath>

#include "core/join.h"
#include "core/number_text.h"
#include "report/eval_charts.h"
#include "report/eval_sections.h"
#include "report/figure.h"
#include "report/numbers.h"

namespace kvcal::report {
namespace {

std::string as_text(int64_t number) {
  return std::to_string(number);
}

/// A chart, its legend and the numbers behind it; nothing where there is nothing to draw.
Markup series_figure(const SeriesChart& chart, const std::string& caption, const Markup& numbers) {
  const Drawing drawing = draw_series(chart);
  if (drawing.content.empty()) return {};
  Markup drawings = framed(drawing);
  drawings.append(legend_list(chart.id + "-mark", series_legend(chart.series)));
  return figure(
      {.label = chart.title, .caption = caption, .drawings = drawings, .numbers = numbers});
}

/// A row a place, a column a series.
Markup series_table(const SeriesChart& chart, const std::string& id) {
  std::vector<Column> columns{{chart.places_title}};
  for (const Series& series : chart.series) columns.push_back({series.name});
  TableMarkup table({.id = id, .caption = chart.title, .is_sortable = true}, columns);
  for (size_t i = 0; i < chart.places.size(); ++i) {
    table.row(chart.places[i]);
    for (const Series& series : chart.series) table.cell(number_text(series.values[i]));
  }
  return folded("Numbers", table.finish());
}

/// "layers 3, 7 and 12"
std::string dearest_words(const EvalVariant& variant) {
  std::vector<LayerAccuracy> layers = variant.layers;
  std::ranges::stable_sort(layers, std::ranges::greater(), [](const LayerAccuracy& layer) {
    const double kl = layer.measures.at("kl_mean");
    return std::isnan(kl) ? -1.0 : kl;
  });
  layers.resize(std::min<size_t>(3, layers.size()));
  return join(layers, ", ", [](const LayerAccuracy& layer) {
    return std::to_string(layer.layer) + " (" + number_text(layer.measures.at("kl_mean"), 3) + ")";
  });
}

Markup sequences_table(const SpreadChart& chart) {
  TableMarkup table(
      {.id = "sequences-table", .caption = chart.title + ", spread", .is_sortable = true},
      {{"variant"},
       {"sequences"},
       {"least"},
       {"quartile"},
       {"median"},
       {"upper quartile"},
       {"largest"},
       {"of sequence", "number of the sequence with the largest value, from 0"}});
  for (const SpreadRow& row : chart.rows) {
    table.row(row.name).cell(std::to_string(row.values.size()));
    for (const double part : {0.0, 0.25, 0.5, 0.75, 1.0})
      table.cell(number_text(quantile(row.values, part)));
    size_t worst = 0;
    for (size_t i = 1; i < row.values.size(); ++i)
      if (row.values[i] > row.values[worst]) worst = i;
    table.cell(std::to_string(worst));
  }
  return table.finish();
}

}  // namespace

Section kl_layers_section(const EvalReport& report) {
  Section section{"layers", "What each layer costs"};
  const SeriesChart chart = kl_by_layer_chart(report);
  if (chart.places.empty()) return section;
  section.body.append(
      series_figure(chart,
                    "KL when the cache of one layer alone is quantized and all others keep their "
                    "precision. Layers' KL do not add up.",
                    series_table(chart, "layers-table")));
  Markup list;
  for (const EvalVariant& variant : report.variants)
    if (!variant.layers.empty())
      list.element("li", variant.name + ": the dearest layers are " + dearest_words(variant));
  section.body.open("ul").append(list).close("ul");
  return section;
}

Section positions_section(const EvalReport& report) {
  Section section{"positions", "By position in the sequence"};
  const SeriesChart kl = kl_by_position_chart(report), nll = nll_by_position_chart(report);
  if (kl.places.empty()) return section;
  section.body.append(series_figure(
      kl,
      "KL of the tokens at these positions. Errors of a quantized cache add up where it grows with "
      "the position.",
      series_table(kl, "kl-positions-table")));
  section.body.append(series_figure(
      nll, "Negative log likelihood of the same tokens: how much the model knows of what comes.",
      series_table(nll, "nll-positions-table")));
  return section;
}

Section sequences_section(const EvalReport& report) {
  Section section{"sequences", "Sequence by sequence"};
  const SpreadChart chart = sequences_chart(report);
  const Drawing drawing = draw_spread(chart);
  if (drawing.content.empty()) return section;
  section.body.append(
      figure({.label = chart.title,
              .caption = "Each sequence's own mean: a mean over all may hide a few that suffer.",
              .drawings = framed(drawing),
              .numbers = sequences_table(chart)}));
  return section;
}

Section sensitivity_section(const EvalReport& report) {
  Section section{"sensitivity", "Layers to keep in 16 bits"};
  if (!report.sensitivity) return section;
  const Sensitivity& sensitivity = *report.sensitivity;
  const ScatterChart chart = sensitivity_chart(sensitivity);
  TableMarkup table(
      {.id = "sensitivity-table", .caption = "Choices that were measured", .is_sortable = true},
      {{"kept layers"},
       {"mean KL"},
       {"perplexity"},
       {"cache of one token"},
       {.title = "proposed", .kind = Column::Kind::kWord},
       {.title = "which", .kind = Column::Kind::kWord}});
  for (const MixedPrecision& row : sensitivity.rows) {
    table.row(std::to_string(row.kept_layers.size())).cell(number_text(row.kl_mean, 5));
    table.cell(number_text(row.perplexity, 5));
    table.cell(byte_text(row.bytes_per_token), row.bytes_per_token);
    table.word(row.is_proposed ? "yes" : "").word(join(row.kept_layers, " ", as_text));
  }
  const Drawing drawing = draw_scatter(chart);
  if (drawing.content.empty())
    section.body.append(table.finish());
  else
    section.body.append(
        figure({.label = chart.title,
                .caption = "Layers are kept in the order of what they cost alone. The ring is the "
                           "proposal: the smallest cache within the budget.",
                .drawings = framed(drawing),
                .numbers = table.finish()}));
  if (!sensitivity.skip_layers_argument.empty())
    section.body.open("p")
        .text("vLLM leaves these layers in 16 bits with ")
        .element("code", sensitivity.skip_layers_argument)
        .text(".")
        .close("p");
  if (!sensitivity.recipe.empty())
    section.body.append(folded("As a recipe", Markup().element("pre", sensitivity.recipe)));
  const SeriesChart ranking = ranking_chart(sensitivity);
  section.body.append(series_figure(ranking, "KL when the cache of that layer alone is quantized.",
                                    series_table(ranking, "ranking-table")));
  return section;
}

}  // namespace kvcal::report
