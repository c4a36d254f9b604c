#pragma once

#include <string>
#include <vector>

#include "family/architecture.h"

namespace kvcal {

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

}  // namespace kvcal
