#include "stored/tensor_account.h"

#include <algorithm>

#include "core/error.h"

namespace kvcal {

const AccountedTensor* TensorAccount::undescribed() const {
  const auto found = std::ranges::find(tensors, TensorUse::kUndescribed, &AccountedTensor::use);
  return found == tensors.end() ? nullptr : &*found;
}

void check_account(const TensorAccount& account, const ModelConfig& config) {
  constexpr size_t kMaxShown = 20;
  const size_t count = account.problems.size();
  if (count == 0) return;
  std::string text;
  for (size_t i = 0; i < std::min(count, kMaxShown); ++i)
    text += "\n  " + shown_text(account.problems[i]);
  if (count > kMaxShown) text += "\n  and " + std::to_string(count - kMaxShown) + " more";
  fail("the checkpoint does not hold a ", config.model_type, " of this config.json:", Lines{text});
}

bool is_name_of_codes(std::string_view last_part) {
  constexpr auto kNames = std::to_array<std::string_view>({"SCB",
                                                           "absmax",
                                                           "activation_scale",
                                                           "g_idx",
                                                           "input_global_scale",
                                                           "input_scale",
                                                           "input_zero_point",
                                                           "nested_absmax",
                                                           "nested_quant_map",
                                                           "quant_map",
                                                           "qweight",
                                                           "qzeros",
                                                           "scales",
                                                           "weight_g_idx",
                                                           "weight_global_scale",
                                                           "weight_packed",
                                                           "weight_scale",
                                                           "weight_scale_2",
                                                           "weight_scale_inv",
                                                           "weight_shape",
                                                           "weight_zero_point"});
  return std::ranges::find(kNames, last_part) != kNames.end();
}

}  // namespace kvcal
