#include "family/config_reader.h"
#include "family/tensor_tables.h"

namespace kvcal {

using enum Role;

namespace {

TensorRows norm_rows() {
  const Condition two = when(&ModelConfig::has_parallel_norms);
  const Condition one = unless(&ModelConfig::has_parallel_norms);
  const Condition sequential = unless(&ModelConfig::parallel_residual);
  return {
      {kInputNorm, "ln_attn.weight", {}, {two}},
      {kInputNormBias, "ln_attn.bias", {}, {two}},
      {kMlpNorm, "ln_mlp.weight", {}, {two}},
      {kMlpNormBias, "ln_mlp.bias", {}, {two}},
      {kInputNorm, "input_layernorm.weight", {}, {one}},
      {kInputNormBias, "input_layernorm.bias", {}, {one}},
      {kMlpNorm, "post_attention_layernorm.weight", {}, {sequential}},
      {kMlpNormBias, "post_attention_layernorm.bias", {}, {sequential}},
  };
}

TensorRows attention_rows_of_falcon() {
  const Condition biased = when(&ModelConfig::attention_bias);
  return {
      {kQueryKeyValue, "self_attention.query_key_value.weight"},
      {kQueryKeyValueBias, "self_attention.query_key_value.bias", {}, {biased}},
      {kOutput, "self_attention.dense.weight", {Dim::kHidden, Dim::kQueryWidth}},
      {kOutputBias, "self_attention.dense.bias", {}, {biased}},
  };
}

/// Which norms a layer has. Source: transformers FalconDecoderLayer.
void resolve_norms(const Json& config, ModelConfig& resolved) {
  const bool has_one = optional_int(config, "num_ln_in_parallel_attn").value_or(2) == 1;
  resolved.has_parallel_norms =
      resolved.parallel_residual && resolved.new_decoder_architecture && !has_one;
  resolved.has_mlp_norm = resolved.has_parallel_norms || !resolved.parallel_residual;
}

TensorRows own_head_norm_rows() {
  return with(
      when(&ModelConfig::has_qk_norm),
      {{.role = kQueryNorm, .name = "self_attn.q_layernorm.norms.{}.weight", .repeat = Dim::kHeads},
       {.role = kKeyNorm,
        .name = "self_attn.k_layernorm.norms.{}.weight",
        .repeat = Dim::kKvHeads}});
}

TensorRows persimmon_layer_rows() {
  return joined({
      pre_norm_rows(),
      pre_norm_bias_rows(),
      {{kQueryKeyValue, "self_attn.query_key_value.weight"},
       {kQueryKeyValueBias, "self_attn.query_key_value.bias"},
       {kOutput, "self_attn.dense.weight", {Dim::kHidden, Dim::kQueryWidth}},
       {kOutputBias, "self_attn.dense.bias"}},
      with(when(&ModelConfig::has_qk_norm), {{kQueryNorm, "self_attn.q_layernorm.weight"},
                                             {kQueryNormBias, "self_attn.q_layernorm.bias"},
                                             {kKeyNorm, "self_attn.k_layernorm.weight"},
                                             {kKeyNormBias, "self_attn.k_layernorm.bias"}}),
      plain_mlp_rows("mlp.dense_h_to_4h.weight", "mlp.dense_h_to_4h.bias",
                     "mlp.dense_4h_to_h.weight", "mlp.dense_4h_to_h.bias"),
  });
}

/// Experts below each other in one matrix.
TensorRow expert_matrix(Role role, std::string_view name, Layout layout, std::string_view split) {
  return {.role = role,
          .name = name,
          .shape = {Dim::kExpertIntermediate, Dim::kHidden},
          .conditions = {when(&LayerConfig::is_moe)},
          .layout = layout,
          .repeat = Dim::kExperts,
          .split = {{role, split}},
          .is_flat = true};
}

TensorRows layer_rows() {
  return {
      {kInputNorm, "norm_attn_norm.norm_1.weight"},
      {kMlpNorm, "norm_attn_norm.norm_2.weight"},
      {kQueryKeyValue, "norm_attn_norm.attn.Wqkv.weight"},
      {kOutput, "norm_attn_norm.attn.out_proj.weight"},
      {kRouter, "ffn.router.layer.weight"},
      expert_matrix(kExpertGate, "ffn.experts.mlp.w1", Layout::kOutIn,
                    "ffn.experts.mlp.{}.w1.weight"),
      expert_matrix(kExpertUp, "ffn.experts.mlp.v1", Layout::kOutIn,
                    "ffn.experts.mlp.{}.v1.weight"),
      expert_matrix(kExpertDown, "ffn.experts.mlp.w2", Layout::kInOut,
                    "ffn.experts.mlp.{}.w2.weight"),
  };
}

TensorRows attention_rows_of_bloom() {
  return {
      {kQueryKeyValue, "self_attention.query_key_value.weight"},
      {kQueryKeyValueBias, "self_attention.query_key_value.bias"},
      {kOutput, "self_attention.dense.weight", {Dim::kHidden, Dim::kQueryWidth}},
      {kOutputBias, "self_attention.dense.bias"},
  };
}

TensorRows mpt_layer_rows() {
  return {
      {kInputNorm, "norm_1.weight"},
      {kQueryKeyValue, "attn.Wqkv.weight"},
      {kOutput, "attn.out_proj.weight", {Dim::kHidden, Dim::kQueryWidth}},
      {kMlpNorm, "norm_2.weight"},
      {kUp, "ffn.up_proj.weight"},
      {kDown, "ffn.down_proj.weight"},
  };
}

/// transformers runs a LayerNorm whatever the name; published code knows other norms, too.
void check_norm_type(const Json& config, ModelConfig&) {
  const std::string type = optional_string(config, "norm_type").value_or("low_precision_layernorm");
  if (type != "layernorm" && type != "low_precision_layernorm")
    fail("key 'norm_type' is '", type,
         "', which is not supported; supported are layernorm and low_precision_layernorm");
}

/// The experts' weights are divided by their norm of this order.
void resolve_experts(const Json& config, ModelConfig& resolved) {
  const Json* feed_forward = find_field(config, "ffn_config");
  const Json none = Json::object();
  const Json& nested = feed_forward && feed_forward->is_object() ? *feed_forward : none;
  const auto order = nested.find("moe_normalize_expert_weights");
  resolved.norm_topk_prob = order == nested.end() || !order->is_null();
  if (const auto number = number_of(nested, "moe_normalize_expert_weights"))
    resolved.topk_norm_order = static_cast<float>(*number);
  const auto function = nested.find("ffn_act_fn");
  if (function != nested.end() && function->is_object() &&
      function->value("name", "silu") != "silu")
    fail("key 'ffn_config.ffn_act_fn' is ", function->dump(),
         ", which is not supported; expected silu");
}

constexpr FamilyRow kRows[] = {
    {"falcon", "", "FalconAttention", "Falcon 7B, 11B, 40B, 180B",
     [](Architecture& family) {
       family.defaults = R"({"max_position_embeddings": 2048, "layer_norm_epsilon": 1e-5,
         "multi_query": true, "parallel_attn": true, "activation": "gelu",
         "tie_word_embeddings": true})";
       family.aliases = {{"num_hidden_layers", "n_layer"},
                         {"num_attention_heads", "n_head"},
                         {"num_key_value_heads", "num_kv_heads"},
                         {"intermediate_size", "ffn_hidden_size"},
                         {"hidden_act", "activation"},
                         {"rms_norm_eps", "layer_norm_epsilon"}};
       family.switches = {{"bias", &ModelConfig::attention_bias},
                          {"bias", &ModelConfig::mlp_bias},
                          {"multi_query", &ModelConfig::multi_query},
                          {"new_decoder_architecture", &ModelConfig::new_decoder_architecture},
                          {"parallel_attn", &ModelConfig::parallel_residual}};
       family.fixed = {{"alibi", "false"}};
       family.known_keys = {"num_ln_in_parallel_attn", "apply_residual_connection_post_layernorm"};
       family.resolve = resolve_norms;
       family.centers_norm = true;
       family.intermediate_multiple = 4;
       family.fused_qkv = FusedQkv::kByGroup;
       family.prefixes = {{"transformer."}};
       family.layers_name = "h.";
       family.attention_module = "self_attention";
       family.model_tensors = joined(
           {model_rows("word_embeddings.weight", "ln_f.weight"), {{kFinalNormBias, "ln_f.bias"}}});
       family.layer_tensors =
           joined({norm_rows(), attention_rows_of_falcon(),
                   plain_mlp_rows("mlp.dense_h_to_4h.weight", "mlp.dense_h_to_4h.bias",
                                  "mlp.dense_4h_to_h.weight", "mlp.dense_4h_to_h.bias")});
     }},
    {"stablelm", "", "StableLmAttention", "StableLM 2, StableLM Zephyr",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 32, "layer_norm_eps": 1e-5,
         "partial_rotary_factor": 0.25})";
       family.aliases = {{"rms_norm_eps", "layer_norm_eps"}};
       family.switches = {{"use_qkv_bias", &ModelConfig::attention_bias},
                          {"qk_layernorm", &ModelConfig::has_qk_norm},
                          {"use_parallel_residual", &ModelConfig::parallel_residual}};
       family.resolve = [](const Json&, ModelConfig& config) {
         config.has_mlp_norm = !config.parallel_residual;
       };
       family.centers_norm = true;
       family.qk_norm = QkNorm::kPerHeadOwnWeight;
       family.model_tensors = joined({model_rows(), {{kFinalNormBias, "norm.bias"}}});
       family.layer_tensors = joined({pre_norm_rows(), pre_norm_bias_rows(), attention_rows(),
                                      own_head_norm_rows(), mlp_rows()});
     }},
    // LayerNorm with bias, also of the heads of Q and K. Source: transformers 5.23,
    // models/persimmon.
    {"persimmon", "stablelm", "PersimmonAttention", "Persimmon 8B",
     [](Architecture& family) {
       family.defaults = R"({"hidden_act": "relu2", "layer_norm_eps": 1e-5, "qk_layernorm": true,
         "partial_rotary_factor": 0.5, "max_position_embeddings": 16384})";
       family.switches = {{"qk_layernorm", &ModelConfig::has_qk_norm}};
       // In the flat config.json of Fuyu.
       family.known_keys = {"image_size", "patch_size", "num_channels"};
       family.resolve = [](const Json&, ModelConfig& config) { config.mlp_bias = true; };
       family.qk_norm = QkNorm::kPerHead;
       family.fused_qkv = FusedQkv::kByGroup;
       family.model_tensors = joined({model_rows("embed_tokens.weight", "final_layernorm.weight"),
                                      {{kFinalNormBias, "final_layernorm.bias"}}});
       family.layer_tensors = persimmon_layer_rows();
     }},
    {"starcoder2", "", "Starcoder2Attention", "StarCoder2",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 2, "hidden_act": "gelu_pytorch_tanh",
         "norm_epsilon": 1e-5, "use_bias": true, "tie_word_embeddings": true})";
       family.aliases = {{"rms_norm_eps", "norm_epsilon"}};
       family.switches = {{"use_bias", &ModelConfig::attention_bias},
                          {"use_bias", &ModelConfig::output_bias},
                          {"use_bias", &ModelConfig::mlp_bias}};
       family.known_keys = {"mlp_type", "norm_type"};
       family.centers_norm = true;
       family.sliding_window = SlidingWindow::kAllLayers;
       family.model_tensors = joined({model_rows(), {{kFinalNormBias, "norm.bias"}}});
       family.layer_tensors = joined({pre_norm_rows(), pre_norm_bias_rows(), attention_rows(),
                                      plain_mlp_rows("mlp.c_fc.weight", "mlp.c_fc.bias",
                                                     "mlp.c_proj.weight", "mlp.c_proj.bias")});
     }},
    // LayerNorm of 1 + w, squared ReLU without a gate.
    {"nemotron", "", "NemotronAttention", "Nemotron 4, Minitron",
     [](Architecture& family) {
       family.defaults = R"({"hidden_act": "relu2", "norm_eps": 1e-5,
         "partial_rotary_factor": 0.5})";
       family.aliases = {{"rms_norm_eps", "norm_eps"}};
       family.switches = bias_switches();
       family.centers_norm = true;
       family.norm_adds_one = true;
       family.model_tensors = joined({model_rows(), {{kFinalNormBias, "norm.bias"}}});
       family.layer_tensors =
           joined({pre_norm_rows(), pre_norm_bias_rows(), attention_rows(), plain_mlp_rows()});
     }},
    {"jais2", "nemotron", "Jais2Attention", "Jais 2",
     [](Architecture& family) {
       family.defaults = R"({"hidden_act": "relu2", "layer_norm_eps": 1e-5, "attention_bias": true,
         "mlp_bias": true, "max_position_embeddings": 8192})";
       family.aliases = {{"rms_norm_eps", "layer_norm_eps"}};
       family.norm_adds_one = false;
     }},
    // LayerNorms without bias, fused and clipped Q, K and V, experts below each other. theta is
    // that of attn_config, as in vLLM; transformers 5.23 reads only rope_parameters, which win
    // here, too.
    {"dbrx", "", "DbrxAttention", "DBRX",
     [](Architecture& family) {
       family.defaults = R"({"rms_norm_eps": 1e-5, "num_key_value_heads": 1, "num_experts": 4,
         "num_experts_per_tok": 1, "moe_intermediate_size": 3584, "intermediate_size": 3584,
         "max_position_embeddings": 2048})";
       family.aliases = {{"hidden_size", "d_model"},
                         {"num_attention_heads", "n_heads"},
                         {"num_hidden_layers", "n_layers"},
                         {"max_position_embeddings", "max_seq_len"},
                         {"num_key_value_heads", "attn_config.kv_n_heads"},
                         {"clip_qkv", "attn_config.clip_qkv"},
                         {"rope_theta", "attn_config.rope_theta"},
                         {"num_experts", "ffn_config.moe_num_experts"},
                         {"num_experts_per_tok", "ffn_config.moe_top_k"},
                         {"moe_intermediate_size", "ffn_config.ffn_hidden_size"},
                         {"intermediate_size", "ffn_config.ffn_hidden_size"}};
       family.numbers = {{"clip_qkv", &ModelConfig::qkv_limit}};
       family.fixed = {{"tie_word_embeddings", "false"}};
       family.known_keys = {"emb_pdrop",
                            "attn_config.attn_pdrop",
                            "ffn_config.hidden_size",
                            "ffn_config.ffn_act_fn",
                            "ffn_config.moe_normalize_expert_weights",
                            "ffn_config.moe_jitter_eps",
                            "ffn_config.moe_loss_weight"};
       family.resolve = resolve_experts;
       family.centers_norm = true;
       family.expert_layers = ExpertLayers::kAll;
       family.prefixes = {{"transformer."}};
       family.layers_name = "blocks.";
       family.attention_module = "norm_attn_norm.attn";
       family.model_tensors = model_rows("wte.weight", "norm_f.weight");
       family.layer_tensors = layer_rows();
     }},
    // ALiBi, a norm of the embedding, biases everywhere.
    {"bloom", "", "BloomAttention", "BLOOM, BLOOMZ",
     [](Architecture& family) {
       family.defaults = R"({"hidden_act": "gelu_pytorch_tanh", "layer_norm_epsilon": 1e-5,
         "max_position_embeddings": 2048, "tie_word_embeddings": true})";
       family.aliases = {{"hidden_size", "n_embed"},
                         {"num_hidden_layers", "n_layer"},
                         {"num_attention_heads", "n_head"},
                         {"max_position_embeddings", "seq_length"},
                         {"rms_norm_eps", "layer_norm_epsilon"}};
       family.switches = {{"apply_residual_connection_post_layernorm", &ModelConfig::norms_stream}};
       // With true, transformers leaves biases out where pretraining_tp is more than 1.
       family.fixed = {{"slow_but_exact", "false"}};
       family.known_keys = {"pretraining_tp",        "n_inner",      "bias_dropout_fusion",
                            "masked_softmax_fusion", "offset_alibi", "skip_bias_add",
                            "skip_bias_add_qkv",     "unk_token_id"};
       family.resolve = [](const Json&, ModelConfig& config) { config.mlp_bias = true; };
       family.centers_norm = true;
       family.intermediate_multiple = 4;
       family.positions = Positions::kAlibi;
       family.fused_qkv = FusedQkv::kByGroup;
       family.prefixes = {{"transformer."}, {""}};
       family.layers_name = "h.";
       family.attention_module = "self_attention";
       family.model_tensors = joined({model_rows("word_embeddings.weight", "ln_f.weight"),
                                      {{kEmbeddingNorm, "word_embeddings_layernorm.weight"},
                                       {kEmbeddingNormBias, "word_embeddings_layernorm.bias"},
                                       {kFinalNormBias, "ln_f.bias"}}});
       family.layer_tensors =
           joined({pre_norm_rows(), pre_norm_bias_rows(), attention_rows_of_bloom(),
                   plain_mlp_rows("mlp.dense_h_to_4h.weight", "mlp.dense_h_to_4h.bias",
                                  "mlp.dense_4h_to_h.weight", "mlp.dense_4h_to_h.bias")});
     }},
    // ALiBi without biases. What transformers 5.24 leaves unread of the published code's keys has
    // one value.
    {"mpt", "", "MptAttention", "MPT 7B, 30B",
     [](Architecture& family) {
       family.defaults = R"({"hidden_act": "gelu", "layer_norm_epsilon": 1e-5,
         "max_seq_len": 2048, "tie_word_embeddings": true})";
       family.aliases = {{"hidden_size", "d_model"},
                         {"num_attention_heads", "n_heads"},
                         {"num_hidden_layers", "n_layers"},
                         {"max_position_embeddings", "max_seq_len"},
                         {"rms_norm_eps", "layer_norm_epsilon"},
                         {"clip_qkv", "attn_config.clip_qkv"},
                         {"softmax_scale", "attn_config.softmax_scale"}};
       family.numbers = {{"clip_qkv", &ModelConfig::qkv_limit},
                         {"softmax_scale", &ModelConfig::softmax_scale}};
       family.fixed = {{"attn_config.alibi", "true"},
                       {"attn_config.alibi_bias_max", "8"},
                       {"attn_config.attn_type", "\"multihead_attention\""},
                       {"attn_config.prefix_lm", "false"},
                       {"attn_config.qk_ln", "false"},
                       {"expansion_ratio", "4"},
                       {"logit_scale", "null"},
                       {"no_bias", "true"}};
       family.known_keys = {"attn_config.attn_impl",
                            "attn_config.attn_pdrop",
                            "attn_config.attn_uses_sequence_id",
                            "emb_pdrop",
                            "embedding_fraction",
                            "init_config",
                            "init_device",
                            "learned_pos_emb",
                            "norm_type",
                            "resid_pdrop",
                            "tokenizer_name",
                            "verbose"};
       family.resolve = check_norm_type;
       family.centers_norm = true;
       family.intermediate_multiple = 4;
       family.positions = Positions::kAlibi;
       family.prefixes = {{"transformer."}};
       family.layers_name = "blocks.";
       family.attention_module = "attn";
       family.model_tensors = model_rows("wte.weight", "norm_f.weight");
       family.layer_tensors = mpt_layer_rows();
     }},
};

}  // namespace

Lineage layernorm_lineage() {
  return kRows;
}

}  // namespace kvcal
