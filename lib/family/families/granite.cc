#include "family/tensor_tables.h"

namespace kvcal {

using enum Role;

namespace {

/// Multipliers of embedding, attention scores, residual, and the divisor of the logits.
std::vector<NumberKey> granite_multipliers() {
  return {
      {"embedding_multiplier", &ModelConfig::embedding_multiplier},
      {"attention_multiplier", &ModelConfig::softmax_scale},
      {"residual_multiplier", &ModelConfig::residual_multiplier},
      {"logits_scaling", &ModelConfig::logits_multiplier, NumberKey::Reading::kInverse},
  };
}

/// Granite's expert for all tokens, gate and up in one tensor.
TensorRows stacked_shared_rows() {
  const std::vector<Condition> shared{when(&LayerConfig::is_moe),
                                      when(&ModelConfig::has_shared_expert)};
  return {
      {kSharedGateUp, "shared_mlp.input_linear.weight", {}, shared},
      {kSharedDown, "shared_mlp.output_linear.weight", {}, shared},
  };
}

/// Granite's experts in the names of transformers 5, which saves this family as it holds it.
constexpr StackedNames kExpertsOfGraniteSwa{"block_sparse_moe.router.weight",
                                            {},
                                            "block_sparse_moe.experts.gate_up_proj",
                                            "block_sparse_moe.experts.down_proj",
                                            kGraniteExperts.split};

TensorRows shared_mlp_rows() {
  const Condition moe = when(&LayerConfig::is_moe), dense = unless(&LayerConfig::is_moe);
  return {
      {kSharedGateUp, "shared_mlp.input_linear.weight", {}, {moe}},
      {kSharedDown, "shared_mlp.output_linear.weight", {}, {moe}},
      {kGateUp, "shared_mlp.input_linear.weight", {}, {dense}},
      {kDown, "shared_mlp.output_linear.weight", {}, {dense}},
  };
}

/// Without experts the shared MLP is the only one; positions are optional.
void resolve_layers(const Json& json, ModelConfig& config) {
  config.norm_topk_prob = true;
  if (config.moe.num_experts == 0) config.intermediate_size = config.moe.shared_intermediate_size;
  if (optional_string(json, "position_embedding_type").value_or("") != "rope")
    for (LayerConfig& layer : config.layers) layer.rope = kNoRope;
}

constexpr FamilyRow kRows[] = {
    // Llama with four multipliers.
    {"granite", "", "GraniteAttention", "Granite 3 and later, dense",
     [](Architecture& family) {
       family.defaults = R"({"attention_multiplier": 1.0})";
       family.switches = bias_switches();
       family.numbers = granite_multipliers();
     }},
    // Granite within Granite 4 Vision.
    {"granite4_vision", "granite", "Granite4VisionTextAttention", "text model of Granite 4 Vision",
     [](Architecture& family) { family.model_types = {"granite4_vision_text"}; }},
    // Granite within Granite Docling.
    {"granite_docling", "granite", "GraniteDoclingTextAttention", "text model of Granite Docling",
     [](Architecture& family) {
       family.model_types = {"granite_docling_text"};
       family.defaults = R"({"attention_multiplier": 0.015625, "embedding_multiplier": 12.0,
         "logits_scaling": 4.0, "residual_multiplier": 0.263, "rms_norm_eps": 1e-5,
         "tie_word_embeddings": true})";
       family.text_defaults = R"({"vocab_size": 133800, "hidden_size": 1024,
         "intermediate_size": 2048, "num_hidden_layers": 28, "num_attention_heads": 16,
         "num_key_value_heads": 4, "max_position_embeddings": 32768})";
     }},
    // Granite with sinks, windows and a rope for each layer.
    {"granite_swa", "granite", "GraniteSWAAttention", "Granite with windows",
     [](Architecture& family) {
       family.defaults.merge(R"({"rms_norm_eps": 1e-5, "sliding_window": 128,
         "sliding_window_pattern": 4, "num_key_value_heads": 4, "tie_word_embeddings": true})");
       family.positions = Positions::kRopeByLayer;
       family.sliding_window = SlidingWindow::kPatternFromFirst;
       family.layer_tensors =
           joined({pre_norm_rows(), attention_rows(), {{kSinks, "self_attn.sinks"}}, mlp_rows()});
     }},
    {"granitemoe", "granite", "GraniteMoeAttention", "Granite 3 MoE",
     [](Architecture& family) {
       family.defaults.merge(R"({"num_local_experts": 8, "num_experts_per_tok": 2})");
       family.aliases = {{"num_experts", "num_local_experts"}};
       family.switches = attention_bias_switches();
       family.resolve = [](const Json&, ModelConfig& config) { config.norm_topk_prob = true; };
       family.expert_layers = ExpertLayers::kAll;
       family.layer_tensors = joined({pre_norm_rows(), attention_rows(), stacked_expert_rows()});
     }},
    // Granite MoE with an expert for all tokens.
    {"granitemoeshared", "granitemoe", "GraniteMoeSharedAttention",
     "Granite 3.1 MoE with shared experts",
     [](Architecture& family) {
       family.defaults.merge(R"({"shared_intermediate_size": 0})");
       add(family.aliases, {{"shared_expert_intermediate_size", "shared_intermediate_size"}});
       family.resolve = [](const Json&, ModelConfig& config) { config.norm_topk_prob = true; };
       family.layer_tensors = joined(
           {pre_norm_rows(), attention_rows(), stacked_expert_rows(), stacked_shared_rows()});
     }},
    // Granite MoE with sinks, windows and a rope for each layer.
    {"granitemoe_swa", "granitemoeshared", "GraniteMoeSWAAttention", "Granite MoE with windows",
     [](Architecture& family) {
       family.defaults = R"({"attention_multiplier": 1.0, "rms_norm_eps": 1e-6,
         "sliding_window": 128, "sliding_window_pattern": 4, "num_local_experts": 8,
         "num_experts_per_tok": 2, "shared_intermediate_size": 0})";
       family.resolve = [](const Json&, ModelConfig& config) { config.norm_topk_prob = true; };
       family.positions = Positions::kRopeByLayer;
       family.sliding_window = SlidingWindow::kPatternFromFirst;
       family.layer_tensors = joined({pre_norm_rows(),
                                      attention_rows(),
                                      {{kSinks, "self_attn.sinks"}},
                                      stacked_expert_rows(kExpertsOfGraniteSwa),
                                      stacked_shared_rows()});
     }},
    // Granite whose layers are Mamba 2 or attention.
    {"granitemoehybrid", "granitemoe", "GraniteMoeHybridAttention", "Granite 4",
     [](Architecture& family) {
       family.defaults.merge(R"({"shared_intermediate_size": 1024, "mamba_n_heads": 128,
         "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2,
         "mamba_conv_bias": true})");
       add(family.aliases, {{"mamba_num_heads", "mamba_n_heads"},
                            {"mamba_head_dim", "mamba_d_head"},
                            {"shared_expert_intermediate_size", "shared_intermediate_size"}});
       add(family.switches, {{"mamba_proj_bias", &ModelConfig::mixer_bias},
                             {"mamba_proj_bias", &ModelConfig::mixer_output_bias},
                             {"mamba_conv_bias", &ModelConfig::has_conv_bias}});
       family.fixed = {{"hidden_act", "\"silu\""}};  // also of the convolution
       family.known_keys = {"position_embedding_type", "normalization_function"};
       family.resolve = resolve_layers;
       family.recurrence = Mixer::kMamba2;
       family.layer_tensors =
           joined({pre_norm_rows(), with(when(&LayerConfig::has_attention), attention_rows()),
                   mamba2_rows(kMamba), stacked_expert_rows(), shared_mlp_rows()});
     }},
    // Granite's multipliers, with norms before and behind.
    {"hyperclovax", "granite", "HyperCLOVAXAttention", "HyperCLOVA X SEED",
     [](Architecture& family) {
       family.defaults = R"({"use_post_norm": true})";
       add(family.switches, {{"use_post_norm", &ModelConfig::has_output_norms}});
       family.numbers = {{"embedding_multiplier", &ModelConfig::embedding_multiplier},
                         {"attention_multiplier", &ModelConfig::softmax_scale},
                         {"residual_multiplier", &ModelConfig::residual_multiplier},
                         {"logits_scaling", &ModelConfig::logits_multiplier}};
       family.layer_tensors = joined(
           {pre_norm_rows(), attention_rows(), mlp_rows(),
            with(when(&ModelConfig::has_output_norms), {{kAttentionOutputNorm, "post_norm1.weight"},
                                                        {kMlpOutputNorm, "post_norm2.weight"}})});
     }},
};

}  // namespace

Lineage granite_lineage() {
  return kRows;
}

}  // namespace kvcal
