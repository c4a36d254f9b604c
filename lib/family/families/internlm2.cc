#include "family/tensor_tables.h"

namespace kvcal {

namespace {

TensorRows layer_rows() {
  const Condition biased = when(&ModelConfig::attention_bias);
  return {
      {Role::kInputNorm, "attention_norm.weight", {Dim::kHidden}},
      {Role::kQueryKeyValue, "attention.wqkv.weight", {Dim::kQkvWidth, Dim::kHidden}},
      {Role::kQueryKeyValueBias, "attention.wqkv.bias", {Dim::kQkvWidth}, {biased}},
      {Role::kOutput, "attention.wo.weight", {Dim::kHidden, Dim::kQueryWidth}},
      {Role::kOutputBias, "attention.wo.bias", {Dim::kHidden}, {biased}},
      {Role::kMlpNorm, "ffn_norm.weight", {Dim::kHidden}},
      {Role::kGate, "feed_forward.w1.weight", {Dim::kIntermediate, Dim::kHidden}},
      {Role::kUp, "feed_forward.w3.weight", {Dim::kIntermediate, Dim::kHidden}},
      {Role::kDown, "feed_forward.w2.weight", {Dim::kHidden, Dim::kIntermediate}},
  };
}

}  // namespace

// Llama with one matrix for Q, K and V. Source: modeling_internlm2.py of the published checkpoints.
Architecture internlm2_architecture() {
  return {
      .name = "internlm2",
      .model_types = {"internlm2"},
      .attention_class = "InternLM2Attention",
      .description = "InternLM 2, 2.5",
      .defaults = R"({"bias": true})",
      .switches = {{"bias", &ModelConfig::attention_bias}},
      .fused_qkv = FusedQkv::kByGroup,
      .attention_module = "attention",
      .model_tensors = model_rows_named("tok_embeddings.weight", "norm.weight", "output.weight"),
      .layer_tensors = layer_rows(),
  };
}

}  // namespace kvcal
