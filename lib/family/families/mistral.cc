#include "family/tensor_tables.h"

namespace kvcal {

using enum Role;

namespace {

constexpr FamilyRow kRows[] = {
    {"mistral", "", "MistralAttention", "Mistral 7B, Nemo, Small 3, Ministral 8B",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 8, "sliding_window": 4096})";
       family.text_defaults = R"({"vocab_size": 32000, "hidden_size": 4096,
         "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
         "max_position_embeddings": 131072})";
       family.sliding_window = SlidingWindow::kAllLayers;
     }},
    // Mistral with a window in the layers that say so.
    {"ministral", "", "MinistralAttention", "Ministral 8B in transformers 5's spelling",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 8, "sliding_window": 4096})";
       family.sliding_window = SlidingWindow::kAllOrTyped;
     }},
    // Mistral with yarn, whose queries grow with the position.
    {"ministral3", "", "Ministral3Attention", "Ministral 3",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5,
         "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0,
         "original_max_position_embeddings": 16384, "beta_fast": 32.0, "beta_slow": 1.0,
         "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}})";
       family.sliding_window = SlidingWindow::kAllLayers;
     }},
    {"mixtral", "mistral", "MixtralAttention", "Mixtral 8x7B, 8x22B",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e6,
         "num_experts_per_tok": 2, "num_local_experts": 8})";
       family.text_defaults = R"({})";
       family.aliases = {{"num_experts", "num_local_experts"}};
       family.resolve = [](const Json&, ModelConfig& config) { config.norm_topk_prob = true; };
       family.expert_layers = ExpertLayers::kAll;
       family.layer_tensors =
           joined({pre_norm_rows(), attention_rows(), expert_rows(kMixtralExperts)});
     }},
    // Norms take the place of the residual stream, which is weighed against each branch; mixers of
    // lightning attention between Mixtral's attention. Source: transformers 5.24, models/minimax.
    {"minimax", "mixtral", "MiniMaxAttention", "MiniMax-Text-01, MiniMax-M1 in transformers' names",
     [](Architecture& family) {
       family.defaults.merge(R"({"attn_layer_period": 2, "attn_layer_offset": 0})");
       family.numbers = {
           {"full_attn_alpha_factor", &ModelConfig::attention_stream_multiplier},
           {"full_attn_beta_factor", &ModelConfig::attention_output_multiplier},
           {"linear_attn_alpha_factor", &ModelConfig::mixer_stream_multiplier},
           {"linear_attn_beta_factor", &ModelConfig::mixer_output_multiplier},
           {"mlp_alpha_factor", &ModelConfig::mlp_stream_multiplier},
           {"mlp_beta_factor", &ModelConfig::mlp_output_multiplier},
       };
       family.fixed = {{"hidden_act", "\"silu\""}};  // also of the mixers' inputs
       family.known_keys = {"block_size"};
       family.resolve = [](const Json&, ModelConfig& config) {
         config.norm_topk_prob = config.norms_stream = config.norms_before_gate = true;
       };
       family.recurrence = Mixer::kLightning;
       family.layer_tensors = joined(
           {pre_norm_rows(), with(when(&LayerConfig::has_attention), attention_rows()),
            with(when(&LayerConfig::has_recurrence),
                 {{kMixerIn, "self_attn.qkv_proj.weight", {Dim::kMixerChannels, Dim::kHidden}},
                  {kMixerZ, "self_attn.output_gate.weight"},
                  {kMixerNorm, "self_attn.norm.weight"},
                  {kMixerOut, "self_attn.out_proj.weight"}}),
            expert_rows(kMixtralExperts)});
       // Decays, as the checkpoint's dtype rounds them; engines compute them.
       family.ignored_suffixes = {".slope_rate", ".query_decay", ".key_decay", ".diagonal_decay"};
     }},
    // OLMoE's attention with partial rope, Mixtral's experts with sigmoid routing.
    {"minimax_m2", "mixtral", "MiniMaxM2Attention", "MiniMax-M2, M2.1, M2.5",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "rope_theta": 5e6,
         "num_local_experts": 256, "num_experts_per_tok": 8, "partial_rotary_factor": 1.0})";
       family.fixed = {{"use_qk_norm", "true"},
                       {"qk_norm_type", "\"per_layer\""},
                       {"scoring_func", "\"sigmoid\""},
                       {"shared_intermediate_size", "0"}};
       family.known_keys = {"use_routing_bias", "attn_type_list"};
       family.resolve = [](const Json&, ModelConfig& config) { config.norm_topk_prob = true; };
       family.counts_rotary_dim = true;
       family.sliding_window = SlidingWindow::kNone;
       family.qk_norm = QkNorm::kWhole;
       family.router_score = RouterScore::kSigmoid;
       family.layer_tensors = joined({pre_norm_rows(), attention_rows(), whole_norm_rows(),
                                      expert_rows(kMixtralExperts),
                                      correction_rows("block_sparse_moe.e_score_correction_bias")});
     }},
};

}  // namespace

Lineage mistral_lineage() {
  return kRows;
}

}  // namespace kvcal
