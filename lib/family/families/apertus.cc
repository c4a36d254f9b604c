#include "family/tensor_tables.h"

namespace kvcal {

// xIELU, whose numbers each layer holds, without a gate. Source: transformers 5.23, models/apertus.
Architecture apertus_architecture() {
  return {
      .name = "apertus",
      .model_types = {"apertus"},
      .attention_class = "ApertusAttention",
      .description = "Apertus 8B, 70B",
      .defaults = R"({"hidden_act": "xielu", "rms_norm_eps": 1e-5, "rope_theta": 12000000.0,
                      "max_position_embeddings": 65536,
                      "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
                                       "original_max_position_embeddings": 8192,
                                       "low_freq_factor": 1.0, "high_freq_factor": 4.0}})",
      .switches = attention_bias_switches(),
      .fixed = {{"hidden_act", "\"xielu\""}},
      .known_keys = {"post_norm", "qk_norm"},
      .model_tensors = model_rows(),
      .layer_tensors =
          joined({attention_rows(),
                  head_norm_rows(),
                  {{Role::kInputNorm, "attention_layernorm.weight", {Dim::kHidden}},
                   {Role::kMlpNorm, "feedforward_layernorm.weight", {Dim::kHidden}},
                   {Role::kUp, "mlp.up_proj.weight", {Dim::kIntermediate, Dim::kHidden}},
                   {Role::kDown, "mlp.down_proj.weight", {Dim::kHidden, Dim::kIntermediate}},
                   {Role::kActivationAlphaP, "mlp.act_fn.alpha_p", {Dim::kOne}},
                   {Role::kActivationAlphaN, "mlp.act_fn.alpha_n", {Dim::kOne}},
                   {Role::kActivationBeta, "mlp.act_fn.beta", {}},
                   {Role::kActivationEps, "mlp.act_fn.eps", {}}}}),
  };
}

}  // namespace kvcal
