#include <algorithm>
#include <cmath>
#include <span>

#include "quant/observations.h"
#include "report/checkpoint_charts.h"
#include "report/markup.h"

// Sections on what the samples of a calibration showed: convergence, positions, damage.
namespace kvcal::report {
namespace {

constexpr double kWidth = 178, kHeight = 104, kLeft = 30, kRight = 12, kTop = 8, kBottom = 20;
/// Heads of more layers are not drawn, so that pages stay small; the manifest has them.
constexpr size_t kMostHeads = 8'000;

/// Whether it says how an amax that is not 0 came about.
bool is_known(const AmaxConvergence& seen) {
  return !seen.running.empty() && seen.running.size() == seen.num_samples.size() &&
         seen.running.back().value > 0.0f;
}

bool has_convergence(const CacheLayer& layer) {
  return is_known(layer.k.convergence) || is_known(layer.v.convergence);
}

/// A magnitude as a part of the final amax.
double part_of(const AmaxConvergence& seen, Amax amax) {
  return static_cast<double>(amax.value) / static_cast<double>(seen.running.back().value);
}

/// The amax over the first num_samples[i] samples as a part of the final one.
double part_of_final(const AmaxConvergence& seen, size_t i) {
  return part_of(seen, seen.running[i]);
}

/// The first number of samples after which the amax was within `within` of the final one.
int64_t samples_until(const AmaxConvergence& seen, double within) {
  for (size_t i = 0; i < seen.num_samples.size(); ++i)
    if (part_of_final(seen, i) >= 1.0 - within) return seen.num_samples[i];
  return seen.num_samples.back();
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
    draw_label(content, {kLeft - 4, y + 4, number_text(part, 2), "end"});
  }
  for (const double samples : {1.0, frame.samples.largest()})
    draw_label(content, {frame.samples.at(samples), kHeight - 5, number_text(samples)});
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
    Drawing drawing = drawing_of("convergence-" + number, "Convergence of layer " + number,
                                 words_of(layer), kWidth, kHeight, "multiple");
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
  table.cell(number_text(seen.running.back().value));
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
                       "share of the final amax at the number of samples before the last"});
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
    table.layer_row(layer.layer);
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
                           counted(stop.rule.window, "sample");
  const std::string move = move_words(stop.largest_move);
  if (stop.is_stable)
    return words("Calibration stopped after " + used + " of at most " +
                 counted(stop.max_samples, "sample") + ", when " + rule + "; " + move + ".");
  return words("Calibration used all " + used + " samples: it was to stop when " + rule +
               ", which did not happen; " + move + ".");
}

/// Parts of a layer's largest amax, one a place.
using Parts = std::vector<double>;

/// Adds a series of the layer that stands out, and of the median of all at each place.
void add_series(SeriesChart& chart, const CacheSide& side, const std::string& name,
                Parts outstanding, const std::vector<Parts>& layers) {
  Series middle{std::string(side.name) + ", the median layer", side.css_class, Mark::kDash, {}};
  for (size_t place = 0; place < chart.places.size(); ++place) {
    Parts here;
    for (const Parts& layer : layers) here.push_back(layer[place]);
    std::ranges::sort(here);
    middle.values.push_back(here.empty() ? std::nan("") : here[here.size() / 2]);
  }
  chart.series.push_back(
      {side.name + (", " + name), side.css_class, side.mark, std::move(outstanding)});
  chart.series.push_back(std::move(middle));
}

/// The last bucket against all before.
double late_growth(const Parts& parts) {
  if (parts.size() < 2) return 0.0;
  const double before = std::ranges::max(std::span(parts).first(parts.size() - 1));
  return before > 0.0 ? parts.back() / before : 0.0;
}

/// The names of buckets of positions: "0", "4 – 5".
std::vector<std::string> position_names(size_t buckets) {
  std::vector<std::string> names;
  for (size_t bucket = 0; bucket < buckets; ++bucket) {
    const int64_t first = first_position(bucket), last = first_position(bucket + 1) - 1;
    names.push_back(std::to_string(first));
    if (last > first) names.back() += " – " + std::to_string(last);
  }
  return names;
}

/// "position 0 of record 12: “<s>”", "positions 96 – 127 of record 3"; of other manifests the
/// positions alone.
std::string place_words(const CacheTensor& tensor, const std::vector<std::string>& positions) {
  if (tensor.largest) return place_words(*tensor.largest);
  const auto largest = std::ranges::max_element(tensor.position_amax);
  return positions[static_cast<size_t>(largest - tensor.position_amax.begin())];
}

Markup positions_table(const CheckpointReport& report, const std::vector<std::string>& positions) {
  if (positions.empty()) return {};
  std::vector<Column> columns{{"layer"}};
  for (const CacheSide& side : kCacheSides) {
    const std::string name = side.name;
    columns.push_back({name + " at 0", "amax of the first tokens of samples"});
    columns.push_back({name + " behind", "amax of all other tokens"});
    columns.push_back({name + " at the end", "amax at the positions " + positions.back()});
    columns.push_back({.title = name + " largest at",
                       .hint = "where the largest value is, and its token where it is known",
                       .kind = Column::Kind::kWord});
  }
  TableMarkup table({.id = "positions-table",
                     .caption = "The largest values of each layer by position",
                     .is_sortable = true},
                    columns);
  for (const CacheLayer& layer : report.layers) {
    if (layer.k.position_amax.empty() && layer.v.position_amax.empty()) continue;
    table.layer_row(layer.layer);
    for (const CacheSide& side : kCacheSides) {
      const std::vector<float>& amax = (layer.*side.tensor).position_amax;
      if (amax.size() < 2 || amax.size() > positions.size()) {
        table.cell("–").cell("–").cell("–").word("–");
        continue;
      }
      table.cell(number_text(amax.front()))
          .cell(number_text(*std::max_element(amax.begin() + 1, amax.end())))
          .cell(amax.size() == positions.size() ? number_text(amax.back()) : "–")
          .word(place_words(layer.*side.tensor, positions));
    }
  }
  return table.finish();
}

Markup damage_table(const CheckpointReport& report) {
  TableMarkup table({.id = "damage-table",
                     .caption = "What the cache does to the attention of each layer",
                     .is_sortable = true},
                    {{"layer"},
                     {"output", "relative error of attention's output with the scales"},
                     {"output, 1.0", "the same with scale 1.0"},
                     {"weights", "KL divergence of the softmax weights with the scales, in nats"},
                     {"weights, 1.0", "the same with scale 1.0"}});
  for (const CacheLayer& layer : report.layers) {
    if (!layer.damage) continue;
    const AttentionLoss &own = layer.damage->calibrated, &unit = layer.damage->unit;
    table.layer_row(layer.layer);
    for (const float value : {own.output_error, unit.output_error})
      table.cell(share_text(static_cast<double>(value)), static_cast<double>(value));
    table.cell(number_text(own.weights_kl)).cell(number_text(unit.weights_kl));
  }
  return table.finish();
}

}  // namespace

std::string place_words(const LargestToken& token) {
  const bool is_one = token.first == token.last;
  return (is_one ? "position " : "positions ") + std::to_string(token.first) +
         (is_one ? "" : " – " + std::to_string(token.last)) + " of record " +
         std::to_string(token.record) + (token.text.empty() ? "" : ": “" + token.text + "”");
}

SeriesChart convergence_chart(const CheckpointReport& report) {
  SeriesChart chart{.id = "convergence-chart",
                    .title = "How much of the final amax was seen, by number of samples",
                    .description =
                        "For K and V the layer that is furthest from its final amax, and the one "
                        "in the middle. 1 is the amax of all samples.",
                    .places_title = "samples",
                    .values_title = "amax over the first samples / final amax",
                    .spacing = Spacing::kLinear};
  const auto known = std::ranges::find_if(
      report.layers, [](const CacheLayer& layer) { return is_known(layer.k.convergence); });
  if (known == report.layers.end()) return chart;
  const std::vector<int64_t>& num_samples = known->k.convergence.num_samples;
  chart.places = place_names(num_samples);
  for (const CacheSide& side : kCacheSides) {
    // Layers that have not seen those numbers of samples, or no magnitude, are left out.
    std::vector<Parts> layers;
    Parts worst(num_samples.size(), std::nan(""));
    for (const CacheLayer& layer : report.layers) {
      const AmaxConvergence& seen = (layer.*side.tensor).convergence;
      if (!is_known(seen) || seen.num_samples != num_samples) continue;
      Parts& own = layers.emplace_back();
      for (size_t i = 0; i < num_samples.size(); ++i) {
        own.push_back(part_of_final(seen, i));
        worst[i] = std::fmin(worst[i], own.back());
      }
    }
    add_series(chart, side, "the worst layer", std::move(worst), layers);
  }
  return chart;
}

Section convergence_section(const CheckpointReport& report) {
  Section section{"convergence", "How many samples were enough"};
  if (report.stop) section.body.append(stop_words(*report.stop));
  const Markup chart = series_figure(
      convergence_chart(report), "convergence-mark",
      {.label = "Convergence of the extremes",
       .caption = "What part of its final amax a layer had seen after the first samples. A "
                  "curve that still rises at its end says that more samples would find "
                  "larger values.",
       .numbers = folded("Numbers of all layers", convergence_table(report))});
  if (chart.empty()) {
    return section;
  }
  Markup layers = words(
      "K solid, V dashed, each over the samples (logarithmic) as a part of its final amax. "
      "Bars at the right: the 95 % bootstrap interval of the amax over as many samples, drawn "
      "from those seen; it cannot tell of values that no sample had.");
  layers.append(layer_drawings(report));
  section.body.append(chart).append(folded("Every layer", layers));
  return section;
}

SeriesChart positions_chart(const CheckpointReport& report) {
  SeriesChart chart{.id = "positions-chart",
                    .title = "How large K and V get, by position in the sample",
                    .description =
                        "For K and V the layer in the middle, and the layer whose last positions "
                        "are largest against those before. 1 is the amax of all positions.",
                    .places_title = "position",
                    .values_title = "amax at the positions / amax of all",
                    .spacing = Spacing::kLinear};
  size_t buckets = 0;
  for (const CacheLayer& layer : report.layers)
    buckets = std::max(buckets, layer.k.position_amax.size());
  chart.places = position_names(buckets);
  for (const CacheSide& side : kCacheSides) {
    std::vector<Parts> layers;
    for (const CacheLayer& layer : report.layers) {
      const std::vector<float>& amax = (layer.*side.tensor).position_amax;
      if (amax.empty() || amax.size() != buckets) continue;
      const auto largest = static_cast<double>(std::ranges::max(amax));
      if (!(largest > 0.0)) continue;
      Parts& own = layers.emplace_back();
      for (const float one : amax) own.push_back(static_cast<double>(one) / largest);
    }
    if (!layers.empty())
      add_series(chart, side, "the layer that grows most at the end",
                 *std::ranges::max_element(layers, {}, late_growth), layers);
  }
  return chart;
}

Section positions_section(const CheckpointReport& report) {
  Section section{"positions", "Where in the samples the largest values are"};
  const SeriesChart chart = positions_chart(report);
  const Markup drawn = series_figure(
      chart, "positions-mark",
      {.label = "The largest values by position",
       .caption = "How large K and V get at positions of the samples. A curve that still "
                  "rises at its end says that longer samples would find larger values; a "
                  "high beginning is the first token, on which attention rests.",
       .numbers = folded("Numbers of all layers", positions_table(report, chart.places))});
  if (drawn.empty()) {
    return section;
  }
  if (report.late) section.body.append(words(late_positions_text(*report.late) + "."));
  if (report.images)
    section.body.append(words("Largest values " + image_magnitudes_text(*report.images) + "."));
  section.body.append(drawn);
  return section;
}

SeriesChart damage_chart(const CheckpointReport& report) {
  SeriesChart chart{.id = "damage-chart",
                    .title = "What FP8 codes of K and V do to attention, by layer",
                    .description =
                        "The relative error of attention's output beside that over "
                        "unquantized K and V, with the layer's scales and with 1.0.",
                    .values_title = "error of attention's output",
                    .places = layer_names(report)};
  Series scales{"the scales", "k", Mark::kCircle}, unit{"scale 1.0", "v", Mark::kSquare};
  bool is_known = false;
  for (const CacheLayer& layer : report.layers) {
    const auto& damage = layer.damage;
    is_known |= damage.has_value();
    const auto error = [&](AttentionLoss LayerDamage::*loss) {
      return damage ? static_cast<double>(((*damage).*loss).output_error) : std::nan("");
    };
    scales.values.push_back(error(&LayerDamage::calibrated));
    unit.values.push_back(error(&LayerDamage::unit));
  }
  if (is_known) chart.series = {std::move(scales), std::move(unit)};
  return chart;
}

Section damage_section(const CheckpointReport& report) {
  HeatMap map{.id = "damage-heads", .what = "error of attention's output"};
  for (const CacheLayer& layer : report.layers) {
    if (!layer.damage) continue;
    map.layers.push_back(layer.layer);
    map.rows.push_back(layer.damage->calibrated.head_output_error);
  }
  Markup heads, numbers = damage_table(report);
  if (cells_of(map) > 0 && cells_of(map) <= kMostHeads) {
    heads = heat_map_part(map);
    numbers.append(heat_map_table(map));
  }
  Section section{
      "damage", "What the cache does to attention",
      series_figure(damage_chart(report), "damage-mark",
                    {.label = "Attention with the cache and without",
                     .caption = "While a layer ran, attention over K and V in FP8 was "
                                "compared with attention over the unquantized ones, on some "
                                "queries of the first samples. A layer that stands out here "
                                "is the one to keep in 16 bits.",
                     .drawings = heads,
                     .numbers = folded("Numbers of all layers", numbers)})};
  return section;
}

}  // namespace kvcal::report
