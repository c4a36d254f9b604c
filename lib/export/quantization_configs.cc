#include "export/quantization_configs.h"

#include "core/error.h"

namespace kvcal {

std::string WeightScaleNames::scale_name(const std::string& module, Strategy strategy) const {
  return module + "." +
         std::string(strategy == Strategy::kBlock ? block_suffix
                                                  : std::string_view("weight_scale"));
}

Shape WeightScaleNames::scale_shape(const ScaleGrid& grid, Strategy strategy) const {
  if (strategy == Strategy::kTensor) return scalar_shape();
  if (strategy == Strategy::kChannel && rows_have_one_dim) return Shape{grid.rows};
  if (strategy == Strategy::kBlock && blocks_have_four_dims)
    return Shape{grid.grid_rows(), 1, grid.grid_columns(), 1};
  return grid.scale_shape(strategy);
}

LinearScheme one_scheme(const QuantPlan& plan, std::string_view title) {
  KVCAL_CHECK(plan.quantizes_weights());
  const PlannedLinear& first = plan.linears.front();
  const LinearScheme scheme = linear_scheme(plan.groups.at(first.group));
  for (const PlannedLinear& linear : plan.linears) {
    if (linear.is_embedding)
      fail(title, " has no word for a quantized embedding, ", linear.module,
           "; use compressed-tensors");
    const LinearScheme own = linear_scheme(plan.groups.at(linear.group));
    if (own != scheme)
      fail(title, " has one scheme for all weights, and ", first.module, " has ", to_text(scheme),
           ", ", linear.module, " ", to_text(own), "; use compressed-tensors");
  }
  return scheme;
}

std::string to_text(const LinearScheme& scheme) {
  std::string text = "a weight of strategy " + name_of(scheme.strategy);
  if (scheme.strategy == Strategy::kBlock)
    text += " " + std::to_string(scheme.block_rows) + "x" + std::to_string(scheme.block_columns);
  switch (scheme.input) {
    case InputQuantization::kNone:
      return text + " with 16-bit inputs";
    case InputQuantization::kStatic:
      return text + " with static inputs";
    case InputQuantization::kDynamicToken:
      return text + " with inputs dynamic by token";
    case InputQuantization::kDynamicGroup:
      return text + " with inputs dynamic by groups of " + std::to_string(scheme.group);
  }
  return text;
}

std::vector<std::string> excluded_modules(const QuantPlan& plan) {
  std::vector<std::string> modules = plan.unrun;
  modules.insert(modules.end(), plan.unquantized.begin(), plan.unquantized.end());
  return modules;
}

}  // namespace kvcal
