#include <algorithm>

#include "family/config_reader.h"
#include "family/tensor_tables.h"

namespace kvcal {

using enum Role;

namespace {

constexpr SharedNames kSharedExpert{"mlp.shared_expert.gate_proj.weight",
                                    "mlp.shared_expert.up_proj.weight",
                                    "mlp.shared_expert.down_proj.weight"};

/// self_attn of Qwen3-Next: q_proj holds each head's queries and gates.
TensorRows gated_attention_rows() {
  const Condition biased = when(&ModelConfig::attention_bias);
  return {
      {kQueryAndGate, "self_attn.q_proj.weight"},
      {kKey, "self_attn.k_proj.weight"},
      {kValue, "self_attn.v_proj.weight", {Dim::kKvWidth, Dim::kHidden}},
      {kOutput, "self_attn.o_proj.weight", {Dim::kHidden, Dim::kQueryWidth}},
      {kQueryAndGateBias, "self_attn.q_proj.bias", {}, {biased}},
      {kKeyBias, "self_attn.k_proj.bias", {}, {biased}},
      {kValueBias, "self_attn.v_proj.bias", {Dim::kKvWidth}, {biased}},
      {kOutputBias, "self_attn.o_proj.bias", {}, {when(&ModelConfig::output_bias)}},
      {kQueryNorm, "self_attn.q_norm.weight"},
      {kKeyNorm, "self_attn.k_norm.weight"},
  };
}

/// Qwen's shared expert and its gate.
TensorRows gated_shared_expert_rows() {
  return with(when(&LayerConfig::is_moe), {{kSharedGate, kSharedExpert.gate},
                                           {kSharedUp, kSharedExpert.up},
                                           {kSharedDown, kSharedExpert.down},
                                           {kSharedExpertGate, "mlp.shared_expert_gate.weight"}});
}

/// linear_attn of Qwen3.5: a delta net with a projection for each of its inputs.
TensorRows split_delta_net_rows() {
  return {
      {kMixerIn, "linear_attn.in_proj_qkv.weight", {Dim::kMixerChannels, Dim::kHidden}},
      {kMixerZ, "linear_attn.in_proj_z.weight"},
      {kMixerBeta, "linear_attn.in_proj_b.weight"},
      {kMixerAlpha, "linear_attn.in_proj_a.weight"},
      {kMixerConv, "linear_attn.conv1d.weight"},
      {kMixerStepBias, "linear_attn.dt_bias"},
      {kMixerDecay, "linear_attn.A_log"},
      {kMixerNorm, "linear_attn.norm.weight", {Dim::kMixerHeadDim}},
      {kMixerOut, "linear_attn.out_proj.weight"},
  };
}

/// Residual streams that gates mix into the inputs of layers.
TensorRows mixed_stream_rows() {
  return {
      {kAttentionMixNorm, "attn_hyper_connection.hc_norm.weight"},
      {kAttentionMixDown, "attn_hyper_connection.input_mix_weight_down.weight"},
      {kAttentionMixUp, "attn_hyper_connection.input_mix_weight_up.weight"},
      {kAttentionShares, "attn_hyper_connection.block_inject_weight.weight"},
      {kMlpMixNorm, "mlp_hyper_connection.hc_norm.weight"},
      {kMlpMixDown, "mlp_hyper_connection.input_mix_weight_down.weight"},
      {kMlpMixUp, "mlp_hyper_connection.input_mix_weight_up.weight"},
      {kMlpShares, "mlp_hyper_connection.block_inject_weight.weight"},
  };
}

/// The mix of the streams behind the last layer, in place of a final norm.
TensorRows final_mix_rows() {
  return {
      {kFinalMixNorm, "hyper_connection_mixer.hc_norm.weight"},
      {.role = kFinalMixDown,
       .name = "hyper_connection_mixer.input_mix_weight_down.weight",
       .is_run_by_last_layer = true},
      {.role = kFinalMixUp,
       .name = "hyper_connection_mixer.input_mix_weight_up.weight",
       .is_run_by_last_layer = true},
  };
}

TensorRows ngram_rows() {
  return with(when(&LayerConfig::has_ngrams),
              {{.role = kNgramEmbedding,
                .name = "ple.ple_embedding.ngram_embedding.shard_{}.weight",
                .repeat = Dim::kNgramParts},
               {kNgramFactors, "ple.ple_embedding.layer_multipliers"},
               {kNgramSizes, "ple.ple_embedding.ngram_heads_vocab_sizes"},
               {kNgramOffsets, "ple.ple_embedding.ngram_heads_offsets"},
               {kNgramKey, "ple.key_proj.weight"},
               {kNgramValue, "ple.value_proj.weight"},
               {kNgramKeyNorm, "ple.norm_key.weight"},
               {kNgramStreamNorm, "ple.norm_query.weight"},
               {kNgramConvNorm, "ple.norm_conv.weight"},
               {kNgramConv, "ple.conv1d.weight"}});
}

TensorRows block_indexer_rows() {
  return {
      {kIndexerQueryKey, "self_attn.indexer.index_qk_proj.weight"},
      {kIndexerQueryNorm, "self_attn.indexer.q_layernorm.weight"},
      {kIndexerKeyNorm, "self_attn.indexer.k_layernorm.weight"},
  };
}

TensorRows delta_net_rows() {
  return {
      {kMixerIn, "linear_attn.in_proj_qkvz.weight"},
      {kMixerGates, "linear_attn.in_proj_ba.weight"},
      {kMixerConv, "linear_attn.conv1d.weight"},
      {kMixerStepBias, "linear_attn.dt_bias"},
      {kMixerDecay, "linear_attn.A_log"},
      {kMixerNorm, "linear_attn.norm.weight", {Dim::kMixerHeadDim}},
      {kMixerOut, "linear_attn.out_proj.weight"},
  };
}

/// As split_delta_net_rows, with all projections in one tensor.
TensorRows fused_net_rows() {
  return {
      {kMixerAll, "linear_attn.in_proj.weight"},
      {kMixerConv, "linear_attn.conv1d.weight"},
      {kMixerStepBias, "linear_attn.dt_bias"},
      {kMixerDecay, "linear_attn.A_log"},
      {kMixerNorm, "linear_attn.out_norm.weight", {Dim::kMixerHeadDim}},
      {kMixerOut, "linear_attn.out_proj.weight"},
  };
}

void resolve_qwen4(const Json& config, ModelConfig& resolved) {
  resolved.norm_topk_prob = true;
  resolved.has_final_norm = false;
  const std::string gate = optional_string(config, "output_gate_type").value_or("silu");
  if (gate != "silu" && gate != "sigmoid")
    fail("key 'output_gate_type' is '", gate, "', expected silu or sigmoid");
  resolved.recurrent.sigmoid_gate = gate == "sigmoid";
}

void resolve_gates(const Json& config, ModelConfig& resolved) {
  resolved.norm_topk_prob = true;
  const double cap = number_of(config, "moe_router_logit_softcapping").value_or(0.0);
  resolved.moe.logits_softcap = static_cast<float>(std::max(cap, 0.0));
  const Json* gating = find_field(config, "gating");
  resolved.gates_whole_heads = !gating || *gating == true || *gating == "per-head";
}

constexpr FamilyRow kRows[] = {
    {"qwen2", "", "Qwen2Attention", "Qwen2, Qwen2.5, QwQ, DeepSeek-R1 distills on Qwen",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 32, "sliding_window": 4096,
         "max_window_layers": 28})";
       family.text_defaults = R"({"vocab_size": 151936, "hidden_size": 4096,
         "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32,
         "num_key_value_heads": 32, "max_position_embeddings": 32768})";
       family.resolve = [](const Json&, ModelConfig& config) { config.attention_bias = true; };
       family.sliding_window = SlidingWindow::kAfterMaxWindowLayers;
     }},
    // Qwen2 within Qwen2-VL.
    {"qwen2_vl", "qwen2", "Qwen2VLAttention", "text model of Qwen2-VL, QVQ",
     [](Architecture& family) {
       family.model_types = {"qwen2_vl_text"};
       family.defaults.merge(R"({"num_key_value_heads": null, "max_window_layers": 80,
         "rms_norm_eps": 1e-5, "rope_theta": 1e6})");
       family.text_defaults.merge(R"({"vocab_size": 152064, "hidden_size": 8192,
         "intermediate_size": 29568, "num_hidden_layers": 80, "num_attention_heads": 64,
         "num_key_value_heads": 8})");
       // Older checkpoints have these beside the text model's keys.
       family.known_keys = {"vision_config", "vision_start_token_id", "vision_end_token_id",
                            "image_token_id", "video_token_id"};
     }},
    // Qwen2 within Qwen2.5-VL.
    {"qwen2_5_vl", "qwen2_vl", "Qwen2_5_VLAttention", "text model of Qwen2.5-VL",
     [](Architecture& family) { family.model_types = {"qwen2_5_vl_text"}; }},
    // Qwen2 within the thinker of Qwen2.5-Omni.
    {"qwen2_5_omni", "qwen2_vl", "Qwen2_5OmniAttention", "text model of Qwen2.5-Omni's thinker",
     [](Architecture& family) {
       family.model_types = {"qwen2_5_omni_text"};
       family.defaults = R"({"sliding_window": 32768, "max_window_layers": 28, "rope_theta": 1e6,
         "num_key_value_heads": 4, "tie_word_embeddings": true})";
       family.text_defaults.merge(R"({"num_key_value_heads": null, "hidden_size": 3584,
         "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28})");
       family.known_keys = {};
     }},
    {"qwen2_moe", "qwen2", "Qwen2MoeAttention", "Qwen1.5-MoE, Qwen2-57B-A14B",
     [](Architecture& family) {
       family.defaults = R"({"decoder_sparse_step": 1, "num_key_value_heads": 16,
         "sliding_window": 4096, "max_window_layers": 28, "moe_intermediate_size": 1408,
         "shared_expert_intermediate_size": 5632, "num_experts_per_tok": 4, "num_experts": 60,
         "qkv_bias": true})";
       family.text_defaults = R"({})";
       family.switches = {{"qkv_bias", &ModelConfig::attention_bias},
                          {"norm_topk_prob", &ModelConfig::norm_topk_prob}};
       family.resolve = nullptr;
       family.expert_layers = ExpertLayers::kEveryStep;
       family.sliding_window = SlidingWindow::kEvenBelowMaxWindowLayers;
       family.layer_tensors = joined({pre_norm_rows(), attention_rows(), mlp_rows(), expert_rows(),
                                      gated_shared_expert_rows()});
     }},
    {"qwen3", "qwen2", "Qwen3Attention", "Qwen3",
     [](Architecture& family) {
       family.defaults = R"({"head_dim": 128, "num_key_value_heads": 32, "sliding_window": 4096,
         "max_window_layers": 28})";
       family.text_defaults.merge(R"({"num_key_value_heads": null})");
       family.switches = attention_bias_switches();
       family.resolve = nullptr;
       family.layer_tensors =
           joined({pre_norm_rows(), attention_rows(), head_norm_rows(), mlp_rows()});
     }},
    // Qwen3 within Qwen3-VL; no layer has a window.
    {"qwen3_vl", "qwen3", "Qwen3VLTextAttention", "text model of Qwen3-VL",
     [](Architecture& family) {
       family.model_types = {"qwen3_vl_text"};
       family.defaults = R"({"head_dim": 128, "rope_theta": 500000})";
       family.text_defaults = R"({"vocab_size": 151936, "hidden_size": 4096,
         "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32,
         "num_key_value_heads": 32, "max_position_embeddings": 128000})";
       family.sliding_window = SlidingWindow::kNone;
     }},
    {"qwen3_moe", "qwen2_moe", "Qwen3MoeAttention", "Qwen3-30B-A3B, Qwen3-235B-A22B, Qwen3-Coder",
     [](Architecture& family) {
       family.defaults = R"({"decoder_sparse_step": 1, "num_key_value_heads": 4,
         "sliding_window": 4096, "moe_intermediate_size": 768, "num_experts_per_tok": 8,
         "num_experts": 128})";
       family.aliases = {{"num_experts", "num_local_experts"}};
       family.switches =
           attention_bias_switches({{"norm_topk_prob", &ModelConfig::norm_topk_prob}});
       family.known_keys = {"max_window_layers"};
       family.sliding_window = SlidingWindow::kAllWhereUsed;
       family.layer_tensors =
           joined({pre_norm_rows(), attention_rows(), head_norm_rows(), mlp_rows(), expert_rows()});
     }},
    // Qwen3 MoE within the thinker of Qwen3-Omni.
    {"qwen3_omni_moe", "qwen3_moe", "Qwen3OmniMoeThinkerTextAttention",
     "text model of Qwen3-Omni's thinker",
     [](Architecture& family) {
       family.model_types = {"qwen3_omni_moe_text"};
       family.defaults = R"({"decoder_sparse_step": 1, "num_key_value_heads": 4, "rope_theta": 1e6,
         "moe_intermediate_size": 768, "num_experts_per_tok": 8, "num_experts": 128,
         "norm_topk_prob": true})";
       family.text_defaults = R"({"vocab_size": 3584, "hidden_size": 2048,
         "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
         "max_position_embeddings": 32768})";
     }},
    // Qwen3-MoE within Qwen3-VL-MoE. Published checkpoints stack the experts as [in, out], those
    // that transformers 5 saves as [out, in].
    {"qwen3_vl_moe", "qwen3_vl", "Qwen3VLMoeTextAttention",
     "text model of Qwen3-VL-30B-A3B, Qwen3-VL-235B-A22B",
     [](Architecture& family) {
       family.model_types = {"qwen3_vl_moe_text"};
       family.defaults = R"({"decoder_sparse_step": 1, "rope_theta": 500000,
         "moe_intermediate_size": 1408, "num_experts_per_tok": 4, "num_experts": 60})";
       family.text_defaults.merge(R"({"hidden_size": 2048, "intermediate_size": 5632,
         "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16,
         "tie_word_embeddings": true})");
       family.aliases = {{"num_experts", "num_local_experts"}};
       family.known_keys = {"norm_topk_prob"};
       family.resolve = [](const Json&, ModelConfig& config) {
         config.norm_topk_prob = true;
         config.experts_in_out = true;
       };
       family.expert_layers = ExpertLayers::kEveryStep;
       family.layer_tensors =
           joined({pre_norm_rows(), attention_rows(), head_norm_rows(), mlp_rows(),
                   with(when(&ModelConfig::experts_in_out), fused_expert_rows(Layout::kInOut)),
                   with(unless(&ModelConfig::experts_in_out), fused_expert_rows(Layout::kOutIn))});
     }},
    // Gated delta nets, every fourth layer gated attention.
    {"qwen3_next", "", "Qwen3NextAttention", "Qwen3-Next",
     [](Architecture& family) {
       family.defaults = R"({"decoder_sparse_step": 1, "head_dim": 256, "num_key_value_heads": 2,
         "partial_rotary_factor": 0.25, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
         "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
         "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
         "shared_expert_intermediate_size": 512, "norm_topk_prob": true,
         "full_attention_interval": 4})";
       family.aliases = {{"num_experts", "num_local_experts"}};
       family.switches =
           attention_bias_switches({{"norm_topk_prob", &ModelConfig::norm_topk_prob}});
       // hidden_act is also that of the convolution.
       family.fixed = {{"hidden_act", "\"silu\""}};
       family.norm_adds_one = true;
       family.has_query_gate = true;
       family.draft = DraftLayer::kMtp;
       family.draft_scales = "attn";
       family.recurrence = Mixer::kDeltaNet;
       family.expert_layers = ExpertLayers::kEveryStep;
       family.layer_tensors =
           joined({pre_norm_rows(), with(when(&LayerConfig::has_attention), gated_attention_rows()),
                   with(when(&LayerConfig::has_recurrence), delta_net_rows()), mlp_rows(),
                   expert_rows(), gated_shared_expert_rows()});
       family.ignored_prefixes = {"mtp."};
     }},
    // Gated delta nets with a projection for each of their inputs, every fourth layer gated
    // attention.
    {"qwen3_5", "qwen3_next", "Qwen3_5Attention", "Qwen3.5, Qwen3.6, dense",
     [](Architecture& family) {
       family.model_types = {"qwen3_5_text"};
       family.defaults.merge(R"({"decoder_sparse_step": null, "num_experts": null,
         "num_experts_per_tok": null, "moe_intermediate_size": null,
         "shared_expert_intermediate_size": null, "norm_topk_prob": null,
         "num_key_value_heads": 4})");
       family.text_defaults = R"({"vocab_size": 248320, "hidden_size": 4096,
         "intermediate_size": 12288, "num_hidden_layers": 32, "num_attention_heads": 16,
         "max_position_embeddings": 32768})";
       family.aliases = {};
       family.switches = attention_bias_switches();
       family.known_keys = {"attn_output_gate"};
       family.draft_scales = "";
       family.expert_layers = ExpertLayers::kNone;
       family.prefixes = {{"model."}, {"model.language_model."}};
       family.layer_tensors =
           joined({pre_norm_rows(), with(when(&LayerConfig::has_attention), gated_attention_rows()),
                   with(when(&LayerConfig::has_recurrence), split_delta_net_rows()), mlp_rows()});
     }},
    // Qwen3.5 with experts instead of MLPs.
    {"qwen3_5_moe", "qwen3_5", "Qwen3_5MoeAttention", "Qwen3.5, Qwen3.6 with experts",
     [](Architecture& family) {
       family.model_types = {"qwen3_5_moe_text"};
       family.defaults.merge(R"({"num_key_value_heads": 2, "moe_intermediate_size": 512,
         "shared_expert_intermediate_size": 512, "num_experts_per_tok": 8, "num_experts": 256})");
       family.text_defaults.merge(R"({"intermediate_size": null, "hidden_size": 2048,
         "num_hidden_layers": 40})");
       family.aliases = {{"num_experts", "num_local_experts"}};
       family.resolve = [](const Json&, ModelConfig& config) { config.norm_topk_prob = true; };
       family.intermediate_multiple = 1;  // no layer has an MLP
       family.expert_layers = ExpertLayers::kAll;
       family.layer_tensors =
           joined({pre_norm_rows(), with(when(&LayerConfig::has_attention), gated_attention_rows()),
                   with(when(&LayerConfig::has_recurrence), split_delta_net_rows()),
                   fused_expert_rows(Layout::kOutIn), gated_shared_expert_rows()});
     }},
    // Qwen3.5 with experts whose layers read and change parallel residual streams, with n-grams
    // and attention over the blocks of keys that an indexer selects. Source: transformers 5.24,
    // models/qwen4_exp.
    {"qwen4_exp", "qwen3_5_moe", "Qwen4ExpTextAttention", "Qwen4-Exp",
     [](Architecture& family) {
       family.model_types = {"qwen4_exp_text"};
       family.defaults.merge(R"({"num_experts": 512, "num_experts_per_tok": 10,
         "norm_topk_prob": true, "hc_count": 4, "hc_lowrank": 320, "ple_conv_kernel_size": 4,
         "ngram_size": 3, "heads_per_ngram": 8, "ngram_vocab_size_base": 20000000,
         "make_ngram_vocab_size_divisible_by": 128, "seed": 1234, "split_ngram_parts": 512})");
       family.aliases = {{"num_experts", "num_local_experts"},
                         {"index_topk", "indexer_budget"},
                         {"index_n_heads", "indexer_n_heads"},
                         {"index_head_dim", "indexer_head_dim"}};
       add(family.fixed, {{"indexer_kv_heads", "1"}});
       family.known_keys = {"output_gate_type"};
       family.resolve = resolve_qwen4;
       family.draft = DraftLayer::kNone;
       family.indexer = Indexer::kBlocks;
       family.adds_ngrams = true;
       family.model_tensors = joined({model_rows(), final_mix_rows()});
       std::erase_if(family.model_tensors,
                     [](const TensorRow& row) { return row.role == kFinalNorm; });
       family.layer_tensors =
           joined({mixed_stream_rows(), ngram_rows(),
                   with(when(&LayerConfig::has_attention),
                        joined({gated_attention_rows(), block_indexer_rows()})),
                   with(when(&LayerConfig::has_recurrence), split_delta_net_rows()),
                   fused_expert_rows(Layout::kOutIn), gated_shared_expert_rows()});
     }},
    // Qwen 3 MoE whose layers with a window have a rope of their own.
    {"mellum", "qwen3_moe", "MellumAttention", "Mellum 2",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 4, "head_dim": 128, "sliding_window": 1024,
         "max_window_layers": 10000, "num_experts": 64, "num_experts_per_tok": 8,
         "moe_intermediate_size": 896, "norm_topk_prob": true, "first_k_dense_replace": 0,
         "partial_rotary_factor": 1.0,
         "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 500000.0},
         "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}})";
       family.known_keys = {};
       family.expert_layers = ExpertLayers::kTyped;
       family.sliding_window = SlidingWindow::kFromMaxWindowLayers;
       family.ignored_prefixes = {"mtp."};
     }},
    // Qwen 3 MoE with sinks, windows without full RoPE, and a shared expert.
    {"flint", "qwen3_moe", "FlintAttention", "Flint",
     [](Architecture& family) {
       family.defaults = R"({"head_dim": 128, "num_key_value_heads": 4, "sliding_window": 513,
         "moe_intermediate_size": 512, "shared_expert_intermediate_size": 1024, "num_experts": 256,
         "num_experts_per_tok": 6, "norm_topk_prob": true, "decoder_sparse_step": 1,
         "mlp_only_layers": [0, 1]})";
       family.aliases = {};
       family.known_keys = {};
       family.resolve = require_layer_types;
       family.positions = Positions::kRopeInSlidingLayers;
       family.sliding_window = SlidingWindow::kAllOrTyped;
       family.router_score = RouterScore::kSigmoid;
       family.layer_tensors = joined({pre_norm_rows(),
                                      attention_rows(),
                                      head_norm_rows(),
                                      {{kSinks, "self_attn.softmax_offset"}},
                                      mlp_rows(),
                                      expert_rows(),
                                      shared_expert_rows(kSharedExpert)});
     }},
    // Gated delta nets, whose projections are one tensor, among Qwen3's attention, which turns in
    // layers with a window only, with experts in every layer. Source: transformers 5.24,
    // models/lara_mini and conversion_mapping.py.
    {"lara_mini", "qwen3_next", "LaraMiniAttention", "Lara 4 Mini",
     [](Architecture& family) {
       family.defaults = R"({"head_dim": 128, "num_key_value_heads": 4, "sliding_window": 512,
         "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
         "linear_num_key_heads": 8, "linear_num_value_heads": 16, "num_experts": 128,
         "num_experts_per_tok": 4, "moe_intermediate_size": 512,
         "shared_expert_intermediate_size": 512, "norm_topk_prob": true,
         "tie_word_embeddings": true})";
       family.resolve = require_layer_types;
       family.norm_adds_one = false;
       family.has_query_gate = false;
       family.draft = DraftLayer::kNone;
       family.draft_scales = "";
       family.intermediate_multiple = 1;  // no layer has an MLP
       family.positions = Positions::kRopeInSlidingLayers;
       family.sliding_window = SlidingWindow::kTyped;
       family.expert_layers = ExpertLayers::kAll;
       family.ignored_prefixes = {};
       const Condition attends = when(&LayerConfig::has_attention);
       family.layer_tensors = joined(
           {pre_norm_rows(), with(attends, attention_rows()), with(attends, head_norm_rows()),
            with(when(&LayerConfig::has_recurrence), fused_net_rows()),
            fused_expert_rows(Layout::kOutIn), shared_expert_rows(kSharedExpert)});
     }},
    // Heads of Q by layer, a softplus gate of each head or element, sigmoid routing with a
    // soft-cap.
    {"laguna", "", "LagunaAttention", "Laguna XS, Laguna M",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "sliding_window": 512,
         "first_k_dense_replace": 1, "num_experts": 256, "num_experts_per_tok": 8,
         "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
         "partial_rotary_factor": 1.0,
         "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 500000.0,
         "partial_rotary_factor": 0.5}, "sliding_attention": {"rope_type": "default",
         "rope_theta": 10000.0}}})";
       family.switches = attention_bias_switches();
       family.numbers = {{"moe_routed_scaling_factor", &ModelConfig::routed_scaling_factor}};
       family.fixed = {{"moe_apply_router_weight_on_input", "false"}};
       family.known_keys = {"gating", "moe_router_logit_softcapping"};
       family.resolve = resolve_gates;
       family.has_query_gate = true;
       family.has_softplus_gate = true;
       family.has_heads_by_layer = true;
       family.expert_layers = ExpertLayers::kTyped;
       family.sliding_window = SlidingWindow::kTyped;
       family.router_score = RouterScore::kSigmoid;
       family.layer_tensors =
           joined({pre_norm_rows(),
                   attention_rows(),
                   head_norm_rows(),
                   {{kQueryGate, "self_attn.g_proj.weight", {Dim::kQueryGateWidth, Dim::kHidden}}},
                   mlp_rows(),
                   expert_rows(),
                   correction_rows("mlp.experts.e_score_correction_bias"),
                   shared_expert_rows(kSharedExpert)});
     }},
};

}  // namespace

Lineage qwen_lineage() {
  return kRows;
}

}  // namespace kvcal
