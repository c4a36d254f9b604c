#include <algorithm>

#include "report/checkpoint_charts.h"
#include "report/checkpoint_sections.h"
#include "report/numbers.h"

namespace kvcal::report {
namespace {

Markup positions_table(const CheckpointReport& report, const std::vector<std::string>& positions) {
  std::vector<Column> columns{{"layer"}};
  for (const CacheSide& side : kCacheSides) {
    const std::string name = side.name;
    columns.push_back({name + " at 0", "amax of the first tokens of samples"});
    columns.push_back({name + " behind", "amax of all other tokens"});
    columns.push_back({name + " at the end", "amax at the positions " + positions.back()});
    columns.push_back({.title = name + " largest at",
                       .hint = "positions with the largest value",
                       .kind = Column::Kind::kWord});
  }
  TableMarkup table({.id = "positions-table",
                     .caption = "The largest values of each layer by position",
                     .is_sortable = true},
                    columns);
  const auto number = [](float amax) { return number_text(static_cast<double>(amax)); };
  for (const CacheLayer& layer : report.layers) {
    if (layer.k.position_amax.empty() && layer.v.position_amax.empty()) continue;
    table.row(std::to_string(layer.layer), "layer-" + std::to_string(layer.layer));
    for (const CacheSide& side : kCacheSides) {
      const std::vector<float>& amax = (layer.*side.tensor).position_amax;
      if (amax.size() < 2 || amax.size() > positions.size()) {
        table.cell("–").cell("–").cell("–").word("–");
        continue;
      }
      const auto largest = std::ranges::max_element(amax);
      table.cell(number(amax.front()))
          .cell(number(*std::max_element(amax.begin() + 1, amax.end())))
          .cell(amax.size() == positions.size() ? number(amax.back()) : "–")
          .word(positions[static_cast<size_t>(largest - amax.begin())]);
    }
  }
  return table.finish();
}

}  // namespace

Section positions_section(const CheckpointReport& report) {
  Section section{"positions", "Where in the samples the largest values are"};
  const SeriesChart chart = positions_chart(report);
  const Drawing drawing = draw_series(chart);
  if (drawing.content.empty()) {
    section.body.append(
        words("How large values are by position is not known: it is in manifests of calibrations "
              "of this version, where layers have a cache."));
    return section;
  }
  if (report.late) section.body.append(words(late_positions_text(*report.late) + "."));
  Markup drawings;
  drawings.append(framed(drawing))
      .append(legend_list("positions-mark", series_legend(chart.series)));
  section.body.append(
      figure({.label = "The largest values by position",
              .caption = "How large K and V get at positions of the samples. A curve that still "
                         "rises at its end says that longer samples would find larger values; a "
                         "high beginning is the first token, on which attention rests.",
              .drawings = drawings,
              .numbers = folded("Numbers of all layers", positions_table(report, chart.places))}));
  return section;
}

}  // namespace kvcal::report
