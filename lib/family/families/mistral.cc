#include "family/config_reader.h"
#include "family/tensor_tables.h"

namespace kvcal {

using enum Role;

namespace {

/// Whether a layer's attention reads blocks of keys: said by word, or by number.
void resolve_blocks(const Json& config, ModelConfig& resolved) {
  resolved.norm_topk_prob = true;
  const Json* types = find_field(config, "layer_types");
  const Json* sparse = find_field(config, "sparse_attention_config");
  const Json* marks = sparse ? find_field(*sparse, "sparse_attention_freq") : nullptr;
  const Json* list = types ? types : marks;
  bool reads_blocks = false;
  if (list)
    check_one_a_layer(types ? "layer_types" : "sparse_attention_freq", *list,
                      resolved.num_hidden_layers);
  for (size_t i = 0; list && i < list->size(); ++i) {
    const Json& entry = list->at(i);
    const bool is_sparse = entry == "minimax_m3_sparse" || entry == 1;
    if (!is_sparse && entry != "full_attention" && entry != 0)
      fail("layer ", i, " has attention ", entry.dump(),
           ", which is not supported; expected minimax_m3_sparse or full_attention");
    reads_blocks = reads_blocks || is_sparse;
  }
  if (!reads_blocks) resolved.most_tokens = 0;
}

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
       family.has_query_beta = true;
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
    // MiniMax-M2 with a norm of 1 + w, GPT-OSS' clamped gate and a shared expert. The indexer of
    // its sparse layers has no part in attention over as many keys as it selects. Source:
    // transformers 5.24, models/minimax_m3_vl and conversion_mapping.py.
    {"minimax_m3", "minimax_m2", "MiniMaxM3VLAttention", "text model of MiniMax-M3",
     [](Architecture& family) {
       family.model_types = {"minimax_m3_vl_text"};
       family.defaults = R"({"num_key_value_heads": 4, "head_dim": 128, "rope_theta": 5e6,
         "num_local_experts": 128, "num_experts_per_tok": 4, "intermediate_size": 3072,
         "dense_intermediate_size": 12288, "shared_intermediate_size": 3072,
         "first_k_dense_replace": 0, "routed_scaling_factor": 2.0, "partial_rotary_factor": 1.0,
         "swiglu_limit": 7.0, "index_block_size": 128, "index_topk_blocks": 16})";
       family.text_defaults = R"({"vocab_size": 200064, "hidden_size": 6144,
         "num_hidden_layers": 60, "num_attention_heads": 64, "max_position_embeddings": 524288})";
       family.aliases = {{"moe_intermediate_size", "intermediate_size"},
                         {"intermediate_size", "dense_intermediate_size"},
                         {"shared_expert_intermediate_size", "shared_intermediate_size"},
                         {"num_experts", "num_local_experts"},
                         {"index_block_size", "sparse_attention_config.sparse_block_size"},
                         {"index_topk_blocks", "sparse_attention_config.sparse_topk_blocks"}};
       family.numbers = {{"routed_scaling_factor", &ModelConfig::routed_scaling_factor},
                         {"swiglu_limit", &ModelConfig::activation_limit}};
       // hidden_act is "silu" or "swigluoai"; all MLPs use x · sigmoid(1.702 x).
       family.fixed = {{"swiglu_alpha", "1.702"},
                       {"use_qk_norm", "true"},
                       {"qk_norm_type", "\"per_head\""},
                       {"use_gemma_norm", "true"},
                       {"scoring_func", "\"sigmoid\""}};
       // transformers and vLLM take partial_rotary_factor, not rotary_dim.
       add(family.known_keys,
           {"rotary_dim", "layer_types", "n_shared_experts", "index_n_heads", "index_head_dim",
            "index_local_blocks", "sparse_attention_config.sparse_attention_freq",
            "sparse_attention_config.sparse_num_index_heads",
            "sparse_attention_config.sparse_index_dim",
            "sparse_attention_config.sparse_local_block"});
       family.prepare = [](Json& config) { config["hidden_act"] = "quick_gelu"; };
       family.resolve = resolve_blocks;
       family.counts_rotary_dim = false;
       family.norm_adds_one = true;
       family.reads_blocks_of_keys = true;
       family.qk_norm = QkNorm::kPerHead;
       family.expert_layers = ExpertLayers::kTyped;
       family.layer_tensors =
           joined({pre_norm_rows(), attention_rows(), head_norm_rows(), mlp_rows(),
                   expert_rows(kMixtralExperts),
                   correction_rows("block_sparse_moe.e_score_correction_bias"),
                   shared_expert_rows({"block_sparse_moe.shared_experts.gate_proj.weight",
                                       "block_sparse_moe.shared_experts.up_proj.weight",
                                       "block_sparse_moe.shared_experts.down_proj.weight"})});
       family.ignored_suffixes = {
           ".self_attn.index_q_proj.weight", ".self_attn.index_k_proj.weight",
           ".self_attn.index_q_norm.weight", ".self_attn.index_k_norm.weight"};
     }},
};

}  // namespace

Lineage mistral_lineage() {
  return kRows;
}

}  // namespace kvcal
