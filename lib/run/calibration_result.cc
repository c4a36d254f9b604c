#include "run/calibration_result.h"

#include <algorithm>
#include <limits>

#include "core/text.h"

namespace kvcal {
namespace {

std::string with_error(const Likelihood& result) {
  return short_float(*result.kl_mean) + " ± " + short_float(*result.kl_stderr);
}

std::string layers_text(const std::vector<int64_t>& layers) {
  return layer_range_text(layers) + " in 16 bits";
}

Json result_json(const std::vector<int64_t>& layers, const Likelihood& result) {
  return {{"layers_16_bit", layers},
          {"kl_mean", *result.kl_mean},
          {"kl_stderr", *result.kl_stderr},
          {"perplexity_increase", *result.perplexity_increase}};
}

constexpr size_t kWorstLayers = 3;
constexpr int64_t kAdvisedTokens = 1000;
constexpr double kUnsettled = 0.05;  ///< growth from which more samples are likely to move scales

std::string cache_text(const ScaleSummary& summary) {
  const std::string all = std::to_string(2 * summary.cache_bytes_fp8) + " in 16 bits";
  const std::string codes = summary.format.is_int8() ? "INT8" : "FP8";
  if (summary.layers_16_bit.empty())
    return std::to_string(summary.cache_bytes_fp8) + " bytes a token in " + codes + ", " + all;
  return std::to_string(summary.cache_bytes()) + " bytes a token with " +
         layer_range_text(summary.layers_16_bit) + " in 16 bits and the others in " + codes + ", " +
         std::to_string(summary.cache_bytes_fp8) + " all in " + codes + ", " + all;
}

std::string cost_text(const RunCost& cost) {
  return counted(cost.num_samples, "sample") + ", " + counted(cost.num_tokens, "token") + " in " +
         fixed("%.1f s", cost.seconds) + ", peak memory " + byte_text(cost.peak_bytes);
}

std::string growth_text(const LateGrowth& growth) {
  const std::string last = "the last " + std::to_string(growth.num_samples - growth.from_samples) +
                           " of " + counted(growth.num_samples, "sample");
  if (growth.ratio == 0) return "no largest value grew in " + last;
  return "largest values grew by at most " + percent(growth.ratio) + " in " + last + " (" +
         (growth.is_key ? "K" : "V") + " of layer " + std::to_string(growth.layer) + ")" +
         (growth.ratio > kUnsettled ? ": more samples may move scales" : "");
}

std::string layer_text(const LayerErrors* layer) {
  const auto error = [](const SideErrors& side) {
    return fixed("%.1f %%", 100 * side.calibrated.relative_error());
  };
  return std::to_string(layer->layer) + " (K " + error(layer->k) + ", V " + error(layer->v) + ")";
}

/// A line that says how good the scales are (an answer), or what they were made of.
struct SummaryLine {
  std::string label, text;
  bool is_answer = false;
};
using SummaryLines = std::vector<SummaryLine>;

SummaryLines summary_lines(const ScaleSummary& summary) {
  SummaryLines lines;
  lines.push_back({"KV cache", cache_text(summary), true});
  if (summary.growth) lines.push_back({"samples", growth_text(*summary.growth)});
  if (summary.late) lines.push_back({"positions", late_positions_text(*summary.late)});
  if (summary.images) lines.push_back({"images", image_magnitudes_text(*summary.images), true});
  const auto worst = worst_layers(summary, kWorstLayers);
  lines.push_back({"rounding",
                   std::string("largest error against the values in layer") +
                       (worst.size() == 1 ? " " : "s ") + join(worst, ", ", layer_text),
                   true});
  lines.push_back({"scale 1.0", unit_scale_text(summary)});
  lines.push_back({"margin 1.0", unit_margin_text(summary.margin)});
  return lines;
}

/// The answers, the others, or, without `answers`, all.
LabelledLines labelled(const SummaryLines& lines, std::optional<bool> answers = {}) {
  LabelledLines labelled;
  for (const SummaryLine& line : lines)
    if (!answers || line.is_answer == *answers) labelled.emplace_back(line.label, line.text);
  return labelled;
}

LabelledLines predicted_lines(const ScaleSummary& summary) {
  LabelledLines lines;
  if (summary.predicted)
    lines.emplace_back("verdict", "with these scales " + verdict_text(*summary.predicted));
  if (summary.predicted_unit)
    lines.emplace_back("verdict 1.0", "with scale 1.0 " + verdict_text(*summary.predicted_unit));
  return lines;
}

constexpr size_t kLabelWidth = 12;

/// The least and the largest of some scales: "0.01 to 0.2".
class ScaleRange {
 public:
  void add(float value) {
    least_ = std::min(least_, value);
    largest_ = std::max(largest_, value);
  }
  void add(const KvTensorCalibration& side) {
    for (const Scale& scale : side.scales) add(scale.value);
  }
  std::string text() const {
    return short_float(static_cast<double>(least_)) + " to " +
           short_float(static_cast<double>(largest_));
  }

 private:
  float least_ = std::numeric_limits<float>::infinity(), largest_ = 0.0f;
};

std::string side_text(const KvTensorCalibration& side, bool ignored) {
  if (ignored) return "ignored";
  if (side.scales.size() == 1) return short_float(static_cast<double>(side.scales[0].value));
  const bool has_channels =
      !side.head_ranges.empty() && side.scales.size() > side.head_ranges.size();
  return std::to_string(side.scales.size()) + (has_channels ? " channels" : " heads");
}

/// Layers by what their scales are: "k_scale 0.01 to 0.2, v_scale 0.03 to 0.1".
std::string attention_summary(const Calibration& calibration) {
  ScaleRange k, v;
  size_t num_ignored = 0;
  for (const AttentionCalibration& layer : calibration.layers) {
    num_ignored += layer.ignored;
    if (layer.ignored) continue;
    k.add(layer.k);
    v.add(layer.v);
  }
  return counted(calibration.layers.size(), "layer") + ": k_scale " + k.text() + ", v_scale " +
         v.text() + (num_ignored ? ", " + std::to_string(num_ignored) + " ignored" : "") +
         " (--verbose lists them)";
}

std::string attention_table(const Calibration& calibration) {
  const bool has_queries = std::ranges::any_of(
      calibration.layers, [](const AttentionCalibration& layer) { return layer.q.has_value(); });
  std::vector<std::string> head{"layer",  "k_scale",   "v_scale",  "k_amax",
                                "v_amax", "k clipped", "v clipped"};
  if (has_queries) head.insert(head.begin() + 1, "q_scale");
  TextTable table(head);
  const auto clipped = [](const KvTensorCalibration& side) {
    if (!side.num_saturated) return std::string("-");
    return percent(static_cast<double>(*side.num_saturated) / static_cast<double>(side.num_values));
  };
  const auto amax = [](const KvTensorCalibration& side) {
    return short_float(static_cast<double>(side.range().amax().value));
  };
  for (const AttentionCalibration& layer : calibration.layers) {
    std::vector<std::string> row{std::to_string(layer.layer),
                                 side_text(layer.k, layer.ignored),
                                 side_text(layer.v, layer.ignored),
                                 amax(layer.k),
                                 amax(layer.v),
                                 clipped(layer.k),
                                 clipped(layer.v)};
    if (has_queries)
      row.insert(row.begin() + 1, layer.q ? side_text(*layer.q, layer.ignored) : "ignored");
    table.add(row);
  }
  return table.text();
}

/// A row for all Linears of one name, such as q_proj.
std::string linears_summary(const std::vector<LinearCalibration>& linears) {
  struct Kind {
    std::string name;
    size_t count = 0;
    ScaleRange scale = {}, amax = {};
  };
  std::vector<Kind> kinds;
  for (const LinearCalibration& linear : linears) {
    const std::string name = linear.module.substr(linear.module.rfind('.') + 1);
    auto kind = std::ranges::find(kinds, name, &Kind::name);
    if (kind == kinds.end()) kind = kinds.insert(kinds.end(), Kind{.name = name});
    ++kind->count;
    kind->scale.add(linear.input_scale.value);
    kind->amax.add(linear.input_amax.value);
  }
  TextTable table({"modules", "count", "input_scale", "input_amax"});
  for (const Kind& kind : kinds)
    table.add({kind.name, std::to_string(kind.count), kind.scale.text(), kind.amax.text()});
  return table.text();
}

std::string linears_table(const std::vector<LinearCalibration>& linears) {
  TextTable table({"module", "input_scale", "input_amax", "tokens"});
  for (const LinearCalibration& linear : linears)
    table.add({linear.module, short_float(static_cast<double>(linear.input_scale.value)),
               short_float(static_cast<double>(linear.input_amax.value)),
               std::to_string(linear.input_tokens)});
  return table.text();
}

}  // namespace

std::string budget_text(const KlBudgetOutcome& outcome) {
  const std::string data = "the budget is " + short_float(outcome.kl_budget) + " (" +
                           counted(outcome.num_sequences, "sequence") + ", " +
                           counted(outcome.measured.front().result.num_tokens, "token") +
                           (outcome.is_held_out ? " that the calibration did not see)" : ")");
  const std::string none = with_error(outcome.measured.front().result);
  if (!outcome.layers)
    return none + " with every layer in FP8, and no few layers in 16 bits keep " + data;
  if (outcome.layers->empty()) return none + " with every layer in FP8; " + data;
  return with_error(outcome.result) + " with " + layers_text(*outcome.layers) + ", " + none +
         " with none; " + data;
}

Json to_json(const KlBudgetOutcome& outcome) {
  Json json = outcome.layers ? result_json(*outcome.layers, outcome.result)
                             : Json{{"layers_16_bit", nullptr}};
  json["budget"] = outcome.kl_budget;
  json["num_sequences"] = outcome.num_sequences;
  json["num_tokens"] = outcome.measured.front().result.num_tokens;
  json["held_out"] = outcome.is_held_out;
  json["measured"] = Json::array();
  for (const MixedCache& cache : outcome.measured)
    json["measured"].push_back(result_json(cache.kept, cache.result));
  return json;
}

LabelledLines made_lines(const CalibrationResult& result, bool answers) {
  if (!result.summary) return {};
  SummaryLines lines;
  if (result.cost) lines.push_back({"calibrated", cost_text(*result.cost), true});
  if (result.cost && !result.cost->device.empty()) lines.push_back({"device", result.cost->device});
  for (SummaryLine& line : summary_lines(*result.summary)) lines.push_back(std::move(line));
  if (result.budget) lines.push_back({"KL budget", budget_text(*result.budget), true});
  return labelled(lines, answers);
}

LabelledLines closing_lines(const CalibrationResult& result, bool answers) {
  if (!result.summary) return {};
  LabelledLines lines = answers ? predicted_lines(*result.summary) : LabelledLines();
  const auto made = made_lines(result, answers);
  lines.insert(lines.end(), made.begin(), made.end());
  return lines;
}

OutputTexts output_texts(const CalibrationResult& result,
                         std::function<Json(const WrittenCheckpoint&)> manifest) {
  OutputTexts texts{.manifest = std::move(manifest), .config = result.config};
  if (result.summary) {
    texts.accuracy = predicted_lines(*result.summary);
    texts.card_lines = labelled(summary_lines(*result.summary));
  }
  if (result.budget) texts.card_lines.emplace_back("KL budget", budget_text(*result.budget));
  return texts;
}

std::string labelled_text(const LabelledLines& lines) {
  std::string shown;
  for (const auto& [label, text] : lines)
    shown +=
        label + std::string(kLabelWidth - std::min(label.size(), kLabelWidth), ' ') + text + '\n';
  return shown;
}

std::string calibration_text(const CalibrationResult& result, bool is_whole) {
  const Calibration& calibration = result.calibration;
  std::string text = labelled_text(closing_lines(result, /*answers=*/true));
  const auto& weights = result.output.checkpoint.weights;
  LabelledLines counts;
  if (!is_whole && !calibration.layers.empty())
    counts.emplace_back("scales", attention_summary(calibration));
  if (!is_whole && !calibration.linears.empty())
    counts.emplace_back("inputs", counted(calibration.linears.size(), "static scale") +
                                      " of Linears (--verbose lists them)");
  if (!weights.empty())
    counts.emplace_back("weights", std::to_string(weights.size()) + " in FP8, " +
                                       std::to_string(calibration.plan.unquantized.size()) +
                                       " left as they were");
  text += labelled_text(counts);
  if (!is_whole) return text;
  text += labelled_text(closing_lines(result, /*answers=*/false));
  if (!calibration.layers.empty()) text += attention_table(calibration);
  if (!calibration.linears.empty())
    text += linears_table(calibration.linears) + linears_summary(calibration.linears);
  return text;
}

std::vector<std::string> warnings_of(const ScaleSummary& summary, int64_t num_tokens) {
  std::vector<std::string> warnings;
  if (num_tokens > 0 && num_tokens < kAdvisedTokens)
    warnings.push_back(counted(num_tokens, "token") +
                       " may not show the largest values of other text: calibrate on " +
                       std::to_string(kAdvisedTokens) + " or more");
  if (const auto& growth = summary.growth; growth && growth->ratio > kUnsettled)
    warnings.push_back("scales still move: " + growth_text(*growth));
  return warnings;
}

Json summary_json(const ScaleSummary& summary, int64_t num_tokens) {
  Json json = to_json(summary);
  json["warnings"] = warnings_of(summary, num_tokens);
  return json;
}

std::string stop_text(const StopOutcome& stop) {
  if (!stop.is_stable) return "";
  const ScaleMove& move = *stop.largest_move;
  return "stable after " + std::to_string(stop.num_samples) + " of at most " +
         counted(stop.max_samples, "sample") + ": in the last " + std::to_string(move.num_samples) +
         " no scale moved by more than " + percent(*move.ratio) + '\n';
}

std::string shares_text(const std::vector<RankShare>& shares) {
  TextTable table({"rank", "host", "samples", "tokens", "TFLOP", "MB of layers read",
                   "MB from storage", "processor s", "peak MB"});
  for (size_t rank = 0; rank < shares.size(); ++rank) {
    const RankWork& one = shares[rank].work;
    const auto megabytes = [](uint64_t bytes) {
      return fixed("%.1f", 1e-6 * static_cast<double>(bytes));
    };
    table.add({std::to_string(rank), shares[rank].host, std::to_string(one.samples),
               std::to_string(one.tokens), fixed("%.6f", 1e-12 * one.flop),
               megabytes(one.bytes_read), megabytes(one.storage_bytes),
               fixed("%.2f", one.processor_seconds), megabytes(one.peak_bytes)});
  }
  return table.text();
}

}  // namespace kvcal
