#include "report/plot.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "report/assets.h"
#include "report/markup.h"
#include "report/page.h"

namespace kvcal::report {
namespace {

constexpr double kChartWidth = 720, kMargin = 16, kTitleHeight = 34, kGap = 10;

/// The end of a CSS name.
size_t end_of_name(std::string_view css, size_t at) {
  constexpr std::string_view kName = "abcdefghijklmnopqrstuvwxyz0123456789-";
  return std::min(css.find_first_not_of(kName, at), css.size());
}

/// "--name: value;" of the first rule.
std::map<std::string_view, std::string_view> variables_of(std::string_view rule) {
  std::map<std::string_view, std::string_view> variables;
  for (size_t at = rule.find("--"); at != rule.npos; at = rule.find("--", at)) {
    const size_t colon = end_of_name(rule, at), end = rule.find(';', colon);
    KVCAL_CHECK(end != rule.npos && rule[colon] == ':');
    variables[rule.substr(at, colon - at)] = rule.substr(colon + 2, end - colon - 2);
    at = end;
  }
  return variables;
}

/// drawing.css with its variables put in.
std::string plain_css() {
  const size_t rule = kDrawingCss.find(":root {"), rest = kDrawingCss.find('}', rule) + 2;
  const auto variables = variables_of(kDrawingCss.substr(rule, rest - rule));
  std::string css;
  std::string_view left = kDrawingCss.substr(rest);
  constexpr std::string_view kOpening = "var(";
  for (size_t at = left.find(kOpening); at != left.npos; at = left.find(kOpening)) {
    const size_t name = at + kOpening.size(), end = end_of_name(left, name);
    css += left.substr(0, at);
    css += variables.at(left.substr(name, end - name));
    left.remove_prefix(end + 1);
  }
  return css.append(left);
}

std::string translation(double x, double y) {
  return "translate(" + coordinate(x) + " " + coordinate(y) + ")";
}

}  // namespace

void add_plot(std::vector<Plot>& plots, const std::string& name, Drawing drawing,
              const Legend& legend) {
  if (drawing.content.empty()) return;
  const std::string title = drawing.title;
  plots.push_back(
      {.name = name, .title = title, .drawings = {std::move(drawing)}, .legend = legend});
}

void add_plot(std::vector<Plot>& plots, const std::string& name, SeriesChart chart) {
  chart.width = kChartWidth;
  add_plot(plots, name, draw_series(chart), series_legend(chart.series));
}

void add_plot(std::vector<Plot>& plots, const std::string& name, SpreadChart chart) {
  chart.width = kChartWidth;
  add_plot(plots, name, draw_spread(chart));
}

void add_plot(std::vector<Plot>& plots, const std::string& name, ScatterChart chart,
              const Legend& legend) {
  chart.width = kChartWidth;
  add_plot(plots, name, draw_scatter(chart), legend);
}

std::string plot_svg(const Plot& plot) {
  double width = 0;
  for (const Drawing& drawing : plot.drawings) width = std::max(width, drawing.width);
  std::vector<Drawing> drawings;
  for (const Drawing& drawing : plot.drawings)
    if (!drawing.content.empty()) drawings.push_back(drawing);
  if (!plot.legend.empty())
    drawings.push_back(legend_drawing(plot.name + "-legend", plot.legend, width));
  Markup content;
  double y = kMargin + kTitleHeight;
  for (const Drawing& drawing : drawings) {
    content.open("g", {{"transform", translation(kMargin, y)}}).append(svg(drawing)).close("g");
    content.verbatim("\n");
    y += drawing.height + kGap;
  }
  const std::string full_width = coordinate(width + 2 * kMargin);
  const std::string full_height = coordinate(y - kGap + kMargin);
  Markup out;
  out.verbatim("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
  out.open("svg", {{"xmlns", "http://www.w3.org/2000/svg"},
                   {"width", full_width},
                   {"height", full_height},
                   {"viewBox", "0 0 " + full_width + " " + full_height},
                   {"role", "img"},
                   {"aria-labelledby", "plot-title"}});
  out.element("title", {{"id", "plot-title"}}, plot.title);
  out.open("style").verbatim(plain_css()).close("style");
  out.leaf("rect", {{"class", "paper"}, {"width", full_width}, {"height", full_height}});
  out.append(drawing_patterns()).append(plot.definitions);
  out.element(
      "text",
      {{"class", "plot-title"}, {"x", coordinate(kMargin)}, {"y", coordinate(kMargin + 14)}},
      plot.title);
  return out.append(content).close("svg").verbatim("\n").str();
}

}  // namespace kvcal::report
