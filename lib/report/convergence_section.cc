#include <algorithm>

#include "report/checkpoint_charts.h"
#include "report/checkpoint_sections.h"
#include "report/figure.h"
#include "report/numbers.h"

namespace kvcal::report {
namespace {

constexpr double kWidth = 178, kHeight = 104, kLeft = 30, kRight = 12, kTop = 8, kBottom = 20;

/// The first number of samples after which the amax was within `within` of the final one.
int64_t samples_until(const AmaxConvergence& seen, double within) {
  for (size_t i = 0; i < seen.num_samples.size(); ++i)
    if (part_of_final(seen, i) >= 1.0 - within) return seen.num_samples[i];
  return seen.num_samples.back();
}

bool has_convergence(const CacheLayer& layer) {
  return is_known(layer.k.convergence) || is_known(layer.v.convergence);
}

/// A magnitude as a part of the final amax.
double part_of(const AmaxConvergence& seen, Amax amax) {
  return static_cast<double>(amax.value) / static_cast<double>(seen.running.back().value);
}

/// The axes of the small drawings of all layers: samples, and shares of the final amax.
struct Frame {
  Axis samples, parts;
};

Frame frame_of(const CheckpointReport& report) {
  double least = 0.9, most = 2;
  for (const CacheLayer& layer : report.layers)
    for (const CacheSide& side : kCacheSides) {
      const AmaxConvergence& seen = (layer.*side.tensor).convergence;
      if (!is_known(seen)) continue;
      most = std::max(most, static_cast<double>(seen.num_samples.back()));
      least = std::min({least, part_of_final(seen, 0), part_of(seen, seen.low)});
    }
  return {Axis(Spacing::kLog, 1, most, kLeft, kWidth - kRight),
          Axis(Spacing::kLinear, least, 1.0, kHeight - kBottom, kTop)};
}

void draw_frame(Markup& content, const Frame& frame) {
  for (const double part : {frame.parts.least(), 1.0}) {
    const double y = frame.parts.at(part);
    draw_level(content, "grid", kLeft, kWidth - kRight, y);
    draw_label(content,
               {.x = kLeft - 4, .y = y + 4, .text = number_text(part, 2), .anchor = "end"});
  }
  for (const double samples : {1.0, frame.samples.largest()})
    draw_label(content,
               {.x = frame.samples.at(samples), .y = kHeight - 5, .text = number_text(samples)});
}

void draw_side(Markup& content, const Frame& frame, const CacheLayer& layer,
               const CacheSide& side) {
  const AmaxConvergence& seen = (layer.*side.tensor).convergence;
  if (!is_known(seen)) return;
  std::string line;
  for (size_t i = 0; i < seen.num_samples.size(); ++i) {
    const std::string y = coordinate(frame.parts.at(part_of_final(seen, i)));
    const std::string x = coordinate(frame.samples.at(static_cast<double>(seen.num_samples[i])));
    // An amax stays what it was until a sample exceeds it, so the line rises in steps.
    line += i == 0 ? "M" + x + " " + y : "H" + x + "V" + y;
  }
  const std::string css_class = side.css_class;
  draw_path(content, css_class + " line", line);
  const double x = kWidth - kRight + (side.css_class[0] == 'k' ? 4 : 9);
  draw_path(content, css_class + " whisker",
            move_to(x, frame.parts.at(part_of(seen, seen.low))) + "V" +
                coordinate(frame.parts.at(part_of(seen, seen.high)) - 1));
}

std::string words_of(const CacheLayer& layer) {
  std::string text;
  for (const CacheSide& side : kCacheSides) {
    const AmaxConvergence& seen = (layer.*side.tensor).convergence;
    if (!is_known(seen)) continue;
    text += (text.empty() ? "" : " ") + std::string(side.name) + ": " +
            share_text(part_of_final(seen, 0)) +
            " of the final amax after the first sample, 99 % after " +
            std::to_string(samples_until(seen, 0.01)) + ".";
  }
  return text;
}

Markup layer_drawings(const CheckpointReport& report) {
  const Frame frame = frame_of(report);
  Markup out;
  out.open("div", {{"class", "blocks multiples"}});
  for (const CacheLayer& layer : report.layers) {
    if (!has_convergence(layer)) continue;
    const std::string number = std::to_string(layer.layer);
    Drawing drawing{.id = "convergence-" + number,
                    .title = "Convergence of layer " + number,
                    .description = words_of(layer),
                    .width = kWidth,
                    .height = kHeight,
                    .css_class = "multiple"};
    draw_frame(drawing.content, frame);
    for (const CacheSide& side : kCacheSides) draw_side(drawing.content, frame, layer, side);
    out.open("div", {{"class", "small"}}).element("h3", "Layer " + number);
    out.append(svg(drawing)).close("div");
  }
  return out.close("div");
}

void add_cells(TableMarkup& table, const AmaxConvergence& seen) {
  if (!is_known(seen)) {
    for (int i = 0; i < 5; ++i) table.cell("–");
    return;
  }
  const size_t last = seen.num_samples.size() - 1;
  table.cell(number_text(static_cast<double>(seen.running.back().value)));
  table.cell(share_text(part_of_final(seen, last > 0 ? last - 1 : 0)));
  for (const double within : {0.05, 0.01}) table.cell(std::to_string(samples_until(seen, within)));
  table.cell(range_text({seen.low.value, seen.high.value}));
}

Markup convergence_table(const CheckpointReport& report) {
  std::vector<Column> columns{{"layer"}};
  for (const CacheSide& side : kCacheSides) {
    const std::string name = side.name;
    columns.push_back({name + " amax"});
    columns.push_back({name + " before the last",
                       "share of the final amax at the number of samples "
                       "before the last"});
    columns.push_back({name + " 95 %", "samples after which 95 % of the final amax was seen"});
    columns.push_back({name + " 99 %", "samples after which 99 % of the final amax was seen"});
    columns.push_back({name + " interval", "95 % bootstrap interval of the amax"});
  }
  TableMarkup table({.id = "convergence-table",
                     .caption = "Samples until the amax of each layer was seen",
                     .is_sortable = true},
                    columns);
  for (const CacheLayer& layer : report.layers) {
    if (!has_convergence(layer)) continue;
    table.row(std::to_string(layer.layer), "layer-" + std::to_string(layer.layer));
    for (const CacheSide& side : kCacheSides) add_cells(table, (layer.*side.tensor).convergence);
  }
  return table.finish();
}

/// "the largest move was 0.31 %, of k_scale of layer 3"
std::string move_words(const std::optional<ScaleMove>& move) {
  if (!move) return "there were too few samples to compare";
  const std::string where = move->scale + " of " + move->module +
                            (move->head ? ", head " + std::to_string(*move->head) : "");
  if (!move->ratio) return where + " was not there before";
  return "the largest move was " + share_text(*move->ratio) + ", of " + where;
}

Markup stop_words(const StopOutcome& stop) {
  const std::string used = std::to_string(stop.num_samples);
  const std::string rule = "no scale moved by more than " + share_text(stop.rule.ratio) + " over " +
                           std::to_string(stop.rule.window) + " samples";
  const std::string move = move_words(stop.largest_move);
  if (stop.is_stable)
    return words("Calibration stopped after " + used + " of at most " +
                 std::to_string(stop.max_samples) + " samples, when " + rule + "; " + move + ".");
  return words("Calibration used all " + used + " samples: it was to stop when " + rule +
               ", which did not happen; " + move + ".");
}

}  // namespace

Section convergence_section(const CheckpointReport& report) {
  Section section{"convergence", "How many samples were enough"};
  if (report.stop) section.body.append(stop_words(*report.stop));
  const SeriesChart chart = convergence_chart(report);
  const Drawing drawing = draw_series(chart);
  if (drawing.content.empty()) {
    section.body.append(
        words("How the extremes grew over the samples is not known: it is in manifests of "
              "calibrations, where layers have a cache."));
    return section;
  }
  Markup drawings;
  drawings.append(framed(drawing))
      .append(legend_list("convergence-mark", series_legend(chart.series)));
  section.body.append(
      figure({.label = "Convergence of the extremes",
              .caption = "What part of its final amax a layer had seen after the first samples. A "
                         "curve that still rises at its end says that more samples would find "
                         "larger values.",
              .drawings = drawings,
              .numbers = folded("Numbers of all layers", convergence_table(report))}));
  Markup layers;
  layers.append(words(
      "K solid, V dashed, each over the samples (logarithmic) as a part of its final amax. "
      "Bars at the right: the 95 % bootstrap interval of the amax over as many samples, drawn "
      "from those seen; it cannot tell of values that no sample had."));
  layers.append(layer_drawings(report));
  section.body.append(folded("Every layer", layers));
  return section;
}

}  // namespace kvcal::report
