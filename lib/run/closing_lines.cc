#include "run/closing_lines.h"

#include "core/join.h"
#include "core/number_text.h"

namespace kvcal {
namespace {

constexpr size_t kWorstLayers = 3;
constexpr double kUnsettled = 0.05;  ///< growth from which more samples are likely to move scales

std::string cache_text(const ScaleSummary& summary) {
  const std::string all = std::to_string(2 * summary.cache_bytes_fp8) + " in 16 bits";
  if (summary.layers_16_bit.empty())
    return std::to_string(summary.cache_bytes_fp8) + " bytes a token in FP8, " + all;
  return std::to_string(summary.cache_bytes()) + " bytes a token with " +
         layer_range_text(summary.layers_16_bit) + " in 16 bits and the others in FP8, " +
         std::to_string(summary.cache_bytes_fp8) + " all in FP8, " + all;
}

std::string cost_text(const RunCost& cost) {
  return std::to_string(cost.num_samples) + (cost.num_samples == 1 ? " sample, " : " samples, ") +
         std::to_string(cost.num_tokens) + " tokens in " + fixed("%.1f s", cost.seconds) +
         ", peak memory " + byte_text(static_cast<double>(cost.peak_bytes));
}

std::string growth_text(const LateGrowth& growth) {
  const std::string last = "the last " + std::to_string(growth.num_samples - growth.from_samples) +
                           " of " + std::to_string(growth.num_samples) + " samples";
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

}  // namespace

std::vector<std::pair<std::string, std::string>> summary_lines(const ScaleSummary& summary) {
  std::vector<std::pair<std::string, std::string>> lines;
  lines.emplace_back("KV cache", cache_text(summary));
  if (summary.growth) lines.emplace_back("samples", growth_text(*summary.growth));
  if (summary.late) lines.emplace_back("positions", late_positions_text(*summary.late));
  const auto worst = worst_layers(summary, kWorstLayers);
  lines.emplace_back("rounding", std::string("largest error against the values in layer") +
                                     (worst.size() == 1 ? " " : "s ") +
                                     join(worst, ", ", layer_text));
  lines.emplace_back("scale 1.0", unit_scale_text(summary));
  lines.emplace_back("margin 1.0", unit_margin_text(summary.margin));
  return lines;
}

std::vector<std::pair<std::string, std::string>> predicted_lines(const ScaleSummary& summary) {
  std::vector<std::pair<std::string, std::string>> lines;
  if (summary.predicted)
    lines.emplace_back("verdict", "with these scales " + verdict_text(*summary.predicted));
  if (summary.predicted_unit)
    lines.emplace_back("verdict 1.0", "with scale 1.0 " + verdict_text(*summary.predicted_unit));
  return lines;
}

std::vector<std::pair<std::string, std::string>> made_lines(const CalibrationResult& result) {
  if (!result.summary) return {};
  std::vector<std::pair<std::string, std::string>> lines = summary_lines(*result.summary);
  if (result.budget) lines.emplace_back("KL budget", budget_text(*result.budget));
  if (!result.cost) return lines;
  if (!result.cost->device.empty()) lines.emplace(lines.begin(), "device", result.cost->device);
  lines.emplace(lines.begin(), "calibrated", cost_text(*result.cost));
  return lines;
}

std::vector<std::pair<std::string, std::string>> closing_lines(const CalibrationResult& result) {
  if (!result.summary) return {};
  std::vector<std::pair<std::string, std::string>> lines = predicted_lines(*result.summary);
  const auto made = made_lines(result);
  lines.insert(lines.end(), made.begin(), made.end());
  return lines;
}

}  // namespace kvcal
