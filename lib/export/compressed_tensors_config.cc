#include "export/compressed_tensors_config.h"

#include <algorithm>

namespace kvcal {
namespace {

/// A target by class.
constexpr std::string_view kEveryLinear = "Linear";

/// Group of the attention modules with quantized queries. All have the same scheme, and vLLM needs
/// the class as the only target.
std::optional<QuantScheme> attention_scheme(const QuantPlan& plan) {
  for (const PlannedAttention& attention : plan.attention)
    if (!attention.ignored && attention.q)
      return QuantScheme{.targets = {plan.attention_class},
                         .weights = std::nullopt,
                         .input_activations = attention.q,
                         .format = CompressionFormat::kDense};
  return std::nullopt;
}

/// Number of groups that begin before the first attention module, in the order of the model's
/// modules: an attention module comes before its Linears.
std::ptrdiff_t groups_before_attention(const QuantPlan& plan) {
  const auto first = std::ranges::find(plan.attention, false, &PlannedAttention::ignored);
  const int64_t layer = first == plan.attention.end() ? 0 : first->layer;
  size_t count = 0;
  for (const PlannedLinear& linear : plan.linears)
    if (linear.is_embedding || (linear.layer >= 0 && linear.layer < layer))
      count = std::max(count, linear.group + 1);
  return static_cast<std::ptrdiff_t>(count);
}

std::vector<QuantScheme> all_groups(const QuantPlan& plan) {
  std::vector<QuantScheme> groups = plan.groups;
  if (const auto attention = attention_scheme(plan))
    groups.insert(groups.begin() + groups_before_attention(plan), *attention);
  return groups;
}

/// Format of all weights, or the word for several.
std::string format_word(const QuantPlan& plan) {
  std::string word = name_of(CompressionFormat::kDense);
  for (const QuantScheme& group : plan.groups) {
    const std::string own = name_of(format_of(group));
    if (own == name_of(CompressionFormat::kDense) || own == word) continue;
    if (word != name_of(CompressionFormat::kDense)) return "mixed-precision";
    word = own;
  }
  return word;
}

/// Modules without a scheme. Without groups, TGI has to find every Linear here; other engines,
/// where this was tried, then load as they do without the entry. Source: TGI db931fcf,
/// `CompressedTensorsLoader`.
std::vector<std::string> ignore_list(const QuantPlan& plan, bool has_no_groups) {
  std::vector<std::string> ignore = plan.ignore;
  if (has_no_groups && std::ranges::find(ignore, kEveryLinear) == ignore.end())
    ignore.emplace_back(kEveryLinear);
  return ignore;
}

}  // namespace

Json config_groups(const Calibration& calibration) {
  Json groups = Json::object();
  for (const QuantScheme& group : all_groups(calibration.plan))
    groups["group_" + std::to_string(groups.size())] = to_json(group);
  return groups;
}

Json quantization_config(const Calibration& calibration) {
  Json config = Json::object();
  config["config_groups"] = config_groups(calibration);
  config["format"] = format_word(calibration.plan);
  config["global_compression_ratio"] = nullptr;
  config["ignore"] = ignore_list(calibration.plan, config["config_groups"].empty());
  config["kv_cache_scheme"] =
      calibration.layers.empty() ? Json(nullptr) : to_json(calibration.kv_args);
  config["quant_method"] = "compressed-tensors";
  config["quantization_status"] = "compressed";
  config["sparsity_config"] = Json::object();
  config["transform_config"] = Json::object();
  config["version"] = kCompressedTensorsVersion;
  return config;
}

}  // namespace kvcal
