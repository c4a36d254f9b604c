#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/text.h"
#include "quant/cache_type.h"
#include "report/eval_charts.h"
#include "report/markup.h"

namespace kvcal::report {
namespace {

Numbers answer_numbers(const GsmResult& result) {
  return {{"exact_match_strict", result.strict.exact_match},
          {"exact_match_strict_stderr", result.strict.stderr_of_mean},
          {"exact_match_flexible", result.flexible.exact_match},
          {"exact_match_flexible_stderr", result.flexible.stderr_of_mean}};
}

Metrics metrics_of(const EvalVariant& variant) {
  Metrics metrics;
  const Numbers numbers =
      variant.answers ? answer_numbers(*variant.answers) : numbers_of(variant.all);
  for (const auto& [key, value] : numbers) metrics.set(key, value);
  if (variant.cache.bytes_per_token > 0)
    metrics.set("bytes_per_token", static_cast<double>(variant.cache.bytes_per_token));
  return metrics;
}

/// nullptr where no questions were asked, or of several variants.
const GsmResult* single_answers(const EvalReport& report) {
  if (!report.is_single || report.variants.empty() || !report.variants[0].answers) return nullptr;
  return &*report.variants[0].answers;
}

double kl_of(const Likelihood& result) {
  return result.kl_mean.value_or(std::nan(""));
}

/// "0–15"
std::string position_words(const PositionScores& position) {
  if (position.first == position.last) return std::to_string(position.first);
  return std::to_string(position.first) + "–" + std::to_string(position.last);
}

/// "kept 3", "all FP8".
std::string kept_words(const MixedCacheRow& row) {
  return row.kept.empty() ? "all FP8" : "kept " + std::to_string(row.kept.size());
}

/// Positions of the variant that has most of them: the others' are the same, or fewer.
std::vector<PositionScores> all_positions(const EvalReport& report) {
  std::vector<PositionScores> positions;
  for (const EvalVariant& variant : report.variants)
    if (variant.positions.size() > positions.size()) positions = variant.positions;
  return positions;
}

Series series_of(const EvalReport& report, size_t i) {
  const MarkStyle look = look_of(i);
  return {report.variants[i].cache.name, look.css_class, look.mark, {}};
}

using PositionNumber = double PositionScores::*;

/// error: the standard error of number.
Series position_series(const EvalVariant& variant, Series series,
                       const std::vector<PositionScores>& positions, PositionNumber number,
                       PositionNumber error) {
  for (const PositionScores& place : positions) {
    const auto found = std::ranges::find(variant.positions, place.first, &PositionScores::first);
    const bool is_there = found != variant.positions.end();
    series.values.push_back(is_there ? (*found).*number : std::nan(""));
    series.errors.push_back(is_there ? (*found).*error : std::nan(""));
  }
  return series;
}

/// The chart with a series for each variant.
SeriesChart position_chart(const EvalReport& report, PositionNumber number, PositionNumber error,
                           SeriesChart chart) {
  chart.places_title = "position in the sequence";
  const std::vector<PositionScores> positions = all_positions(report);
  for (const PositionScores& place : positions) chart.places.push_back(position_words(place));
  for (size_t i = 0; i < report.variants.size(); ++i)
    chart.series.push_back(
        position_series(report.variants[i], series_of(report, i), positions, number, error));
  return chart;
}

bool has_kl(const EvalReport& report) {
  return std::ranges::any_of(report.variants, [](const EvalVariant& variant) {
    return std::ranges::any_of(variant.sequences, [](const Likelihood& sequence) {
      return std::isfinite(kl_of(sequence));
    });
  });
}

/// The variant whose number is smallest by `is_before`; nullptr where none has it.
template <class Before>
const EvalVariant* first_by(const EvalReport& report, std::string_view metric,
                            const Before& is_before) {
  const EvalVariant* first = nullptr;
  for (const EvalVariant& variant : report.variants) {
    const double value = metrics_of(variant).at(metric);
    if (std::isnan(value)) continue;
    if (!first || is_before(value, metrics_of(*first).at(metric))) first = &variant;
  }
  return first;
}

/// A metric as tables have it.
std::string text_of(const EvalVariant& variant, std::string_view metric) {
  return find_metric(metric).text_with_error(metrics_of(variant));
}

/// The variants that tie with the best, itself among them.
int64_t num_tied(const EvalReport& report, std::string_view metric, const EvalVariant& best) {
  return std::ranges::count_if(report.variants, [&](const EvalVariant& one) {
    return find_metric(metric).are_tied(metrics_of(one), metrics_of(best));
  });
}

void add_extremes(Tiles& tiles, const EvalReport& report) {
  const auto add = [&](const char* name, const char* metric, const EvalVariant* variant) {
    if (variant)
      tiles.add(name, text_of(*variant, metric),
                named_with_ties(variant->cache.name, num_tied(report, metric, *variant)));
  };
  const EvalVariant* least = first_by(report, "kl_mean", std::less());
  const EvalVariant* largest = first_by(report, "kl_mean", std::greater());
  add("Least mean KL", "kl_mean", least);
  add("Largest mean KL", "kl_mean", largest == least ? nullptr : largest);
  // Where KL tells caches apart, the least perplexity is one of noise.
  if (const EvalVariant* variant = first_by(report, "perplexity", std::less()); variant && !least)
    tiles.add("Least perplexity", text_of(*variant, "perplexity"), variant->cache.name);
  add("Same top token", "top1_agreement", first_by(report, "top1_agreement", std::greater()));
  add("Exact match, strict", "exact_match_strict",
      first_by(report, "exact_match_strict", std::greater()));
}

void add_choices(Tiles& tiles, const Sensitivity& sensitivity) {
  for (const MixedCacheRow& row : sensitivity.rows)
    if (row.is_proposed || row.kept.empty())
      tiles.add(row.is_proposed ? "Proposed: " + kept_words(row) : kept_words(row),
                "KL " + number_text(kl_of(row.result)),
                byte_text(row.bytes_per_token) + " a token");
  if (sensitivity.proposal)
    tiles.add("KL budget", number_text(sensitivity.proposal->kl_budget), "nats, mean");
}

std::vector<std::string> verdicts_of(const EvalReport& report) {
  std::vector<std::string> verdicts;
  for (const EvalVariant& variant : report.variants)
    if (!variant.verdict.empty()) verdicts.push_back(variant.cache.name + ": " + variant.verdict);
  return verdicts;
}

Section summary_section(const EvalReport& report) {
  Tiles tiles;
  add_extremes(tiles, report);
  if (report.sensitivity) add_choices(tiles, *report.sensitivity);
  int64_t tokens = 0;
  for (const EvalVariant& variant : report.variants)
    tokens = std::max(tokens, variant.all.num_tokens);
  if (tokens > 0)
    tiles.add(
        "Tokens scored", std::to_string(tokens),
        report.num_sequences ? "in " + counted(*report.num_sequences, "sequence") : std::string());
  if (const GsmResult* only = single_answers(report))
    tiles.add("Questions", std::to_string(only->answers.size()),
              counted(only->num_fewshot, "example") + " before each");
  Markup body = verdicts_list(verdicts_of(report));
  body.append(tiles.finish());
  return {"summary", "At a glance", body};
}

Section about_section(const EvalReport& report) {
  Pairs pairs{{"task", report.task},
              {"model", report.model},
              {"data set", report.dataset},
              {"reference", report.reference}};
  const auto add = [&](const char* name, const std::optional<int64_t>& number) {
    if (number) pairs.emplace_back(name, std::to_string(*number));
  };
  add("sequences", report.num_sequences);
  add("most tokens of a sequence", report.max_seq_length);
  add("stride", report.stride);
  if (const GsmResult* only = single_answers(report)) {
    add("questions", std::ssize(only->answers));
    add("examples before each question", only->num_fewshot);
  }
  std::erase_if(pairs, [](const auto& pair) { return pair.second.empty(); });
  return {"facts", "What was measured", pairs_table("facts-table", "The evaluation", pairs)};
}

Section variants_section(const EvalReport& report) {
  Section section{"variants", "Variants"};
  if (report.variants.empty()) return section;
  std::vector<Metrics> all;
  for (const EvalVariant& variant : report.variants) all.push_back(metrics_of(variant));
  const std::vector<const Metric*> metrics = known_metrics(all);
  std::vector<Column> columns{{"variant"},
                              {.title = "cache", .kind = Column::Kind::kWord},
                              {.title = "scales", .kind = Column::Kind::kWord}};
  add_columns(columns, metrics);
  TableMarkup table(
      {.id = "variants-table", .caption = "Accuracy of every variant", .is_sortable = true},
      columns);
  for (const EvalVariant& variant : report.variants) {
    const CacheLabel& cache = variant.cache;
    table.row(cache.name)
        .word(std::string(name_of(cache.type)) + (cache.fp8_attention ? " and attention" : ""))
        .word(cache.scales_source);
    add_cells(table, metrics_of(variant), metrics);
  }
  section.body.append(table.finish());
  if (!report.reference.empty())
    section.body.append(words("KL and agreement are against: " + report.reference + "."));
  return section;
}

}  // namespace

Numbers numbers_of(const Likelihood& result) {
  return {{"nll", result.nll},
          {"perplexity", result.perplexity},
          {"kl_mean", result.kl_mean},
          {"kl_stderr", result.kl_stderr},
          {"kl_p99", result.kl_p99},
          {"kl_max", result.kl_max},
          {"top1_agreement", result.top1_agreement},
          {"reference_perplexity", result.reference_perplexity},
          {"perplexity_increase", result.perplexity_increase}};
}

SeriesChart kl_by_layer_chart(const EvalReport& report) {
  SeriesChart chart{.id = "layers-chart",
                    .title = "KL when the cache of one layer alone is quantized",
                    .description =
                        "Mean KL divergence from the reference, in nats, by layer and "
                        "variant; logarithmic. The numbers are in the table below.",
                    .values_title = "mean KL, nats"};
  std::set<int64_t> layers;
  for (const EvalVariant& variant : report.variants)
    for (const LayerLikelihood& layer : variant.layers) layers.insert(layer.layer);
  chart.places = place_names({layers.begin(), layers.end()});
  for (size_t i = 0; i < report.variants.size(); ++i) {
    if (report.variants[i].layers.empty()) continue;
    std::map<int64_t, Likelihood> by_layer;
    for (const auto& [layer, result] : report.variants[i].layers) by_layer[layer] = result;
    Series series = series_of(report, i);
    for (const int64_t layer : layers) {
      series.values.push_back(kl_of(by_layer[layer]));
      series.errors.push_back(by_layer[layer].kl_stderr.value_or(std::nan("")));
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

SeriesChart kl_by_position_chart(const EvalReport& report) {
  return position_chart(
      report, &PositionScores::kl_mean, &PositionScores::kl_stderr,
      {.id = "kl-positions-chart",
       .title = "KL by position in the sequence",
       .description =
           "Mean KL divergence from the reference, in nats, of the tokens at these positions, by "
           "variant; logarithmic. The numbers are in the table below.",
       .values_title = "mean KL, nats"});
}

SeriesChart nll_by_position_chart(const EvalReport& report) {
  SeriesChart chart = position_chart(
      report, &PositionScores::nll, &PositionScores::nll_stderr,
      {.id = "nll-positions-chart",
       .title = "Negative log likelihood by position in the sequence",
       .description =
           "Mean negative log likelihood, in nats, of the tokens at these positions, by variant "
           "and of the reference. The numbers are in the table below.",
       .values_title = "mean NLL, nats",
       .spacing = Spacing::kLinear});
  if (report.variants.empty()) return chart;
  // Every variant was compared with the same reference.
  Series reference = position_series(
      report.variants[0], {"reference", "reference", Mark::kCross, {}}, all_positions(report),
      &PositionScores::reference_nll, &PositionScores::reference_nll_stderr);
  if (std::ranges::any_of(reference.values, [](double value) { return std::isfinite(value); }))
    chart.series.push_back(std::move(reference));
  return chart;
}

SpreadChart sequences_chart(const EvalReport& report) {
  const bool is_kl = has_kl(report);
  SpreadChart chart{
      .id = "sequences-chart",
      .title = std::string(is_kl ? "Mean KL" : "Mean NLL") + " of the sequences",
      .description =
          "A tick a sequence; a box around the middle half, a heavy line "
          "at the median. The numbers are in the table below.",
      .values_title = is_kl ? "mean KL of a sequence, nats" : "mean NLL of a sequence",
      .spacing = is_kl ? Spacing::kLog : Spacing::kLinear};
  for (size_t i = 0; i < report.variants.size(); ++i) {
    const EvalVariant& variant = report.variants[i];
    if (variant.sequences.empty()) continue;
    SpreadRow row{variant.cache.name, look_of(i).css_class, {}};
    for (const Likelihood& sequence : variant.sequences)
      row.values.push_back(is_kl ? kl_of(sequence) : sequence.nll);
    chart.rows.push_back(std::move(row));
  }
  return chart;
}

ScatterChart sensitivity_chart(const Sensitivity& sensitivity) {
  ScatterChart chart{.id = "sensitivity-chart",
                     .title = "KL against the size of the cache, by layers kept in 16 bits",
                     .description =
                         "Each point keeps some layers' cache in 16 bits; up is worse, "
                         "right is larger. The numbers are in the table below.",
                     .x_title = "cache of one token, bytes",
                     .y_title = "mean KL, nats"};
  chart.x_text = byte_text;
  for (const MixedCacheRow& row : sensitivity.rows) {
    const double kl = kl_of(row.result);
    if (!std::isfinite(kl)) continue;
    chart.front.push_back(chart.points.size());
    chart.points.push_back({.x = static_cast<double>(row.bytes_per_token),
                            .y = std::max(0.0, kl),
                            .label = kept_words(row),
                            .words = kept_words(row) + ": KL " + number_text(kl) + ", " +
                                     byte_text(row.bytes_per_token) +
                                     (row.is_proposed ? ", proposed" : ""),
                            .css_class = "s0",
                            .mark = Mark::kCircle,
                            .is_chosen = row.is_proposed,
                            .y_error = row.result.kl_stderr.value_or(0.0)});
  }
  if (sensitivity.bytes_per_token_16_bit > 0 && !chart.points.empty())
    chart.points.push_back(
        {.x = static_cast<double>(sensitivity.bytes_per_token_16_bit),
         .y = 0.0,
         .label = "16 bits",
         .words = "all layers in 16 bits: " + byte_text(sensitivity.bytes_per_token_16_bit),
         .css_class = "reference",
         .mark = Mark::kSquare});
  if (const auto& proposal = sensitivity.proposal)
    chart.level = Level{proposal->kl_budget, "budget " + number_text(proposal->kl_budget)};
  return chart;
}

SeriesChart ranking_chart(const Sensitivity& sensitivity) {
  SeriesChart chart{.id = "ranking-chart",
                    .title = "Layers by what their quantized cache costs",
                    .description =
                        "Mean KL in nats when the cache of that layer alone is quantized, the "
                        "dearest layer first; logarithmic. The numbers are in the table below.",
                    .places_title = "layer, the dearest first",
                    .values_title = "mean KL, nats",
                    .series = {{"KL of this layer alone", "s0", Mark::kCircle, {}}}};
  for (const LayerSensitivity& rank : sensitivity.ranking) {
    chart.places.push_back(std::to_string(rank.layer));
    chart.series[0].values.push_back(rank.kl_mean);
    chart.series[0].errors.push_back(rank.kl_stderr);
  }
  return chart;
}

std::string eval_page(const EvalReport& report) {
  const std::string model = report.model.substr(report.model.find_last_of('/') + 1);
  const std::string dataset = report.dataset.substr(report.dataset.find_last_of('/') + 1);
  Page page{.title = (model.empty() ? "Evaluation" : model) + ": " + report.task +
                     (dataset.empty() ? std::string() : " on " + dataset),
            .footer = "Written by kvcal " + report.version};
  page.heading.element("p", {{"class", "lead"}}, report.dataset);
  page.sections = {
      summary_section(report),   variants_section(report),    kl_layers_section(report),
      positions_section(report), sequences_section(report),   texts_section(report),
      questions_section(report), sensitivity_section(report), about_section(report)};
  return html(page);
}

std::vector<Plot> eval_plots(const EvalReport& report) {
  std::vector<Plot> plots;
  add_plot(plots, "kl-by-layer", kl_by_layer_chart(report));
  add_plot(plots, "kl-by-position", kl_by_position_chart(report));
  add_plot(plots, "nll-by-position", nll_by_position_chart(report));
  add_plot(plots, "kl-by-sequence", sequences_chart(report));
  if (!report.sensitivity) return plots;
  add_plot(plots, "sensitivity", sensitivity_chart(*report.sensitivity));
  add_plot(plots, "ranking", ranking_chart(*report.sensitivity));
  return plots;
}

}  // namespace kvcal::report
