#include "family/tensor_tables.h"

namespace kvcal {

namespace {

TensorRows exaone_layer_rows() {
  return {
      {Role::kInputNorm, "ln_1.weight", {Dim::kHidden}},
      {Role::kQuery, "attn.attention.q_proj.weight", {Dim::kQueryWidth, Dim::kHidden}},
      {Role::kKey, "attn.attention.k_proj.weight", {Dim::kKvWidth, Dim::kHidden}},
      {Role::kValue, "attn.attention.v_proj.weight", {Dim::kKvWidth, Dim::kHidden}},
      {Role::kOutput, "attn.attention.out_proj.weight", {Dim::kHidden, Dim::kQueryWidth}},
      {Role::kMlpNorm, "ln_2.weight", {Dim::kHidden}},
      {Role::kGate, "mlp.c_fc_0.weight", {Dim::kIntermediate, Dim::kHidden}},
      {Role::kUp, "mlp.c_fc_1.weight", {Dim::kIntermediate, Dim::kHidden}},
      {Role::kDown, "mlp.c_proj.weight", {Dim::kHidden, Dim::kIntermediate}},
  };
}

}  // namespace

// Llama in GPT-2's names. Source: modeling_exaone.py of the published EXAONE 3 checkpoints.
Architecture exaone_architecture() {
  return {
      .name = "exaone",
      .model_types = {"exaone"},
      .attention_class = "ExaoneAttention",
      .description = "EXAONE 3, EXAONE 3.5, EXAONE Deep",
      .defaults = R"({"layer_norm_epsilon": 1e-5, "max_position_embeddings": 2048})",
      .aliases = {{"num_hidden_layers", "num_layers"},
                  {"hidden_act", "activation_function"},
                  {"rms_norm_eps", "layer_norm_epsilon"}},
      .prefixes = {{"transformer."}},
      .layers_name = "h.",
      .attention_module = "attn.attention",
      .model_tensors = model_rows_named("wte.weight", "ln_f.weight", "lm_head.weight"),
      .layer_tensors = exaone_layer_rows(),
      .ignored_suffixes = {".rotary.inv_freq"},
  };
}

}  // namespace kvcal
