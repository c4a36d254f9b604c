#include "report/heat_map.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "report/numbers.h"

namespace kvcal::report {
namespace {

constexpr int kLevels = 8;
constexpr size_t kBlockLayers = 32;
constexpr double kLeft = 34, kTop = 22, kRowHeight = 17;

/// How numbers become levels: even steps of their logarithm. A level has its cells' paths.
struct Levels {
  double least = std::numeric_limits<double>::infinity(), largest = 0.0;

  /// 1 to kLevels; 0 for what is not positive.
  int of(double value) const {
    if (!(value > 0.0)) return 0;
    if (largest <= least) return kLevels;
    const double part = std::log(value / least) / std::log(largest / least);
    return std::clamp(1 + static_cast<int>(part * kLevels), 1, kLevels);
  }
  double edge(int level) const {
    return least * std::pow(largest / least, static_cast<double>(level) / kLevels);
  }
};

Levels levels_of(const HeatMap& map) {
  Levels levels;
  for (const std::vector<float>& row : map.rows)
    for (const float value : row)
      if (value > 0.0f) {
        levels.least = std::min(levels.least, static_cast<double>(value));
        levels.largest = std::max(levels.largest, static_cast<double>(value));
      }
  return levels;
}

double cell_width(size_t heads) {
  if (heads <= 8) return 52;
  if (heads <= 16) return 44;
  return heads <= 40 ? 18 : heads <= 72 ? 11 : 7;
}

bool has_digits(size_t heads) {
  return heads <= 16;
}

/// The filled share of a cell: all under digits, else level/kLevels, so that it can be read without
/// colour.
double filling(int level, bool is_full) {
  return is_full ? kRowHeight - 1 : std::max(2.0, (kRowHeight - 1) * level / kLevels);
}

/// Cells of one level beside each other, filled from their floor: a stroke as thick as they are
/// high.
std::string run_of_cells(double x, size_t row, double width, double height) {
  const double y = kTop + kRowHeight * static_cast<double>(row + 1) - 1 - height / 2;
  return move_to(x, y) + "h" + coordinate(width);
}

struct Block {
  size_t first = 0, count = 0, heads = 0;
};

void draw_row_labels(Markup& content, const HeatMap& map, const Block& block) {
  for (size_t row = 0; row < block.count; ++row)
    draw_label(content, {.x = kLeft - 5,
                         .y = kTop + kRowHeight * static_cast<double>(row) + 12.5,
                         .text = std::to_string(map.layers[block.first + row]),
                         .anchor = "end"});
  const double width = cell_width(block.heads);
  const size_t step = width >= 18 ? (width >= 40 ? 1 : 4) : 8;
  for (size_t head = 0; head < block.heads; head += step)
    draw_label(content, {.x = kLeft + width * (static_cast<double>(head) + 0.5),
                         .y = kTop - 7,
                         .text = std::to_string(head)});
}

void draw_digits(Markup& content, const HeatMap& map, const Levels& levels, const Block& block) {
  const double width = cell_width(block.heads);
  for (size_t row = 0; row < block.count; ++row) {
    const std::vector<float>& values = map.rows[block.first + row];
    for (size_t head = 0; head < values.size(); ++head) {
      const auto value = static_cast<double>(values[head]);
      draw_label(content, {.x = kLeft + width * (static_cast<double>(head) + 0.5),
                           .y = kTop + kRowHeight * static_cast<double>(row) + 12.5,
                           .text = number_text(value),
                           .anchor = "middle",
                           .css_class = levels.of(value) > kLevels / 2 ? "on-dark" : "on-light"});
    }
  }
}

void draw_cells(Markup& content, const HeatMap& map, const Levels& levels, const Block& block) {
  const double width = cell_width(block.heads);
  const bool is_full = has_digits(block.heads);
  std::array<std::string, kLevels + 1> paths;
  for (size_t row = 0; row < block.count; ++row) {
    const std::vector<float>& values = map.rows[block.first + row];
    for (size_t head = 0; head < values.size();) {
      const int level = levels.of(static_cast<double>(values[head]));
      size_t end = head + 1;
      while (end < values.size() && levels.of(static_cast<double>(values[end])) == level) ++end;
      const auto cells = static_cast<double>(end - head);
      paths[static_cast<size_t>(level)] += run_of_cells(
          kLeft + width * static_cast<double>(head), row, width * cells, filling(level, is_full));
      head = end;
    }
  }
  for (int level = 0; level <= kLevels; ++level) {
    const std::string& path = paths[static_cast<size_t>(level)];
    if (path.empty()) continue;
    content.leaf("path", {{"class", "level" + std::to_string(level)},
                          {"stroke-width", coordinate(filling(level, is_full))},
                          {"d", path}});
  }
}

Drawing draw_block(const HeatMap& map, const Levels& levels, const Block& block) {
  const std::string first = std::to_string(map.layers[block.first]);
  const std::string last = std::to_string(map.layers[block.first + block.count - 1]);
  Drawing drawing{
      .id = map.id + "-" + first,
      .title = map.what + " by head, layers " + first + " to " + last,
      .description =
          "A row a layer, a column a head; darker and higher is larger. The numbers are in "
          "the table below.",
      .width = kLeft + cell_width(block.heads) * static_cast<double>(block.heads) + 2,
      .height = kTop + kRowHeight * static_cast<double>(block.count) + 2,
      .css_class = "heat"};
  draw_cells(drawing.content, map, levels, block);
  draw_row_labels(drawing.content, map, block);
  if (has_digits(block.heads)) draw_digits(drawing.content, map, levels, block);
  return drawing;
}

Drawing draw_key(const HeatMap& map, const Levels& levels) {
  Drawing drawing{.id = map.id + "-key",
                  .title = "Key of " + map.what,
                  .description = "Eight levels from " + number_text(levels.least) + " to " +
                                 number_text(levels.largest) + ", each the same ratio wide.",
                  .width = 64.0 * kLevels + 60,
                  .height = 36,
                  .css_class = "key"};
  for (int level = 1; level <= kLevels; ++level) {
    const double height = filling(level, false);
    drawing.content.leaf("path",
                         {{"class", "level" + std::to_string(level)},
                          {"stroke-width", coordinate(height)},
                          {"d", move_to(30 + 64.0 * (level - 1), 18 - height / 2) + "h62"}});
  }
  for (int level = 0; level <= kLevels; ++level)
    draw_label(drawing.content,
               {.x = 29 + 64.0 * level, .y = 32, .text = number_text(levels.edge(level))});
  return drawing;
}

size_t most_heads(const HeatMap& map) {
  size_t heads = 0;
  for (const std::vector<float>& row : map.rows) heads = std::max(heads, row.size());
  return heads;
}

}  // namespace

HeatDrawings draw_heat_map(const HeatMap& map) {
  HeatDrawings drawings;
  const Levels levels = levels_of(map);
  const size_t heads = most_heads(map);
  if (levels.largest == 0.0) return drawings;
  if (levels.largest > levels.least) drawings.key = draw_key(map, levels);
  for (size_t first = 0; first < map.rows.size(); first += kBlockLayers)
    drawings.blocks.push_back(draw_block(map, levels,
                                         {.first = first,
                                          .count = std::min(kBlockLayers, map.rows.size() - first),
                                          .heads = heads}));
  return drawings;
}

Markup heat_map_part(const HeatMap& map) {
  Markup out;
  const HeatDrawings drawings = draw_heat_map(map);
  if (drawings.blocks.empty()) return out;
  out.open("div", {{"class", "map"}}).element("h3", map.what);
  if (!drawings.key.content.empty()) out.append(svg(drawings.key));
  out.open("div", {{"class", "blocks"}, {"data-numbers", map.id + "-numbers"}});
  for (const Drawing& block : drawings.blocks) out.append(svg(block));
  return out.close("div").close("div");
}

Markup heat_map_table(const HeatMap& map) {
  const size_t heads = most_heads(map);
  std::vector<Column> columns{{"layer"}};
  for (size_t head = 0; head < heads; ++head) columns.push_back({std::to_string(head)});
  TableMarkup table({.id = map.id + "-numbers", .caption = map.what + " by layer and head"},
                    columns);
  // Tables of tens of thousands of numbers are the largest part of a page.
  const int digits = heads > 40 ? 3 : 4;
  for (size_t i = 0; i < map.rows.size(); ++i) {
    table.row(std::to_string(map.layers[i]));
    for (const float value : map.rows[i])
      table.cell(number_text(static_cast<double>(value), digits));
  }
  return folded("Numbers of " + map.what, table.finish());
}

}  // namespace kvcal::report
