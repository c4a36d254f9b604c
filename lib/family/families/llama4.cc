#include <algorithm>

#include "family/config_reader.h"
#include "family/tensor_tables.h"

namespace kvcal {

namespace {

TensorRows feed_forward_rows_of_llama4() {
  const Condition dense = unless(&LayerConfig::is_moe), moe = when(&LayerConfig::is_moe);
  return joined({
      {{Role::kGate, "feed_forward.gate_proj.weight", {Dim::kIntermediate, Dim::kHidden}, {dense}},
       {Role::kUp, "feed_forward.up_proj.weight", {Dim::kIntermediate, Dim::kHidden}, {dense}},
       {Role::kDown, "feed_forward.down_proj.weight", {Dim::kHidden, Dim::kIntermediate}, {dense}},
       {Role::kRouter, "feed_forward.router.weight", {Dim::kExperts, Dim::kHidden}, {moe}},
       {Role::kExpertGateUp,
        "feed_forward.experts.gate_up_proj",
        {Dim::kHidden, Dim::kExpertGateUpWidth},
        {moe},
        Layout::kInOut,
        Dim::kExperts,
        {{Role::kExpertGate, "feed_forward.experts.{}.gate_proj.weight"},
         {Role::kExpertUp, "feed_forward.experts.{}.up_proj.weight"}}},
       {Role::kExpertDown,
        "feed_forward.experts.down_proj",
        {Dim::kExpertIntermediate, Dim::kHidden},
        {moe},
        Layout::kInOut,
        Dim::kExperts,
        {{Role::kExpertDown, "feed_forward.experts.{}.down_proj.weight"}}}},
      shared_expert_rows({.gate = "feed_forward.shared_expert.gate_proj.weight",
                          .up = "feed_forward.shared_expert.up_proj.weight",
                          .down = "feed_forward.shared_expert.down_proj.weight"}),
  });
}

/// Sets chunks by layer_types, or where layers have positions.
void resolve_chunks(const Json& config, ModelConfig& resolved) {
  const Json* found = find_field(config, "attention_chunk_size");
  if (!found && config.contains("attention_chunk_size")) return;  // null
  const int64_t chunk = found ? required_int(config, "attention_chunk_size") : 8192;
  if (chunk < 1 || chunk > kMaxPositions)
    fail("key 'attention_chunk_size' is ", chunk, ", expected 1 to ", kMaxPositions, ", or null");
  const Json* types = find_field(config, "layer_types");
  if (types && (!types->is_array() || types->size() != resolved.layers.size()))
    fail("key 'layer_types' is ", types->dump(), ", expected a word for each of ",
         resolved.layers.size(), " layers");
  for (size_t i = 0; i < resolved.layers.size(); ++i) {
    LayerConfig& layer = resolved.layers[i];
    bool is_chunked = layer.rope != kNoRope;
    if (types) {
      const Json& word = types->at(i);
      if (word != "chunked_attention" && word != "full_attention")
        fail("key 'layer_types' holds ", word.dump(), " for layer ", i,
             ", expected chunked_attention or full_attention");
      is_chunked = word == "chunked_attention";
    }
    layer.chunk = is_chunked ? chunk : 0;
  }
}

/// Without positions, queries grow by 1 + attn_scale · ln(1 + floor((position + 1) / floor_scale)).
void resolve_growth(const Json& config, ModelConfig& resolved) {
  if (!optional_bool(config, "attn_temperature_tuning").value_or(true)) return;
  RopeConfig growth;
  growth.unturned_dim = resolved.head_dim;
  growth.query_beta = number_of(config, "attn_scale").value_or(0.1);
  growth.query_growth_shift = 1;
  growth.original_max_position_embeddings = optional_int(config, "floor_scale").value_or(8192);
  if (growth.original_max_position_embeddings < 1 ||
      growth.original_max_position_embeddings > kMaxPositions)
    fail("key 'floor_scale' is ", growth.original_max_position_embeddings, ", expected 1 to ",
         kMaxPositions);
  const auto number = std::ssize(resolved.ropes);
  for (LayerConfig& layer : resolved.layers)
    if (layer.rope == kNoRope) layer.rope = number;
  resolved.ropes.push_back(growth);
}

/// moe_layers takes precedence over the step.
void resolve_experts(const Json& config, ModelConfig& resolved) {
  const Json* list = find_field(config, "moe_layers");
  if (!list) return;
  if (!list->is_array()) fail_kind("moe_layers", "a list of layers", *list);
  for (size_t i = 0; i < resolved.layers.size(); ++i)
    resolved.layers[i].is_moe = std::ranges::find(*list, Json(i)) != list->end();
}

void resolve_llama4_layers(const Json& config, ModelConfig& resolved) {
  for (LayerConfig& layer : resolved.layers)
    layer.norms_heads = resolved.has_qk_norm && layer.rope != kNoRope;
  resolve_experts(config, resolved);
  resolve_chunks(config, resolved);
  resolve_growth(config, resolved);
}

}  // namespace

// Chunks in layers with positions; queries that grow in those without. Source: transformers,
// models/llama4.
Architecture llama4_architecture() {
  return {
      .name = "llama4",
      .model_types = {"llama4_text"},
      .attention_class = "Llama4TextAttention",
      .description = "Llama 4 Scout, Maverick",
      .defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5,
                      "rope_theta": 500000, "num_local_experts": 16, "num_experts_per_tok": 1,
                      "n_shared_experts": 1, "interleave_moe_layer_step": 1,
                      "no_rope_layer_interval": 4, "use_qk_norm": true})",
      .aliases = {{"moe_intermediate_size", "intermediate_size"},
                  {"intermediate_size", "intermediate_size_mlp"},
                  {"num_experts", "num_local_experts"},
                  {"decoder_sparse_step", "interleave_moe_layer_step"}},
      .switches = {{"attention_bias", &ModelConfig::attention_bias},
                   {"attention_bias", &ModelConfig::output_bias},
                   {"use_qk_norm", &ModelConfig::has_qk_norm}},
      .known_keys = {"attention_chunk_size", "attn_temperature_tuning", "attn_scale", "floor_scale",
                     "moe_layers", "layer_types", "for_llm_compressor"},
      .resolve = resolve_llama4_layers,
      .plain_norms = {Role::kQueryNorm, Role::kKeyNorm},
      .rope_is_interleaved = true,
      .weighs_expert_inputs = true,
      .norms_after_rope = true,
      .expert_layers = ExpertLayers::kEveryStep,
      .positions = Positions::kRopeWhereListed,
      .router_score = RouterScore::kSigmoid,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), feed_forward_rows_of_llama4()}),
  };
}

}  // namespace kvcal
