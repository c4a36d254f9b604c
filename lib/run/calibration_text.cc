#include "run/calibration_text.h"

#include <algorithm>
#include <limits>

#include "core/number_text.h"
#include "core/text_table.h"
#include "run/closing_lines.h"

namespace kvcal {
namespace {

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
  return std::to_string(side.scales.size()) + " heads";
}

std::string attention_summary(const Calibration& calibration) {
  ScaleRange k, v;
  for (const AttentionCalibration& layer : calibration.layers) {
    if (layer.ignored) continue;
    k.add(layer.k);
    v.add(layer.v);
  }
  return std::to_string(calibration.layers.size()) + " layers: k_scale " + k.text() + ", v_scale " +
         v.text() + " (--verbose lists them)\n";
}

std::string attention_text(const Calibration& calibration, size_t most_rows) {
  if (calibration.layers.size() > most_rows) return attention_summary(calibration);
  const bool has_queries = std::ranges::any_of(
      calibration.layers, [](const AttentionCalibration& layer) { return layer.q.has_value(); });
  std::vector<std::string> head{"layer",  "k_scale",   "v_scale",  "k_amax",
                                "v_amax", "k_clipped", "v_clipped"};
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
  return table.text() + std::to_string(linears.size()) +
         " inputs have static scales (--verbose lists them)\n";
}

std::string linears_text(const std::vector<LinearCalibration>& linears, size_t most_rows) {
  if (linears.size() > most_rows) return linears_summary(linears);
  TextTable table({"module", "input_scale", "input_amax", "tokens"});
  for (const LinearCalibration& linear : linears)
    table.add({linear.module, short_float(static_cast<double>(linear.input_scale.value)),
               short_float(static_cast<double>(linear.input_amax.value)),
               std::to_string(linear.input_tokens)});
  return table.text();
}

}  // namespace

std::string labelled_text(const std::vector<std::pair<std::string, std::string>>& lines) {
  std::string shown;
  for (const auto& [label, text] : lines)
    shown +=
        label + std::string(kLabelWidth - std::min(label.size(), kLabelWidth), ' ') + text + '\n';
  return shown;
}

std::string calibration_text(const CalibrationResult& result, size_t most_rows) {
  const Calibration& calibration = result.calibration;
  std::string text;
  if (!calibration.layers.empty()) text += attention_text(calibration, most_rows);
  if (!calibration.linears.empty()) text += linears_text(calibration.linears, most_rows);
  const auto& weights = result.output.checkpoint.weights;
  if (!weights.empty())
    text += std::to_string(weights.size()) + " weights in FP8, " +
            std::to_string(calibration.plan.unquantized.size()) + " left as they were\n";
  return text + labelled_text(closing_lines(result));
}

std::string stop_text(const StopOutcome& stop) {
  if (!stop.is_stable) return "";
  const ScaleMove& move = *stop.largest_move;
  return "stable after " + std::to_string(stop.num_samples) + " of at most " +
         std::to_string(stop.max_samples) + " samples: in the last " +
         std::to_string(move.num_samples) + " no scale moved by more than " + percent(*move.ratio) +
         '\n';
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
