#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvcal {

/// Reason for leaving a module's weight as it is, by the module's name alone: "embedding", "head",
/// "norm", "router" or "tower" (of vision or audio, with its projector). nullopt: a Linear of a
/// language model, as far as a name tells.
std::optional<std::string_view> reason_by_name(std::string_view module);

/// Modules whose weights share one global scale, by names: Q, K and V of an attention, gate and up
/// of an MLP, w1 and w3. Those that miss a member are left out. Source: llm-compressor 0.14
/// `model_free/microscale.py`, so experts' gate_proj and up_proj share none.
std::vector<std::vector<std::string>> sharing_modules(const std::vector<std::string>& modules);

/// The two kinds of tensors that stack the matrices of all experts.
enum class Stacked { kGateUp, kDown };
/// Kind of a tensor by its name; nullopt: no such name.
std::optional<Stacked> stacked_kind(std::string_view tensor);
/// Name of the module of one expert's part: "….experts.3.up_proj" for "….experts.gate_up_proj".
std::string split_module(std::string_view tensor, Stacked kind, int64_t expert, int64_t part);

}  // namespace kvcal
