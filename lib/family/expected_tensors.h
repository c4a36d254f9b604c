#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "family/architecture.h"
#include "quant/stacked_slice.h"

namespace kvcal {

constexpr int64_t kNoLayer = -1;

/// A tensor that checkpoints of a config.json hold: a resolved row of the family's table.
struct ExpectedTensor {
  const TensorRow* row = nullptr;  ///< row of the architecture's table
  int64_t layer = kNoLayer;        ///< kNoLayer: a tensor of the whole model
  int64_t index = 0;               ///< of the expert or head, where each has its own tensor
  int64_t count = 1;               ///< experts or heads that one tensor holds, its first dimension
  std::string name;
  Shape shape;
};

/// All expected tensors: the model's, then layer by layer, in the order of the tables.
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config);
/// Elements of all of them, counted without making the list. Throws Error for more than 64 bits
/// count.
uint64_t num_expected_elements(const ModelConfig& config);

/// Whether checkpoints hold such a tensor and the text model does not use it.
bool is_unused_tensor(std::string_view name, const ModelConfig& config);
/// Whether a tensor lies beside the layers and is no lm_head: the head of a reward model, of a
/// classifier, or a projection of embeddings. No K or V depends on it. False where the names of the
/// layers have no prefix, for then nothing tells, and of known wrappers (is_outside_text).
bool is_beside_model(std::string_view name, const ModelConfig& config);
/// Number of the tensor's layer where that does nothing, as layers that attend to an image; else
/// kNoLayer.
int64_t skipped_layer_of(std::string_view name, const ModelConfig& config);

/// Whether a tensor is of a multi-token prediction layer, which engines' models leave to the draft.
bool is_of_prediction_layer(std::string_view name, const ModelConfig& config);

/// Tensor of one expert, out of a tensor that stacks all experts.
struct ExpertTensor {
  Role role{};
  std::string name;
  Shape shape;
  StackedSlice slice;
};
/// Tensors of the experts of a stacked tensor, expert by expert; empty for any other tensor.
std::vector<ExpertTensor> split_into_experts(const ExpectedTensor& stacked,
                                             const ModelConfig& config);

/// Row ranges [begin, count] of a role inside its fused tensor of a layer.
using RowRanges = std::vector<std::pair<int64_t, int64_t>>;
RowRanges row_ranges(Role role, Role fused_role, int64_t rows, const ModelConfig& config,
                     int64_t layer);

/// The multi-token prediction layer that engines run as a draft. Row i of its input is
///   projection([norm(embedding of token i + 1), norm(final hidden state of token i)])
/// at position i, where the final hidden state is the input of lm_head, behind the final norm. The
/// last token of a sample has no next one, and an engine takes the token that it has sampled there.
/// Later prediction layers are not run: engines run the first one for every drafted token.
/// Source: vLLM 0.32, `v1/spec_decode/llm_base_proposer.py`, `set_inputs_first_pass`, and
/// `models/deepseek_mtp.py`, `glm4_moe_mtp.py`, `glm4_moe_lite_mtp.py`, `qwen3_next_mtp.py`,
/// `qwen3_5_mtp.py`. SGLang 0.5.23, `models/deepseek_nextn.py` and `glm4_moe_nextn.py`, keeps the
/// embedding of row 0, which vLLM masks where Architecture::masks_first_draft says so.

/// Adds the family's draft layer behind the last layer: a copy of the last attention layer in kind.
/// The family must have one.
void append_draft_layer(ModelConfig& config);

/// The tensors of the draft's input, below draft_input_prefix.
const std::vector<TensorRow>& draft_input_rows(const ModelConfig& config);
std::string draft_input_prefix(const ModelConfig& config);

/// Whether the draft's K, V or Q is made of a layer's tensor of this role.
bool is_run_by_draft(Role role);

/// Module under which engines read the scales of a draft's K and V in every form, as ".k_scale" and
/// ".v_scale": "….self_attn", "….self_attn.attn", or with k or v for {}, "….self_attn.{}_proj".
/// Empty for other layers. vLLM 0.32 and SGLang 0.5.23 stop at other names, or drop them
/// (tests/fixtures/engines/drafts_*.json).
std::string draft_scale_module(const ModelConfig& config, int64_t layer);

/// Name of a module in transformers, for the targets and ignore lists of recipes.
struct ModuleName {
  std::string name;          ///< "model.layers.0.self_attn.k_proj"
  std::string class_name;    ///< "Linear", "LlamaAttention", "Embedding"
  std::optional<Role> role;  ///< of its weight; nullopt for attention modules
  int64_t index = 0;         ///< of an expert
  /// Second name that recipes may use: transformers 5's name where the checkpoint has an older one,
  /// for recipes written for llm-compressor ("model.layers.0.mlp.experts.3.gate_proj" for
  /// "….block_sparse_moe.experts.3.w1"), or the checkpoint's where name is transformers'.
  std::string alias = {};
  int64_t layer = -1;           ///< -1: in no layer
  bool is_slice = false;        ///< slice of a tensor that stacks all experts in the family's table
  bool is_interleaved = false;  ///< rows of gate and up alternate in its weight
};

/// Every module that a recipe can name: Linears, embeddings and attention modules, also those whose
/// tensor is tied to another, and the Linears of stacked experts under the names that
/// llm-compressor splits them into.
std::vector<ModuleName> list_modules(const ModelConfig& config);

}  // namespace kvcal
