#pragma once

#include <initializer_list>
#include <vector>

#include "family/architecture.h"

namespace kvcal {

/// Tensor tables that several families share, with the names that most families use.
using TensorRows = std::vector<TensorRow>;

TensorRows joined(std::initializer_list<TensorRows> tables);

/// embed_tokens, norm, and an untied lm_head.
TensorRows model_rows();
/// model_rows with other names.
TensorRows model_rows_named(std::string_view embedding, std::string_view norm,
                            std::string_view head);
/// input_layernorm before attention, post_attention_layernorm before the MLP.
TensorRows pre_norm_rows();
/// The biases of pre_norm_rows' norms.
TensorRows pre_norm_bias_rows();
/// Gemma's norms: before and after attention, before and after the MLP.
TensorRows sandwich_norm_rows();
/// post_attention_layernorm and post_feedforward_layernorm, on the outputs only.
TensorRows post_norm_rows();
/// self_attn.{q,k,v}_proj; with biases where attention_bias.
TensorRows query_key_value_rows();
/// query_key_value_rows and o_proj, with a bias where output_bias.
TensorRows attention_rows();
/// self_attn of Qwen3-Next: q_proj holds each head's queries and gates.
TensorRows gated_attention_rows();
/// Separate Q, K, V and output projections; with biases where attention_bias and output_bias; a
/// tensor without a name is left out.
struct AttentionNames {
  std::string_view query, key, value, output;
  std::string_view query_bias = {}, key_bias = {}, value_bias = {}, output_bias = {};
};
TensorRows attention_rows_named(const AttentionNames& names);
constexpr AttentionNames kOutProjAttention{"self_attn.q_proj.weight", "self_attn.k_proj.weight",
                                           "self_attn.v_proj.weight", "self_attn.out_proj.weight",
                                           "self_attn.q_proj.bias",   "self_attn.k_proj.bias",
                                           "self_attn.v_proj.bias",   "self_attn.out_proj.bias"};
/// self_attn.{q,k}_norm over each head.
TensorRows head_norm_rows(std::string_view query = "self_attn.q_norm.weight",
                          std::string_view key = "self_attn.k_norm.weight");
/// self_attn.{q,k}_norm over all heads at once.
TensorRows whole_norm_rows();
/// mlp.{gate,up,down}_proj of layers without experts; with biases where mlp_bias.
TensorRows mlp_rows();
/// mlp.gate_up_proj, gate rows then up rows, and mlp.down_proj.
TensorRows fused_mlp_rows();
/// An MLP of two matrices; with biases where mlp_bias.
TensorRows plain_mlp_rows(std::string_view up, std::string_view up_bias, std::string_view down,
                          std::string_view down_bias);
/// Router "<mlp>gate" and "<mlp>experts.N.<gate|up|down>" of layers with experts. Names are
/// literals.
struct ExpertNames {
  std::string_view router, gate, up, down;
};
TensorRows expert_rows(const ExpertNames& names);
constexpr ExpertNames kProjExperts{"mlp.gate.weight", "mlp.experts.{}.gate_proj.weight",
                                   "mlp.experts.{}.up_proj.weight",
                                   "mlp.experts.{}.down_proj.weight"};
constexpr ExpertNames kMixtralExperts{
    "block_sparse_moe.gate.weight", "block_sparse_moe.experts.{}.w1.weight",
    "block_sparse_moe.experts.{}.w3.weight", "block_sparse_moe.experts.{}.w2.weight"};
/// Separate Q, K and V with norms of Q and K over each head: Q alone where the layer reads another
/// one's cache, and no V where V is K.
TensorRows shared_cache_attention_rows();
/// Gemma's embeddings that layers read beside the residual stream: of the model, and of each layer.
TensorRows layer_input_model_rows();
TensorRows layer_input_rows();
/// Latent attention in DeepSeek's names.
TensorRows latent_attention_rows();
/// The correction of the scores that choose experts, in DeepSeek-V3's name.
TensorRows correction_rows(std::string_view name = "mlp.gate.e_score_correction_bias");
/// An expert for all tokens, in layers with experts.
struct SharedNames {
  std::string_view gate, up, down;
};
constexpr SharedNames kSharedExperts{"mlp.shared_experts.gate_proj.weight",
                                     "mlp.shared_experts.up_proj.weight",
                                     "mlp.shared_experts.down_proj.weight"};
TensorRows shared_expert_rows(const SharedNames& names = kSharedExperts);

/// Qwen's shared expert and its gate.
TensorRows gated_shared_expert_rows();
/// mlp.gate, and mlp.experts.gate_up_proj and .down_proj, each one tensor for all experts:
/// [experts, out, in] for kOutIn, [experts, in, out] for kInOut. Split names are llm-compressor's.
TensorRows fused_expert_rows(Layout layout);
/// Experts in one tensor for gate and up, one for down. Split names are llm-compressor's.
struct StackedNames {
  std::string_view router, router_module, gate_up, down;
  SharedNames split;
};
constexpr StackedNames kGraniteExperts{
    "block_sparse_moe.router.layer.weight",
    "block_sparse_moe.router",
    "block_sparse_moe.input_linear.weight",
    "block_sparse_moe.output_linear.weight",
    {"block_sparse_moe.experts.{}.gate_proj.weight", "block_sparse_moe.experts.{}.up_proj.weight",
     "block_sparse_moe.experts.{}.down_proj.weight"}};
/// Names of split rows, below "mlp.experts".
constexpr SharedNames kSplitExperts{"mlp.experts.{}.gate_proj.weight",
                                    "mlp.experts.{}.up_proj.weight",
                                    "mlp.experts.{}.down_proj.weight"};
/// [experts, out, in] for kOutIn, [experts, in, out] for kInOut.
TensorRows stacked_expert_rows(const StackedNames& names = kGraniteExperts,
                               Layout layout = Layout::kOutIn);

/// LFM2's norms, attention or short convolutions, and MLP of layers without experts.
TensorRows lfm2_rows();

/// linear_attn of Qwen3.5: a delta net with a projection for each of its inputs.
TensorRows split_delta_net_rows();
/// Granite's expert for all tokens, gate and up in one tensor.
TensorRows stacked_shared_rows();

/// Names of a Mamba 2 mixer's tensors; biases where mixer_bias, mixer_output_bias and
/// has_conv_bias, a norm where has_mixer_norm.
struct Mamba2Names {
  std::string_view in, in_bias, conv, conv_bias, step_bias, decay, skip, norm, out, out_bias;
};
TensorRows mamba2_rows(const Mamba2Names& names);
constexpr Mamba2Names kMamba{"mamba.in_proj.weight",
                             "mamba.in_proj.bias",
                             "mamba.conv1d.weight",
                             "mamba.conv1d.bias",
                             "mamba.dt_bias",
                             "mamba.A_log",
                             "mamba.D",
                             "mamba.norm.weight",
                             "mamba.out_proj.weight",
                             "mamba.out_proj.bias"};

/// The rows with one more condition.
TensorRows with(Condition condition, TensorRows rows);

/// The switch of q, k, v and o biases.
std::vector<SwitchKey> attention_bias_switches();
/// The switch of q, k, v and o biases, and of the MLP's.
std::vector<SwitchKey> bias_switches();
/// Multipliers of embedding, attention scores, residual, and the divisor of the logits.
std::vector<NumberKey> granite_multipliers();

/// The indexer of DeepSeek's sparse attention.
TensorRows indexer_rows();
/// Its tensors, which checkpoints also hold for layers that use the selection of another layer.
std::vector<std::string_view> indexer_suffixes();

/// Makes attention and MLP read the output of one norm.
void share_parallel_norm(const Json& json, ModelConfig& config);

}  // namespace kvcal
