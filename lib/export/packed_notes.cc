#include "export/packed_notes.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include "export/matrix_names.h"

namespace kvcal {
namespace {

std::vector<std::string> modules_of(const WeightsByName& found) {
  std::vector<std::string> modules;
  for (const NamedWeight& weight : found.weights) modules.push_back(weight.module);
  return modules;
}

/// First of two modules that vLLM fuses and that do not share a global scale. Source: vLLM 0.32
/// `compressed_tensors_moe_w4a4_nvfp4.py`, `packed_modules_mapping`.
std::optional<std::pair<std::string, std::string>> unshared_pair(const WeightsByName& found) {
  constexpr std::pair<std::string_view, std::string_view> kPairs[] = {
      {"gate_proj", "up_proj"}, {"q_a_proj", "kv_a_proj_with_mqa"}};
  const std::vector<std::string> modules = modules_of(found);
  const std::set<std::string_view> all(modules.begin(), modules.end());
  std::set<std::string> sharing;
  for (const auto& members : sharing_modules(modules))
    sharing.insert(members.begin(), members.end());
  for (const std::string& module : modules)
    for (const auto& [first, second] : kPairs) {
      const size_t dot = module.rfind('.') + 1;
      std::string other = module.substr(0, dot) + std::string(second);
      if (module.substr(dot) == first && all.contains(other) && !sharing.contains(module))
        return std::pair(module, std::move(other));
    }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> packed_notes(const WeightsByName& found, const WeightScheme& scheme) {
  std::vector<std::string> notes;
  if (scheme.weights.strategy == Strategy::kTensorGroup)
    if (const auto pair = unshared_pair(found))
      notes.push_back(pair->first + " and " + pair->second +
                      ": have global scales of their own, as in llm-compressor 0.14, and vLLM 0.32 "
                      "uses the first one's for both; --ignore leaves such modules in 16 bits");
  const int64_t group = scheme.inputs ? scheme.inputs->group_size.value_or(0) : 0;
  if (group <= 0) return notes;
  const auto odd = std::ranges::find_if(
      found.weights, [&](const NamedWeight& weight) { return weight.shape[1] % group != 0; });
  if (odd != found.weights.end())
    notes.push_back(odd->module + ": its " + std::to_string(odd->shape[1]) +
                    " inputs are not whole groups of " + std::to_string(group) +
                    ", which neither transformers 5.17 nor vLLM 0.32 runs; choose FP8_DYNAMIC");
  return notes;
}

}  // namespace kvcal
