#include "model/families/families.h"

namespace kvcal {

std::vector<TensorRow> llama_model_tensors() {
  return {
      {Role::kEmbedding, "model.embed_tokens.weight", {Dim::kVocab, Dim::kHidden}},
      {Role::kFinalNorm, "model.norm.weight", {Dim::kHidden}},
      {Role::kLmHead, "lm_head.weight", {Dim::kVocab, Dim::kHidden}, Presence::kUntied},
  };
}

std::vector<TensorRow> llama_layer_tensors() {
  return {
      {Role::kInputNorm, "input_layernorm.weight", {Dim::kHidden}},
      {Role::kQuery, "self_attn.q_proj.weight", {Dim::kQueryWidth, Dim::kHidden}},
      {Role::kKey, "self_attn.k_proj.weight", {Dim::kKvWidth, Dim::kHidden}},
      {Role::kValue, "self_attn.v_proj.weight", {Dim::kKvWidth, Dim::kHidden}},
      {Role::kOutput, "self_attn.o_proj.weight", {Dim::kHidden, Dim::kQueryWidth}},
      {Role::kPostAttentionNorm, "post_attention_layernorm.weight", {Dim::kHidden}},
      {Role::kGate, "mlp.gate_proj.weight", {Dim::kIntermediate, Dim::kHidden}},
      {Role::kUp, "mlp.up_proj.weight", {Dim::kIntermediate, Dim::kHidden}},
      {Role::kDown, "mlp.down_proj.weight", {Dim::kHidden, Dim::kIntermediate}},
      {Role::kQueryBias, "self_attn.q_proj.bias", {Dim::kQueryWidth}, Presence::kAttentionBias},
      {Role::kKeyBias, "self_attn.k_proj.bias", {Dim::kKvWidth}, Presence::kAttentionBias},
      {Role::kValueBias, "self_attn.v_proj.bias", {Dim::kKvWidth}, Presence::kAttentionBias},
      {Role::kOutputBias, "self_attn.o_proj.bias", {Dim::kHidden}, Presence::kAttentionBias},
      {Role::kGateBias, "mlp.gate_proj.bias", {Dim::kIntermediate}, Presence::kMlpBias},
      {Role::kUpBias, "mlp.up_proj.bias", {Dim::kIntermediate}, Presence::kMlpBias},
      {Role::kDownBias, "mlp.down_proj.bias", {Dim::kHidden}, Presence::kMlpBias},
  };
}

// Llama 2, 3, 3.1, 3.2, TinyLlama, SmolLM2. Source: transformers, models/llama.
Architecture llama_architecture() {
  return {
      .name = "llama",
      .model_types = {"llama"},
      .attention_class = "LlamaAttention",
      .model_tensors = llama_model_tensors(),
      .layer_tensors = llama_layer_tensors(),
      .ignored_suffixes = {".self_attn.rotary_emb.inv_freq"},
  };
}

}  // namespace kvcal
