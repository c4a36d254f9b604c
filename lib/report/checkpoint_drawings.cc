#include "report/checkpoint_drawings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "report/markup.h"

namespace kvcal::report {
namespace {

constexpr int kLevels = 8;
constexpr size_t kBlockLayers = 32;
constexpr double kMapLeft = 34, kMapTop = 22, kRowHeight = 17, kKeyStep = 48;
constexpr double kDigitsWidth = 50;

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

/// Two maps, of K and of V, lie beside each other in a window of 1,200 pixels.
double cell_width(size_t heads) {
  constexpr double kWidest = 52, kLeast = 3, kWidestMap = 510;
  return std::clamp(std::floor(kWidestMap / static_cast<double>(std::max<size_t>(heads, 1))),
                    kLeast, kWidest);
}

/// Whether cells have room for four digits.
bool has_digits(size_t heads) {
  return cell_width(heads) >= kDigitsWidth;
}

/// The filled share of a cell: all under digits, else level/kLevels, so that it can be read without
/// colour.
double filling(int level, bool is_full) {
  return is_full ? kRowHeight - 1 : std::max(2.0, (kRowHeight - 1) * level / kLevels);
}

/// Cells of one level beside each other, filled from their floor: a stroke as thick as they are
/// high.
std::string run_of_cells(double x, size_t row, double width, double height) {
  const double y = kMapTop + kRowHeight * static_cast<double>(row + 1) - 1 - height / 2;
  return move_to(x, y) + "h" + coordinate(width);
}

struct Block {
  size_t first = 0, count = 0, heads = 0;
};

void draw_row_labels(Markup& content, const HeatMap& map, const Block& block) {
  for (size_t row = 0; row < block.count; ++row)
    draw_label(content, {kMapLeft - 5, kMapTop + kRowHeight * static_cast<double>(row) + 12.5,
                         std::to_string(map.layers[block.first + row]), "end"});
  const double width = cell_width(block.heads);
  const size_t step = width >= 24 ? 1 : width >= 12 ? 4 : width >= 6 ? 8 : 16;
  for (size_t head = 0; head < block.heads; head += step)
    draw_label(content, {kMapLeft + width * (static_cast<double>(head) + 0.5), kMapTop - 7,
                         std::to_string(head)});
}

void draw_digits(Markup& content, const HeatMap& map, const Levels& levels, const Block& block) {
  const double width = cell_width(block.heads);
  for (size_t row = 0; row < block.count; ++row) {
    const std::vector<float>& values = map.rows[block.first + row];
    for (size_t head = 0; head < values.size(); ++head) {
      const auto value = static_cast<double>(values[head]);
      draw_label(content,
                 {kMapLeft + width * (static_cast<double>(head) + 0.5),
                  kMapTop + kRowHeight * static_cast<double>(row) + 12.5, number_text(value, 4),
                  "middle", levels.of(value) > kLevels / 2 ? "on-dark" : "on-light"});
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
      paths[static_cast<size_t>(level)] +=
          run_of_cells(kMapLeft + width * static_cast<double>(head), row, width * cells,
                       filling(level, is_full));
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
      .width = kMapLeft + cell_width(block.heads) * static_cast<double>(block.heads) + 2,
      .height = kMapTop + kRowHeight * static_cast<double>(block.count) + 2,
      .css_class = "heat"};
  draw_cells(drawing.content, map, levels, block);
  draw_row_labels(drawing.content, map, block);
  if (has_digits(block.heads)) draw_digits(drawing.content, map, levels, block);
  return drawing;
}

Drawing draw_key(const HeatMap& map, const Levels& levels) {
  Drawing drawing = drawing_of(map.id + "-key", "Key of " + map.what,
                               "Eight levels from " + number_text(levels.least) + " to " +
                                   number_text(levels.largest) + ", each the same ratio wide.",
                               kKeyStep * kLevels + 60, 36, "key");
  for (int level = 1; level <= kLevels; ++level) {
    const double height = filling(level, false);
    drawing.content.leaf("path", {{"class", "level" + std::to_string(level)},
                                  {"stroke-width", coordinate(height)},
                                  {"d", move_to(30 + kKeyStep * (level - 1), 18 - height / 2) +
                                            "h" + coordinate(kKeyStep - 2)}});
  }
  for (int level = 0; level <= kLevels; ++level)
    draw_label(drawing.content, {29 + kKeyStep * level, 32, number_text(levels.edge(level), 3)});
  return drawing;
}

size_t most_heads(const HeatMap& map) {
  size_t heads = 0;
  for (const std::vector<float>& row : map.rows) heads = std::max(heads, row.size());
  return heads;
}

constexpr double kStripWidth = 250, kStripHeight = 30;
constexpr double kWidth = 580, kHeight = 210, kLeft = 58, kRight = 8, kTop = 20, kBottom = 40;

/// A rectangle of a drawing that histograms are put into.
struct Frame {
  Axis x;
  double top = 0, bottom = 0, left = 0, right = 0;
};

Frame strip_frame(const MagnitudeDomain& domain) {
  return {.x = Axis(Spacing::kLog, domain.least, domain.largest, 0, kStripWidth),
          .top = 2,
          .bottom = kStripHeight,
          .left = 0,
          .right = kStripWidth};
}

Frame large_frame(const MagnitudeDomain& domain) {
  return {.x = Axis(Spacing::kLog, domain.least, domain.largest, kLeft, kWidth - kRight),
          .top = kTop,
          .bottom = kHeight - kBottom,
          .left = kLeft,
          .right = kWidth - kRight};
}

void draw_zone(Markup& content, const Frame& frame, double from, double to,
               std::string_view css_class) {
  if (to - from < 0.1) return;
  content.leaf("rect", {{"class", std::string(css_class)},
                        {"x", coordinate(from)},
                        {"y", coordinate(frame.top)},
                        {"width", coordinate(to - from)},
                        {"height", coordinate(frame.bottom - frame.top)}});
}

/// Heads with scales of their own differ in where the zones begin: drawn is what holds for all.
struct ZoneEdges {
  double to_zero = 0, normal = 0, largest = 0, largest_of_all = 0;
};

ZoneEdges zone_edges(const Magnitudes& magnitudes, const Axis& x) {
  const auto [least, largest] = std::ranges::minmax(magnitudes.scales);
  const Fp8Range finest = fp8_range(static_cast<double>(least), magnitudes.format);
  const Fp8Range coarsest = fp8_range(static_cast<double>(largest), magnitudes.format);
  return {.to_zero = x.at(finest.to_zero),
          .normal = x.at(finest.normal),
          .largest = x.at(finest.largest),
          .largest_of_all = x.at(coarsest.largest)};
}

void draw_zones(Markup& content, const Frame& frame, const Magnitudes& magnitudes) {
  if (magnitudes.scales.empty()) return;
  const ZoneEdges edges = zone_edges(magnitudes, frame.x);
  draw_zone(content, frame, frame.left, edges.to_zero, "zone zero");
  draw_zone(content, frame, edges.to_zero, edges.normal, "zone sub");
  draw_zone(content, frame, edges.largest_of_all, frame.right, "zone over");
}

void draw_limits(Markup& content, const Frame& frame, const Magnitudes& magnitudes) {
  if (magnitudes.scales.empty()) return;
  const ZoneEdges edges = zone_edges(magnitudes, frame.x);
  const auto line = [&](double x) {
    return move_to(x, frame.top) + "V" + coordinate(frame.bottom);
  };
  std::string path = line(edges.largest);
  if (edges.largest_of_all - edges.largest > 0.5) path += line(edges.largest_of_all);
  draw_path(content, "limit", path);
}

/// Counts for each octave's width: halves of an octave differ in width where magnitudes are drawn
/// logarithmically.
double density(const OctaveCounts& counts, size_t i) {
  return static_cast<double>(counts.counts[i]) / std::log2(counts.edge(i + 1) / counts.edge(i));
}

/// The outline of counts, height(density) of each from the floor up.
template <class Height>
std::string outline(const OctaveCounts& counts, const Frame& frame, const Height& height) {
  std::string path;
  double end = -1.0;
  for (size_t i = 0; i < counts.counts.size(); ++i) {
    if (counts.counts[i] == 0) continue;
    const double from = frame.x.at(counts.edge(i)), to = frame.x.at(counts.edge(i + 1));
    if (to - from < 0.05) continue;  // outside of the domain
    if (from - end > 0.05) {
      if (end >= 0.0) path += "V" + coordinate(frame.bottom) + "Z";
      path += move_to(from, frame.bottom);
    }
    path += "V" + coordinate(frame.bottom - height(density(counts, i))) + "H" + coordinate(to);
    end = to;
  }
  return path.empty() ? path : path + "V" + coordinate(frame.bottom) + "Z";
}

std::string words_of(const Magnitudes& magnitudes) {
  std::string words = "Largest magnitude " + number_text(magnitudes.amax) + ".";
  if (magnitudes.scales.empty()) return words + " No scale.";
  std::vector<float> limits;
  for (const float scale : magnitudes.scales)
    limits.push_back(
        static_cast<float>(fp8_range(static_cast<double>(scale), magnitudes.format).largest));
  words += std::string(" Largest ") + (magnitudes.format.is_int8() ? "INT8" : "FP8") + " value " +
           range_text(limits) + ".";
  const RangeShares shares = shares_of(
      *magnitudes.counts,
      fp8_range(static_cast<double>(std::ranges::max(magnitudes.scales)), magnitudes.format));
  return words + " Rounded to 0: " + share_text(shares.to_zero) +
         ", subnormal: " + share_text(shares.subnormal) + ".";
}

/// A power of ten below which no share of counts lies.
int lowest_decade(const OctaveCounts& counts) {
  const auto total = static_cast<double>(counts.total());
  return -std::clamp(static_cast<int>(std::ceil(std::log10(std::max(total, 10.0)))), 2, 9);
}

void draw_axes(Markup& content, const Frame& frame, int lowest) {
  for (const double tick : frame.x.ticks()) {
    const double x = frame.x.at(tick);
    draw_path(content, "grid", move_to(x, frame.top) + "V" + coordinate(frame.bottom + 4));
    draw_label(content, {x, frame.bottom + 20, tick_text(tick)});
  }
  for (int decade = 0; decade >= lowest; decade -= lowest < -5 ? 2 : 1) {
    const double y = frame.top + (frame.bottom - frame.top) * decade / lowest;
    draw_label(content,
               {frame.left - 5, y + 4, tick_text(std::pow(10.0, decade + 2)) + " %", "end"});
  }
  draw_label(content, {(frame.left + frame.right) / 2, frame.bottom + 36, "magnitude"});
}

/// Every power of two of the codes, and each subnormal one, along the floor.
void draw_codes(Markup& content, const Frame& frame, const Magnitudes& magnitudes) {
  if (magnitudes.scales.size() != 1) return;
  const auto scale = static_cast<double>(magnitudes.scales[0]);
  const std::optional<fp8::Format> floats = magnitudes.format.floats();
  const std::vector<double> codes = magnitudes.format.magnitudes();
  const uint32_t per_octave = floats ? 1u << fp8::layout_of(*floats).mantissa_bits : 0;
  std::string path;
  for (uint32_t code = 1; code < codes.size(); code += !floats             ? code
                                                       : code < per_octave ? 1
                                                                           : per_octave) {
    const double value = scale * codes[code];
    if (value < frame.x.least() || value > frame.x.largest()) continue;
    path += move_to(frame.x.at(value), frame.bottom) + "v5";
  }
  draw_path(content, "codes", path);
}

void draw_words(Markup& content, const Frame& frame, const Magnitudes& magnitudes) {
  if (magnitudes.scales.empty()) return;
  const ZoneEdges edges = zone_edges(magnitudes, frame.x);
  const auto word = [&](double from, double to, const char* text, double least) {
    if (to - from >= least) draw_label(content, {(from + to) / 2, frame.top - 6, text});
  };
  word(frame.left, edges.to_zero, "rounded to 0", 76);
  word(edges.to_zero, edges.normal, "subnormal", 60);
  word(edges.normal, edges.largest, "normal", 44);
  word(edges.largest_of_all, frame.right, "clipped", 44);
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

MagnitudeDomain domain_of(const std::vector<Magnitudes>& all) {
  MagnitudeDomain domain{.least = std::numeric_limits<double>::infinity(), .largest = 0.0};
  for (const Magnitudes& magnitudes : all) {
    const OctaveCounts& counts = *magnitudes.counts;
    if (counts.counts.empty()) continue;
    domain.lowest_decade = std::min(domain.lowest_decade, lowest_decade(counts));
    // The least thousandth may lie far below; tables have its share.
    size_t i = 0;
    const double little = 0.001 * static_cast<double>(counts.total());
    while (i + 1 < counts.counts.size() && count_below(counts, counts.edge(i + 1)) < little) ++i;
    domain.least = std::min(domain.least, counts.edge(i));
    domain.largest = std::max(domain.largest, counts.edge(counts.counts.size()));
    for (const float scale : magnitudes.scales) {
      const Fp8Range range = fp8_range(static_cast<double>(scale), magnitudes.format);
      domain.least = std::min(domain.least, range.to_zero / 2);
      domain.largest = std::max(domain.largest, range.largest * 2);
    }
  }
  if (domain.largest == 0.0) return {.least = 1.0, .largest = 2.0};
  domain.least = std::max(domain.least, 0x1p-24);
  return domain;
}

Markup draw_strip(const Magnitudes& magnitudes, const MagnitudeDomain& domain) {
  const Frame frame = strip_frame(domain);
  const OctaveCounts& counts = *magnitudes.counts;
  Drawing drawing = drawing_of(magnitudes.id, magnitudes.title, words_of(magnitudes), kStripWidth,
                               kStripHeight, "strip");
  draw_zones(drawing.content, frame, magnitudes);
  if (!counts.counts.empty()) {
    double most = 0.0;
    for (size_t i = 0; i < counts.counts.size(); ++i) most = std::max(most, density(counts, i));
    const auto height = [&](double value) { return (frame.bottom - frame.top) * value / most; };
    draw_path(drawing.content, "bars " + magnitudes.css_class, outline(counts, frame, height));
  }
  draw_limits(drawing.content, frame, magnitudes);
  return svg(drawing);
}

Markup draw_strip_axis(const std::string& id, const MagnitudeDomain& domain) {
  const Frame frame = strip_frame(domain);
  Drawing drawing = drawing_of(
      id, "Axis of magnitudes",
      "from " + number_text(domain.least) + " to " + number_text(domain.largest) + ", logarithmic",
      kStripWidth, 20, "strip-axis");
  for (const double tick : frame.x.ticks(5)) {
    const double x = frame.x.at(tick);
    if (x < 12 || x > kStripWidth - 12) continue;
    draw_label(drawing.content, {x, 12, tick_text(tick)});
    draw_path(drawing.content, "tick", move_to(x, 15) + "v5");
  }
  return svg(drawing);
}

Markup magnitude_axes(const MagnitudeDomain& domain) {
  Markup out;
  out.open("svg",
           {{"class", "patterns"}, {"width", "0"}, {"height", "0"}, {"aria-hidden", "true"}});
  out.open("defs").open("g", {{"id", "magnitude-axes"}});
  draw_axes(out, large_frame(domain), domain.lowest_decade);
  return out.close("g").close("defs").close("svg");
}

Drawing draw_magnitudes(const Magnitudes& magnitudes, const MagnitudeDomain& domain) {
  const Frame frame = large_frame(domain);
  const OctaveCounts& counts = *magnitudes.counts;
  const int lowest = domain.lowest_decade;
  const auto total = static_cast<double>(counts.total());
  const auto height = [&](double value) {
    const double decade = std::clamp(std::log10(value / total), static_cast<double>(lowest), 0.0);
    return std::max(1.0, (frame.bottom - frame.top) * (1.0 - decade / lowest));
  };
  Drawing drawing = drawing_of(magnitudes.id, magnitudes.title, words_of(magnitudes), kWidth,
                               kHeight, "magnitudes");
  draw_zones(drawing.content, frame, magnitudes);
  drawing.content.leaf("use", {{"href", "#magnitude-axes"}});
  draw_path(drawing.content, "bars " + magnitudes.css_class, outline(counts, frame, height));
  draw_codes(drawing.content, frame, magnitudes);
  draw_limits(drawing.content, frame, magnitudes);
  draw_words(drawing.content, frame, magnitudes);
  return drawing;
}

Legend range_legend() {
  struct Zone {
    const char *css_class, *words;
  };
  constexpr Zone kZones[] = {{"zone zero", "rounded to 0 (below half the smallest code)"},
                             {"zone sub", "subnormal codes: fewer bits the smaller the value"},
                             {"zone over", "above the largest code: clipped"}};
  Legend legend;
  for (const Zone& zone : kZones)
    legend.push_back(
        {zone.words,
         Markup().leaf("rect", {{"class", zone.css_class}, {"width", "28"}, {"height", "16"}})});
  legend.push_back({"scale × largest code; two lines: least and largest of the heads",
                    Markup().leaf("path", {{"class", "limit"}, {"d", "M14 0V16"}})});
  return legend;
}

Fp8Range fp8_range(double scale, const KvFormat& format) {
  const auto smallest = static_cast<double>(format.least_code());
  Fp8Range range{.to_zero = scale * smallest / 2,
                 .normal = scale * smallest / 2,
                 .largest = scale * static_cast<double>(format.largest_code())};
  if (const std::optional<fp8::Format> floats = format.floats()) {
    const auto first_normal = static_cast<uint8_t>(1u << fp8::layout_of(*floats).mantissa_bits);
    range.normal = scale * static_cast<double>(fp8::decode(first_normal, *floats));
  }
  return range;
}

RangeShares shares_of(const OctaveCounts& counts, const Fp8Range& range) {
  const auto total = static_cast<double>(counts.total());
  if (total == 0.0) return {};
  const double to_zero = count_below(counts, range.to_zero) / total;
  return {.to_zero = to_zero, .subnormal = count_below(counts, range.normal) / total - to_zero};
}

}  // namespace kvcal::report
