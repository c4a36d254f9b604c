#pragma once

#include <string>
#include <vector>

#include "report/charts.h"

namespace kvcal::report {

/// Drawings of a page as a file of their own, for papers and pull requests.
struct Plot {
  std::string name;  ///< of the file, without ".svg"
  std::string title;
  std::vector<Drawing> drawings = {};  ///< one below the other; those without content are left out
  Legend legend = {};
  Markup definitions = {};  ///< what the drawings refer to by id
};

/// Adds a plot of one drawing, unless it has no content.
void add_plot(std::vector<Plot>& plots, const std::string& name, Drawing drawing,
              const Legend& legend = {});
/// Adds a plot of a chart, in the width of plots.
void add_plot(std::vector<Plot>& plots, const std::string& name, SeriesChart chart);
void add_plot(std::vector<Plot>& plots, const std::string& name, SpreadChart chart);
void add_plot(std::vector<Plot>& plots, const std::string& name, ScatterChart chart,
              const Legend& legend = {});

/// An SVG file, complete in itself, on light ground; it uses no variables and no scripts, so
/// programs other than browsers show it, too. Same input, same bytes.
std::string plot_svg(const Plot& plot);

}  // namespace kvcal::report
