#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/text.h"
#include "report/markup.h"
#include "report/page.h"
#include "report/sweep_report.h"

namespace kvcal::report {
namespace {

/// The choices that done cells have of a dimension, in their order; the i-th has look_of(i).
std::vector<std::string> choices_of(const SweepReport& report, size_t dimension) {
  std::vector<std::string> choices;
  for (const SweepCell& cell : report.cells)
    if (cell.is_done() && !cell.choices[dimension].empty() &&
        std::ranges::find(choices, cell.choices[dimension]) == choices.end())
      choices.push_back(cell.choices[dimension]);
  return choices;
}

/// Dimensions in which cells differ.
std::vector<size_t> varying_dimensions(const SweepReport& report) {
  std::vector<size_t> varying;
  for (size_t i = 0; i < report.dimensions.size(); ++i)
    if (choices_of(report, i).size() > 1) varying.push_back(i);
  return varying;
}

/// The dimension that marks tell: the cache's dtype where it varies, else the first that does.
std::optional<size_t> marked_dimension(const SweepReport& report) {
  const std::vector<size_t> varying = varying_dimensions(report);
  for (const size_t i : varying)
    if (report.dimensions[i] == "kv_cache_dtype") return i;
  return varying.empty() ? std::nullopt : std::optional(varying.front());
}

MarkStyle look_of_cell(const SweepReport& report, const SweepCell& cell) {
  const std::optional<size_t> dimension = marked_dimension(report);
  if (!dimension) return look_of(0);
  const std::vector<std::string> choices = choices_of(report, *dimension);
  const auto found = std::ranges::find(choices, cell.choices[*dimension]);
  return look_of(static_cast<size_t>(found - choices.begin()));
}

/// Dimensions that tell cells apart, beside the marks: those without which two cells would look the
/// same.
std::vector<size_t> label_dimensions(const SweepReport& report) {
  const std::optional<size_t> marked = marked_dimension(report);
  std::vector<size_t> dimensions;
  for (size_t i = 0; i < report.dimensions.size(); ++i) dimensions.push_back(i);
  const auto count_looks = [&](const std::vector<size_t>& chosen) {
    std::set<std::vector<std::string>> looks;
    for (const SweepCell& cell : report.cells) {
      if (!cell.is_done()) continue;
      std::vector<std::string> look{marked ? cell.choices[*marked] : std::string()};
      for (const size_t i : chosen) look.push_back(cell.choices[i]);
      looks.insert(std::move(look));
    }
    return looks.size();
  };
  const size_t all = count_looks(dimensions);
  for (size_t i = 0; i < report.dimensions.size(); ++i) {
    std::vector<size_t> fewer = dimensions;
    std::erase(fewer, i);
    if (i == marked || count_looks(fewer) == all) dimensions = std::move(fewer);
  }
  return dimensions;
}

/// "mse", and of numbers "seed 7".
std::string named_choice(const std::string& dimension, const std::string& choice) {
  if (choice.find_first_not_of("0123456789") != choice.npos) return choice_words(choice);
  return key_words(dimension) + " " + choice;
}

/// The choice that most cells have of a dimension, which labels leave out; empty where none is so
/// usual.
std::string usual_choice(const SweepReport& report, size_t dimension) {
  std::map<std::string, size_t> counts;
  size_t all = 0;
  for (const SweepCell& cell : report.cells)
    if (cell.is_done()) {
      ++counts[cell.choices[dimension]];
      ++all;
    }
  for (const auto& [choice, count] : counts)
    if (4 * count >= 3 * all) return choice;
  return {};
}

std::string joined(const SweepReport& report, const SweepCell& cell,
                   const std::vector<size_t>& dimensions) {
  std::string label;
  for (const size_t i : dimensions)
    if (!cell.choices[i].empty() && cell.choices[i] != usual_choice(report, i))
      label += (label.empty() ? "" : " · ") + named_choice(report.dimensions[i], cell.choices[i]);
  return label;
}

std::string label_of(const SweepReport& report, const SweepCell& cell,
                     const std::vector<size_t>& dimensions) {
  if (const std::string label = joined(report, cell, dimensions); !label.empty()) return label;
  std::vector<size_t> all = varying_dimensions(report);
  std::erase(all, marked_dimension(report));
  const std::string label = joined(report, cell, all);
  return label.empty() ? cell.id : label;
}

std::string words_of(const SweepReport& report, const SweepCell& cell) {
  std::string words = cell.id;
  for (const std::string& key : {report.pareto_y, report.pareto_x}) {
    const Metric& metric = find_metric(key);
    words += std::string(", ") + metric.title + " " + metric.text(cell.metrics.at(key));
    if (const double error = cell.metrics.error_of(key); error > 0.0)
      words += " ± " + metric.text(error);
  }
  return words + (cell.is_pareto ? ", on the front" : "");
}

bool has_both(const SweepReport& report, const SweepCell& cell) {
  return cell.is_done() && !std::isnan(cell.metrics.at(report.pareto_x)) &&
         !std::isnan(cell.metrics.at(report.pareto_y));
}

/// The standard error of a number of the cell; 0 where none is known.
double error_in(const SweepCell& cell, const std::string& key) {
  const double error = cell.metrics.error_of(key);
  return std::isnan(error) ? 0.0 : error;
}

std::string title_of(const std::string& key) {
  return find_metric(key).title;
}

/// KL spans decades; shares and bytes do not.
Spacing spacing_of(const std::string& key) {
  return key.starts_with("kl_") ? Spacing::kLog : Spacing::kLinear;
}

/// The colours and marks of the front's chart.
Legend pareto_legend(const SweepReport& report) {
  Legend legend;
  if (const std::optional<size_t> dimension = marked_dimension(report)) {
    const std::vector<std::string> choices = choices_of(report, *dimension);
    for (size_t i = 0; i < choices.size(); ++i) {
      Markup sample;
      draw_mark(sample, look_of(i).mark, look_of(i).css_class, {14, 8});
      legend.push_back({choice_words(choices[i]), sample});
    }
  }
  Markup ring;
  draw_path(ring, "front", "M0 3H14V13H28");
  ring.leaf("circle", {{"class", "ring"}, {"cx", "14"}, {"cy", "8"}, {"r", "5"}});
  legend.push_back({"the Pareto front", ring});
  return legend;
}

int64_t count_of(const SweepReport& report, std::string_view status) {
  return std::ranges::count(report.cells, status, &SweepCell::status);
}

/// Whether its cache is the reference that the others are compared with, so that it wins nothing.
bool is_reference(const SweepCell& cell) {
  return cell.metrics.at("kl_mean") == 0.0;
}

/// The done cell with the best of a metric; nullptr where none has it.
const SweepCell* best_of(const SweepReport& report, const Metric& metric) {
  const SweepCell* best = nullptr;
  for (const SweepCell& cell : report.cells) {
    const double value = cell.metrics.at(metric.key);
    if (!cell.is_done() || std::isnan(value) || is_reference(cell)) continue;
    const double least = best ? best->metrics.at(metric.key) : value;
    if (!best || (metric.is_less_better ? value < least : value > least)) best = &cell;
  }
  return best;
}

/// The cells that tie with the best, itself among them.
int64_t num_tied(const SweepReport& report, const Metric& metric, const SweepCell& best) {
  return std::ranges::count_if(report.cells, [&](const SweepCell& cell) {
    return cell.is_done() && !is_reference(cell) && metric.are_tied(cell.metrics, best.metrics);
  });
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
  for (const Metric& metric : all_metrics()) {
    if (metric.key != report.pareto_x && metric.key != report.pareto_y) continue;
    if (const SweepCell* cell = best_of(report, metric))
      tiles.add((metric.is_less_better ? "Least " : "Largest ") + std::string(metric.title),
                metric.text_with_error(cell->metrics),
                named_with_ties(cell->id, num_tied(report, metric, *cell)));
  }
  return {"summary", "At a glance", tiles.finish()};
}

Section pareto_section(const SweepReport& report) {
  Section section{"pareto", "What is worth its bytes"};
  section.body = figure(
      draw_scatter(pareto_chart(report)),
      {.caption = std::string("Every cell that is done: ") +
                  (report.pareto_y.empty() || find_metric(report.pareto_y).is_less_better ? "down"
                                                                                          : "up") +
                  " is better, left is smaller. Marks on the same spot "
                  "stand beside each other. Bars are standard errors; what differs by less than "
                  "the error of the difference is as good. A row of the table of cells that has "
                  "the focus, or lies under the pointer, is shown here.",
       .drawings = legend_list("pareto-mark", pareto_legend(report))});
  if (section.body.empty()) section.body = words("No cell has both measures yet.");
  return section;
}

Section choices_section(const SweepReport& report) {
  Section section{"choices", "What each choice does"};
  for (const SpreadChart& chart : choice_charts(report))
    section.body.append(
        figure(draw_spread(chart), {.caption = chart.title + ", all other choices together."}));
  return section;
}

std::string status_words(const SweepCell& cell) {
  if (cell.is_done()) return "✓ done";
  return cell.status == "failed" ? "✗ failed" : cell.status;
}

Section cells_section(const SweepReport& report) {
  Section section{"cells", "All cells"};
  std::vector<Metrics> all;
  for (const SweepCell& cell : report.cells) all.push_back(cell.metrics);
  const std::vector<const Metric*> metrics = known_metrics(all);
  // What was measured stands first, and needs no scrolling; a cell's name has its choices.
  std::vector<Column> columns{{"cell"}};
  columns.push_back(
      {.title = "front", .hint = "on the Pareto front", .kind = Column::Kind::kChoice});
  add_columns(columns, metrics);
  columns.push_back({.title = "status", .kind = Column::Kind::kChoice});
  for (const std::string& dimension : report.dimensions)
    columns.push_back({.title = key_words(dimension), .kind = Column::Kind::kChoice});
  TableMarkup table({.id = "cells-table", .caption = "Every cell of the grid", .is_sortable = true},
                    columns);
  for (const SweepCell& cell : report.cells) {
    table.keyed_row(cell.id, cell.id).word(cell.is_pareto ? "yes" : "no");
    add_cells(table, cell.metrics, metrics);
    table.word(status_words(cell));
    for (const std::string& choice : cell.choices)
      table.word(choice.empty() ? "–" : choice_words(choice));
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

std::string choice_words(const std::string& choice) {
  std::string words = choice.substr(choice.find_last_of('/') + 1);
  if (words.empty()) words = choice;
  for (const std::string_view ending : {".yaml", ".yml", ".json"})
    if (words.ends_with(ending) && words.size() > ending.size())
      words.resize(words.size() - ending.size());
  return words;
}

ScatterChart pareto_chart(const SweepReport& report) {
  ScatterChart chart{.id = "pareto-chart",
                     .description =
                         "A mark a cell, with a bar of one standard error where it is "
                         "known; rings and the stepped line are the front: no other cell "
                         "is better in one measure without being worse in the other, by "
                         "more than the standard error of their difference. The numbers "
                         "are in the table of cells."};
  if (report.pareto_x.empty()) return chart;
  chart.x_title = title_of(report.pareto_x);
  chart.y_title = title_of(report.pareto_y);
  chart.title = chart.y_title + " against " + chart.x_title;
  chart.x_text = find_metric(report.pareto_x).text;
  chart.y_spacing = spacing_of(report.pareto_y);
  const std::vector<size_t> labels = label_dimensions(report);
  for (const SweepCell& cell : report.cells) {
    if (!has_both(report, cell)) continue;
    const MarkStyle look = look_of_cell(report, cell);
    if (cell.is_pareto) chart.front.push_back(chart.points.size());
    chart.points.push_back({.x = cell.metrics.at(report.pareto_x),
                            .y = cell.metrics.at(report.pareto_y),
                            .label = label_of(report, cell, labels),
                            .words = words_of(report, cell),
                            .css_class = look.css_class,
                            .mark = look.mark,
                            .is_chosen = cell.is_pareto,
                            .key = cell.id,
                            .y_error = error_in(cell, report.pareto_y)});
  }
  std::ranges::stable_sort(chart.front, {}, [&](size_t i) { return chart.points[i].x; });
  chart.has_steps = true;
  // Room for a label each, within reason.
  chart.height = std::clamp(100.0 + 17.0 * static_cast<double>(chart.points.size()), 380.0, 900.0);
  return chart;
}

std::vector<SpreadChart> choice_charts(const SweepReport& report) {
  std::vector<SpreadChart> charts;
  if (report.pareto_y.empty()) return charts;
  const std::string title = title_of(report.pareto_y);
  for (const size_t dimension : varying_dimensions(report)) {
    SpreadChart chart{.id = "choices-" + std::to_string(dimension),
                      .title = title + " by " + key_words(report.dimensions[dimension]),
                      .description =
                          "A tick a cell; a box around the middle half, a heavy line at "
                          "the median. The numbers are in the table of cells.",
                      .values_title = title,
                      .spacing = spacing_of(report.pareto_y)};
    const std::vector<std::string> choices = choices_of(report, dimension);
    for (size_t i = 0; i < choices.size(); ++i) {
      // Colours mean the choices of one dimension on the whole page.
      const bool is_marked = dimension == marked_dimension(report);
      SpreadRow row{choice_words(choices[i]), is_marked ? look_of(i).css_class : "plain", {}};
      for (const SweepCell& cell : report.cells)
        if (cell.is_done() && cell.choices[dimension] == choices[i])
          row.values.push_back(cell.metrics.at(report.pareto_y));
      chart.rows.push_back(std::move(row));
    }
    charts.push_back(std::move(chart));
  }
  return charts;
}

std::string sweep_page(const SweepReport& report) {
  Page page{.title = (report.name.empty() ? std::string("Sweep") : report.name) + ": sweep" +
                     (report.models.empty() ? "" : " of " + report.models) +
                     (report.dataset.empty() ? "" : " on " + report.dataset),
            .footer = "Written by kvcal " + report.version};
  page.heading.element("p", {{"class", "lead"}},
                       counted(report.cells.size(), "cell") + " over " +
                           counted(report.dimensions.size(), "dimension"));
  page.sections = {summary_section(report), failures_section(report), pareto_section(report),
                   choices_section(report), cells_section(report)};
  return html(page);
}

std::vector<Plot> sweep_plots(const SweepReport& report) {
  std::vector<Plot> plots;
  add_plot(plots, "pareto", pareto_chart(report), pareto_legend(report));
  for (const SpreadChart& chart : choice_charts(report)) add_plot(plots, chart.id, chart);
  return plots;
}

}  // namespace kvcal::report
