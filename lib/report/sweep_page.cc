#include <algorithm>
#include <cmath>

#include "report/numbers.h"
#include "report/page.h"
#include "report/sweep_charts.h"

namespace kvcal::report {
namespace {

int64_t count_of(const SweepReport& report, std::string_view status) {
  return std::ranges::count(report.cells, status, &SweepCell::status);
}

/// The done cell with the least of a measure; nullptr where none has it.
const SweepCell* least_of(const SweepReport& report, std::string_view measure) {
  const SweepCell* least = nullptr;
  for (const SweepCell& cell : report.cells) {
    const double value = cell.measures.at(measure);
    if (!cell.is_done() || std::isnan(value)) continue;
    if (!least || value < least->measures.at(measure)) least = &cell;
  }
  return least;
}

Section summary_section(const SweepReport& report) {
  Tiles tiles;
  const int64_t failed = count_of(report, "failed"), pending = count_of(report, "pending");
  tiles.add("Cells",
            std::to_string(count_of(report, "done")) + " of " + std::to_string(report.cells.size()),
            "done" + (failed ? ", " + std::to_string(failed) + " failed" : std::string()) +
                (pending ? ", " + std::to_string(pending) + " not yet run" : std::string()));
  tiles.add("On the front",
            std::to_string(std::ranges::count_if(report.cells, &SweepCell::is_pareto)),
            "cells that no other beats in both measures");
  for (const Measure& measure : all_measures()) {
    if (measure.key != report.pareto_x && measure.key != report.pareto_y) continue;
    if (const SweepCell* cell = least_of(report, measure.key))
      tiles.add("Least " + std::string(measure.title), measure.text(cell->measures.at(measure.key)),
                cell->id);
  }
  return {"summary", "At a glance", tiles.finish()};
}

Section pareto_section(const SweepReport& report) {
  Section section{"pareto", "What is worth its bytes"};
  const ScatterChart chart = pareto_chart(report);
  const Drawing drawing = draw_scatter(chart);
  if (drawing.content.empty()) {
    section.body.append(words("No cell has both measures yet."));
    return section;
  }
  Markup drawings = framed(drawing);
  drawings.append(legend_list("pareto-mark", pareto_legend(report)));
  section.body.append(figure(
      {.label = chart.title,
       .caption =
           "Every cell that is done: down is better, left is smaller. Marks on the "
           "same spot stand beside each other. Bars are standard errors; what "
           "differs by less than the error of the difference is as good. A row of "
           "the table of cells that has the focus, or lies under the pointer, is shown here.",
       .drawings = drawings}));
  return section;
}

Section choices_section(const SweepReport& report) {
  Section section{"choices", "What each choice does"};
  for (const SpreadChart& chart : choice_charts(report)) {
    const Drawing drawing = draw_spread(chart);
    if (drawing.content.empty()) continue;
    section.body.append(figure({.label = chart.title,
                                .caption = chart.title + ", all other choices together.",
                                .drawings = framed(drawing)}));
  }
  return section;
}

std::string status_words(const SweepCell& cell) {
  if (cell.is_done()) return "✓ done";
  return cell.status == "failed" ? "✗ failed" : cell.status;
}

Section cells_section(const SweepReport& report) {
  Section section{"cells", "All cells"};
  std::vector<const Measures*> all;
  for (const SweepCell& cell : report.cells) all.push_back(&cell.measures);
  const std::vector<const Measure*> measures = known_measures(all);
  std::vector<Column> columns{{"cell"}, {.title = "status", .kind = Column::Kind::kChoice}};
  for (const std::string& dimension : report.dimensions)
    columns.push_back({.title = with_blanks(dimension), .kind = Column::Kind::kChoice});
  columns.push_back(
      {.title = "front", .hint = "on the Pareto front", .kind = Column::Kind::kChoice});
  add_columns(columns, measures);
  TableMarkup table({.id = "cells-table", .caption = "Every cell of the grid", .is_sortable = true},
                    columns);
  for (const SweepCell& cell : report.cells) {
    table.keyed_row(cell.id, cell.id).word(status_words(cell));
    for (const std::string& choice : cell.choices)
      table.word(choice.empty() ? "–" : choice_words(choice));
    table.word(cell.is_pareto ? "yes" : "no");
    add_cells(table, cell.measures, measures);
  }
  section.body.append(table.finish());
  return section;
}

Section failures_section(const SweepReport& report) {
  Section section{"failures", "Cells that failed"};
  if (count_of(report, "failed") == 0) return section;
  TableMarkup table({.id = "failures-table", .caption = "What went wrong", .has_text = true},
                    {{"cell"}, {"error"}});
  for (const SweepCell& cell : report.cells)
    if (cell.status == "failed") table.row(cell.id).cell(cell.error);
  section.body.append(table.finish());
  return section;
}

}  // namespace

std::string sweep_page(const SweepReport& report) {
  Page page{.title = (report.name.empty() ? std::string("Sweep") : report.name) + ": sweep" +
                     (report.models.empty() ? "" : " of " + report.models) +
                     (report.dataset.empty() ? "" : " on " + report.dataset),
            .footer = "Written by kvcal " + report.version};
  page.heading.element("p", {{"class", "lead"}},
                       std::to_string(report.cells.size()) + " cells over " +
                           std::to_string(report.dimensions.size()) + " dimensions");
  const Section all[] = {summary_section(report), failures_section(report), pareto_section(report),
                         choices_section(report), cells_section(report)};
  for (const Section& section : all)
    if (!section.body.empty()) page.sections.push_back(section);
  return html(page);
}

std::vector<Plot> sweep_plots(const SweepReport& report) {
  std::vector<Plot> plots;
  add_plot(plots, "pareto", pareto_chart(report), pareto_legend(report));
  for (const SpreadChart& chart : choice_charts(report)) add_plot(plots, chart.id, chart);
  return plots;
}

}  // namespace kvcal::report
