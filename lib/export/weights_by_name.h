// Weights without a model are found by name and shape: this needs no family, and
// write_packed_weights no Calibration, so `quantize` takes any checkpoint.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/model_dir.h"
#include "export/planned_weights.h"
#include "quant/quant_scheme.h"
#include "quant/stacked_slice.h"

namespace kvcal {

/// A tensor of two or more dimensions that stays as it is.
struct CopiedWeight {
  std::string name;    ///< of the module where it is a weight, else of the tensor
  std::string reason;  ///< "router", "--ignore 're:...'", "3 dimensions", …
};

/// The weights to quantize in a checkpoint of any architecture, found by their names and shapes,
/// and experts that stay, of stacks in which others are quantized. Borrows from the model and
/// itself.
struct WeightsByName : WeightChanges {
  std::vector<CopiedWeight> kept;  ///< by name; also those in renamed
  /// Modules that a reader of config.json must not take for quantized Linears: those kept that have
  /// a matrix, and a head that the checkpoint does not hold because it is tied.
  std::vector<std::string> ignore;
  std::deque<StackedSlice> slices;  ///< those that `quantized` and `renamed` point to

  WeightsByName() = default;
  WeightsByName(WeightsByName&&) = default;
  WeightsByName(const WeightsByName&) = delete;
  WeightsByName& operator=(const WeightsByName&) = delete;
};

/// Finds the weights of Linears: matrices called "….weight", and matrices of experts in stacks
/// [experts, out, in] of gate_up_proj and down_proj, each of which becomes a tensor of its own.
/// Embeddings, heads, norms, routers and towers stay (matrix_names.h), and modules that match one
/// of ignore (a name or "re:…", as targets of recipes). Throws Error for a pattern that matches
/// nothing, for stacks with another order of dimensions, for weights that are quantized already,
/// and where no weight is left. Source: llm-compressor 0.14 `split_fused_moe_experts`.
WeightsByName weights_by_name(const ModelDir& model, const std::vector<std::string>& ignore);

/// Throws Error naming the weights that args do not fit.
void check_fit(const WeightsByName& found, const ModelDir& model, const QuantArgs& args,
               const std::string& scheme);

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
