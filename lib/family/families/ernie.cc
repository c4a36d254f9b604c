#include "family/config_reader.h"
#include "family/tensor_tables.h"

namespace kvcal {

using enum Role;

namespace {

/// Layers with experts: every moe_layer_interval-th from moe_layer_start_index to
/// moe_layer_end_index, where -1 means the last.
void resolve_ernie_layers(const Json& config, ModelConfig& resolved) {
  resolved.norm_topk_prob = true;
  // The least sum that divides the chosen experts' weights: published, one that no sum falls below.
  const double least = optional_number(config, "moe_norm_min").value_or(0.0);
  if (!(least >= 0.0 && least <= 1e-9))
    fail("key 'moe_norm_min' is ", least, ", which is not supported; expected 0 to 1e-9");
  const int64_t interval = optional_int(config, "moe_layer_interval").value_or(1);
  if (interval < 1) fail("key 'moe_layer_interval' is ", interval, ", expected 1 or more");
  const int64_t first = optional_int(config, "moe_layer_start_index").value_or(1);
  const int64_t last = optional_int(config, "moe_layer_end_index").value_or(-1);
  for (int64_t i = 0; i < std::ssize(resolved.layers); ++i)
    resolved.layers[static_cast<size_t>(i)].is_moe =
        (i + 1) % interval == 0 && i >= first && (last == -1 || i <= last);
}

constexpr FamilyRow kRows[] = {
    {"ernie4_5", "", "Ernie4_5Attention", "ERNIE 4.5 0.3B",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1e-5,
         "rope_theta": 500000, "tie_word_embeddings": true})";
       family.switches = {{"use_bias", &ModelConfig::attention_bias},
                          {"use_bias", &ModelConfig::output_bias},
                          {"use_bias", &ModelConfig::mlp_bias}};
       family.rope_is_interleaved = true;
     }},
    // ERNIE 4.5 within PaddleOCR-VL, whose RoPE turns halves.
    {"paddleocr_vl", "ernie4_5", "PaddleOCRAttention", "text model of PaddleOCR-VL",
     [](Architecture& family) {
       family.model_types = {"paddleocr_vl_text"};
       family.text_defaults = R"({"vocab_size": 103424, "hidden_size": 1024,
         "intermediate_size": 3072, "num_hidden_layers": 18, "num_attention_heads": 16,
         "max_position_embeddings": 131072})";
       family.known_keys = {"vision_config"};
       family.rope_is_interleaved = false;
     }},
    // Softmax routing with a correction; experts in every n-th layer of a range.
    {"ernie4_5_moe", "ernie4_5", "Ernie4_5_MoeAttention", "ERNIE 4.5 21B-A3B, 300B-A47B",
     [](Architecture& family) {
       family.defaults.merge(R"({"head_dim": null, "num_key_value_heads": 4,
         "moe_intermediate_size": 1536, "moe_k": 6, "moe_num_experts": 64,
         "moe_num_shared_experts": 2})");
       family.aliases = {{"num_experts", "moe_num_experts"},
                         {"num_experts_per_tok", "moe_k"},
                         {"n_shared_experts", "moe_num_shared_experts"}};
       add(family.switches, {{"use_bias", &ModelConfig::lm_head_bias}});
       family.known_keys = {"moe_layer_interval", "moe_layer_start_index", "moe_layer_end_index",
                            "moe_norm_min",       "moe_use_aux_free",      "moe_capacity"};
       family.resolve = resolve_ernie_layers;
       family.expert_layers = ExpertLayers::kAll;
       family.layer_tensors = joined({pre_norm_rows(),
                                      attention_rows(),
                                      mlp_rows(),
                                      expert_rows(),
                                      {{kRouterCorrection,
                                        "mlp.moe_statics.e_score_correction_bias",
                                        {Dim::kOne, Dim::kExperts},
                                        {when(&LayerConfig::is_moe)}}},
                                      shared_expert_rows(),
                                      shared_bias_rows({"mlp.shared_experts.gate_proj.bias",
                                                        "mlp.shared_experts.up_proj.bias",
                                                        "mlp.shared_experts.down_proj.bias"})});
       add(family.model_tensors,
           {{kLmHeadBias, "lm_head.bias", {}, {when(&ModelConfig::lm_head_bias)}}});
       family.ignored_prefixes = {"model.mtp_"};
     }},
};

}  // namespace

Lineage ernie_lineage() {
  return kRows;
}

}  // namespace kvcal
