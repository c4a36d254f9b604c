#include "export/attention_scales.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "export/layer_scales.h"
#include "quant/weight_scales.h"

namespace kvcal {
namespace {

constexpr std::string_view kScale = "_scale", kZeroPoint = "_zero_point";

/// Q, K or V of a layer.
struct Side {
  char letter;
  const KvTensorCalibration* calibration;
  bool is_per_head;

  std::string name(const AttentionCalibration& layer, std::string_view suffix) const {
    const std::string module =
        layer.scales_at.empty() ? layer.module : module_of_side(layer.scales_at, letter);
    return module + "." + letter + std::string(suffix);
  }
};

bool is_per_head(const QuantArgs& args) {
  return resolved_strategy(args) == Strategy::kAttnHead;
}

bool queries_per_head(const Calibration& calibration, const AttentionCalibration& layer) {
  const auto& attention = calibration.plan.attention;
  const auto planned = std::ranges::find(attention, layer.module, &PlannedAttention::module);
  return planned != attention.end() && planned->q && is_per_head(*planned->q);
}

/// The sides of a layer that have scales; none for an ignored layer.
std::vector<Side> sides_of(const Calibration& calibration, const AttentionCalibration& layer) {
  if (layer.ignored) return {};
  const bool per_head = is_per_head(calibration.kv_args);
  std::vector<Side> sides{{'k', &layer.k, per_head}, {'v', &layer.v, per_head}};
  if (layer.q) sides.push_back({'q', &*layer.q, queries_per_head(calibration, layer)});
  return sides;
}

/// One zero per scale; E4M3's zero has only zero bits.
Tensor zero_points(std::string name, const Shape& shape) {
  return {std::move(name), DType::kF8E4M3, shape,
          std::vector<std::byte>(byte_count(shape, DType::kF8E4M3))};
}

}  // namespace

std::vector<Scale> tied_over_ranks(const std::vector<Scale>& scales, int64_t num_ranks) {
  const auto heads = static_cast<int64_t>(scales.size());
  if (num_ranks <= 1 || heads <= 1) return scales;
  if (heads % num_ranks != 0 && num_ranks % heads != 0)
    fail(heads, " heads cannot be divided over ", num_ranks, " ranks");
  const int64_t heads_of_rank = std::max<int64_t>(1, heads / num_ranks);
  std::vector<Scale> tied = scales;
  for (auto first = tied.begin(); first != tied.end(); first += heads_of_rank) {
    const auto largest = *std::ranges::max_element(first, first + heads_of_rank, {}, &Scale::value);
    std::fill(first, first + heads_of_rank, largest);
  }
  return tied;
}

std::vector<std::string> attention_tensor_names(const Calibration& calibration) {
  std::vector<std::string> names;
  for (const AttentionCalibration& layer : calibration.layers)
    for (const Side& side : sides_of(calibration, layer)) {
      names.push_back(side.name(layer, kScale));
      if (layer.q) names.push_back(side.name(layer, kZeroPoint));
    }
  return names;
}

std::vector<Tensor> attention_tensors(const ExportInput& input) {
  std::vector<Tensor> tensors;
  for (const AttentionCalibration& layer : input.calibration.layers) {
    if (layer.ignored) continue;
    const DType dtype =
        input.scale_in_model_dtype ? module_dtype(input.model, layer.module) : DType::kF32;
    for (const Side& side : sides_of(input.calibration, layer)) {
      const std::vector<Scale> scales = tied_over_ranks(side.calibration->scales, input.tp_size);
      const Shape shape =
          side.is_per_head ? Shape{static_cast<int64_t>(scales.size()), 1, 1} : Shape{1};
      tensors.push_back(scale_tensor(side.name(layer, kScale), shape, scales, dtype));
      if (layer.q) tensors.push_back(zero_points(side.name(layer, kZeroPoint), shape));
    }
  }
  return tensors;
}

void check_attention_scales_fit(const ExportInput& input) {
  for (const AttentionCalibration& layer : input.calibration.layers) {
    if (layer.ignored) continue;
    const DType dtype = module_dtype(input.model, layer.module);
    const float smallest = dtype == DType::kF16 ? 0x1p-14f : std::numeric_limits<float>::min();
    for (const Side& side : sides_of(input.calibration, layer))
      for (const Scale scale : side.calibration->scales) {
        const float rounded = rounded_to(dtype, scale.value);
        if (!std::isfinite(rounded) || rounded < smallest)
          fail(side.name(layer, kScale), ": scale ", scale.value, " is out of the normal range of ",
               dtype, "; write scales as float32 (--scale-dtype float32)");
      }
  }
}

std::optional<std::string> ignored_layers_note(const Calibration& calibration) {
  std::string layers;
  for (const AttentionCalibration& layer : calibration.layers)
    if (layer.ignored) layers += " " + std::to_string(layer.layer);
  if (layers.empty()) return std::nullopt;
  return "ignored layers have no scale, and an FP8 cache would use 1.0 there; start vLLM with "
         "--kv-cache-dtype-skip-layers" +
         layers;
}

std::optional<std::string> vllm_arguments(const Calibration& calibration) {
  std::string layers;
  for (const AttentionCalibration& layer : calibration.layers)
    if (layer.ignored) layers += (layers.empty() ? "" : ", ") + std::to_string(layer.layer);
  if (layers.empty()) return std::nullopt;
  return "# For: vllm serve FOLDER --config FOLDER/vllm.yaml\n"
         "kv-cache-dtype: fp8\n"
         "kv-cache-dtype-skip-layers: [" +
         layers + "]\n";
}

}  // namespace kvcal
