#include "export/weight_forms.h"

#include "core/error.h"

namespace kvcal {
namespace {

LinearInputs inputs_of(const QuantScheme& scheme) {
  if (!scheme.input_activations) return LinearInputs::kNone;
  if (!scheme.input_activations->dynamic) return LinearInputs::kStatic;
  return resolved_strategy(*scheme.input_activations) == Strategy::kGroup ? LinearInputs::kGroup
                                                                          : LinearInputs::kToken;
}

OneScheme scheme_of(const QuantScheme& group) {
  OneScheme scheme{.strategy = resolved_strategy(*group.weights), .inputs = inputs_of(group)};
  if (scheme.inputs == LinearInputs::kGroup)
    scheme.group = group.input_activations->group_size.value_or(0);
  if (scheme.strategy == Strategy::kBlock) {
    const auto& block = group.weights->block_structure;
    KVCAL_CHECK(block && block->size() == 2);
    scheme.block_rows = block->at(0);
    scheme.block_columns = block->at(1);
  }
  return scheme;
}

bool is_same(const OneScheme& a, const OneScheme& b) {
  return a.strategy == b.strategy && a.block_rows == b.block_rows &&
         a.block_columns == b.block_columns && a.inputs == b.inputs && a.group == b.group;
}

}  // namespace

std::string WeightForm::scale_name(const std::string& module, Strategy strategy) const {
  return module + "." +
         std::string(strategy == Strategy::kBlock ? block_suffix
                                                  : std::string_view("weight_scale"));
}

Shape WeightForm::scale_shape(const ScaleGrid& grid, Strategy strategy) const {
  if (strategy == Strategy::kTensor) return scalar_shape();
  if (strategy == Strategy::kChannel && rows_have_one_dim) return Shape{grid.rows};
  if (strategy == Strategy::kBlock && blocks_have_four_dims)
    return Shape{grid.grid_rows(), 1, grid.grid_columns(), 1};
  return grid.scale_shape(strategy);
}

OneScheme one_scheme(const QuantPlan& plan, std::string_view title) {
  KVCAL_CHECK(plan.quantizes_weights());
  const PlannedLinear& first = plan.linears.front();
  const OneScheme scheme = scheme_of(plan.groups.at(first.group));
  for (const PlannedLinear& linear : plan.linears) {
    if (linear.is_embedding)
      fail(title, " has no word for a quantized embedding, ", linear.module,
           "; use compressed-tensors");
    const OneScheme own = scheme_of(plan.groups.at(linear.group));
    if (!is_same(own, scheme))
      fail(title, " has one scheme for all weights, and ", first.module, " has ", to_text(scheme),
           ", ", linear.module, " ", to_text(own), "; use compressed-tensors");
  }
  return scheme;
}

std::string to_text(const OneScheme& scheme) {
  std::string text = "a weight of strategy " + name_of(scheme.strategy);
  if (scheme.strategy == Strategy::kBlock)
    text += " " + std::to_string(scheme.block_rows) + "x" + std::to_string(scheme.block_columns);
  switch (scheme.inputs) {
    case LinearInputs::kNone:
      return text + " with 16-bit inputs";
    case LinearInputs::kStatic:
      return text + " with static inputs";
    case LinearInputs::kToken:
      return text + " with inputs dynamic by token";
    case LinearInputs::kGroup:
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
