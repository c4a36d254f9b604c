#pragma once

#include <initializer_list>
#include <span>
#include <type_traits>
#include <vector>

#include "family/architecture.h"

namespace kvcal {

/// A family by its differences from another one. The source of a row that names none is
/// transformers' models/<name>.
struct FamilyRow {
  std::string_view name;
  /// The family that it starts from; empty: Llama's tensors, with biases by no key.
  std::string_view like;
  std::string_view attention_class, description;
  /// Makes the differences. Without its own model_types, a family has its name as its only one.
  void (*differ)(Architecture& family) = nullptr;
};
/// Families that descend from one another: a file of lib/family/families.
using Lineage = std::span<const FamilyRow>;

// Tensor tables that several lineages share, with the names that most families use.

TensorRows joined(std::initializer_list<TensorRows> tables);
template <class Item>
void add(std::vector<Item>& list, std::initializer_list<std::type_identity_t<Item>> more) {
  list.insert(list.end(), more);
}

/// The embedding, the last norm, and an untied lm_head.
TensorRows model_rows(std::string_view embedding = "embed_tokens.weight",
                      std::string_view norm = "norm.weight",
                      std::string_view head = "lm_head.weight");
/// input_layernorm before attention, post_attention_layernorm before the MLP.
TensorRows pre_norm_rows();
/// The biases of pre_norm_rows' norms.
TensorRows pre_norm_bias_rows();
/// post_attention_layernorm and post_feedforward_layernorm, on the outputs only.
TensorRows post_norm_rows();
/// self_attn.{q,k,v}_proj; with biases where attention_bias.
TensorRows query_key_value_rows();
/// query_key_value_rows and o_proj, with a bias where output_bias.
TensorRows attention_rows();
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
TensorRows plain_mlp_rows(std::string_view up = "mlp.up_proj.weight",
                          std::string_view up_bias = "mlp.up_proj.bias",
                          std::string_view down = "mlp.down_proj.weight",
                          std::string_view down_bias = "mlp.down_proj.bias");
/// Router "<mlp>gate" and "<mlp>experts.N.<gate|up|down>" of layers with experts. Names are
/// literals.
struct ExpertNames {
  std::string_view router, gate, up, down;
};
constexpr ExpertNames proj_experts(std::string_view router = "mlp.gate.weight") {
  return {router, "mlp.experts.{}.gate_proj.weight", "mlp.experts.{}.up_proj.weight",
          "mlp.experts.{}.down_proj.weight"};
}
TensorRows expert_rows(const ExpertNames& names = proj_experts());
constexpr ExpertNames kMixtralExperts{
    "block_sparse_moe.gate.weight", "block_sparse_moe.experts.{}.w1.weight",
    "block_sparse_moe.experts.{}.w3.weight", "block_sparse_moe.experts.{}.w2.weight"};
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
/// Its biases, where mlp_bias.
TensorRows shared_bias_rows(const SharedNames& biases);

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

/// Latent attention in DeepSeek's names; biases where attention_bias.
TensorRows latent_attention_rows();
/// Kimi's delta net, whose decays and gates of the output go through a low rank. decay_shape: of
/// their logarithms.
TensorRows kimi_delta_net_rows(std::vector<Dim> decay_shape);
/// Its sizes, as `linear_attn_config` has them and as transformers saves them.
std::vector<KeyAlias> kimi_delta_net_aliases();

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

/// The switch of q, k, v and o biases, and more.
std::vector<SwitchKey> attention_bias_switches(const std::vector<SwitchKey>& more = {});
/// The switches of q, k, v and o biases, and of the MLP's, and more.
std::vector<SwitchKey> bias_switches(const std::vector<SwitchKey>& more = {});

/// Refuses a config without layer_types, for families whose layers follow no pattern that a number
/// could give.
void require_layer_types(const Json& config, ModelConfig& resolved);

/// Makes attention and MLP read the output of one norm.
void share_parallel_norm(const Json& json, ModelConfig& config);

}  // namespace kvcal
