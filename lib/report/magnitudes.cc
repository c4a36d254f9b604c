#include "report/magnitudes.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "report/axis.h"
#include "report/fp8_range.h"
#include "report/numbers.h"

namespace kvcal::report {
namespace {

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
  words += " Largest FP8 value " + range_text(limits) + ".";
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
    draw_label(content, {.x = x, .y = frame.bottom + 20, .text = tick_text(tick)});
  }
  for (int decade = 0; decade >= lowest; decade -= lowest < -5 ? 2 : 1) {
    const double y = frame.top + (frame.bottom - frame.top) * decade / lowest;
    draw_label(content, {.x = frame.left - 5,
                         .y = y + 4,
                         .text = tick_text(std::pow(10.0, decade + 2)) + " %",
                         .anchor = "end"});
  }
  draw_label(content,
             {.x = (frame.left + frame.right) / 2, .y = frame.bottom + 36, .text = "magnitude"});
}

/// Every power of two of the codes, and each subnormal one, along the floor.
void draw_codes(Markup& content, const Frame& frame, const Magnitudes& magnitudes) {
  if (magnitudes.scales.size() != 1) return;
  const auto scale = static_cast<double>(magnitudes.scales[0]);
  const fp8::Layout layout = fp8::layout_of(magnitudes.format);
  const uint32_t per_octave = 1u << layout.mantissa_bits;
  std::string path;
  for (uint32_t code = 1; code <= layout.max_code; code += code < per_octave ? 1 : per_octave) {
    const double value =
        scale * static_cast<double>(fp8::decode(static_cast<uint8_t>(code), magnitudes.format));
    if (value < frame.x.least() || value > frame.x.largest()) continue;
    path += move_to(frame.x.at(value), frame.bottom) + "v5";
  }
  draw_path(content, "codes", path);
}

void draw_words(Markup& content, const Frame& frame, const Magnitudes& magnitudes) {
  if (magnitudes.scales.empty()) return;
  const ZoneEdges edges = zone_edges(magnitudes, frame.x);
  const auto word = [&](double from, double to, const char* text, double least) {
    if (to - from >= least)
      draw_label(content, {.x = (from + to) / 2, .y = frame.top - 6, .text = text});
  };
  word(frame.left, edges.to_zero, "rounded to 0", 76);
  word(edges.to_zero, edges.normal, "subnormal", 60);
  word(edges.normal, edges.largest, "normal", 44);
  word(edges.largest_of_all, frame.right, "clipped", 44);
}

}  // namespace

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
  Drawing drawing{.id = magnitudes.id,
                  .title = magnitudes.title,
                  .description = words_of(magnitudes),
                  .width = kStripWidth,
                  .height = kStripHeight,
                  .css_class = "strip"};
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
  Drawing drawing{.id = id,
                  .title = "Axis of magnitudes",
                  .description = "from " + number_text(domain.least) + " to " +
                                 number_text(domain.largest) + ", logarithmic",
                  .width = kStripWidth,
                  .height = 20,
                  .css_class = "strip-axis"};
  for (const double tick : frame.x.ticks(5)) {
    const double x = frame.x.at(tick);
    if (x < 12 || x > kStripWidth - 12) continue;
    draw_label(drawing.content, {.x = x, .y = 12, .text = tick_text(tick)});
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
  Drawing drawing{.id = magnitudes.id,
                  .title = magnitudes.title,
                  .description = words_of(magnitudes),
                  .width = kWidth,
                  .height = kHeight,
                  .css_class = "magnitudes"};
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

}  // namespace kvcal::report
