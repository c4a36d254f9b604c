#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "family/config_reader.h"
#include "family/tensor_tables.h"

namespace kvcal {

using enum Role;

namespace {

/// Words of layer_types for layers without and with a window, and those that all families share.
constexpr std::string_view kFull = "hybrid", kSliding = "hybrid_sliding";

/// A word for each layer: windows where local_layer_ids lists it, else in all but every sixth.
std::vector<std::string> words_by_number(const Json& config, int64_t layers) {
  std::vector<std::string> words;
  const Json* listed = find_field(config, "local_layer_ids");
  for (int64_t i = 0; i < layers; ++i)
    words.emplace_back(!listed && (i + 1) % 6 != 0 ? kSliding : kFull);
  if (!listed) return words;
  if (!listed->is_array()) fail_kind("local_layer_ids", "a list of layers", *listed);
  for (const Json& layer : *listed) {
    if (!layer.is_number_integer())
      fail("key 'local_layer_ids' holds ", layer.dump(), ", expected numbers of layers");
    if (layer >= 0 && layer < layers) words[layer.get<size_t>()] = kSliding;
  }
  return words;
}

void write_layer_types(Json& config, int64_t layers) {
  if (!find_field(config, "layer_types")) config["layer_types"] = words_by_number(config, layers);
  Json& types = config["layer_types"];
  if (!types.is_array()) fail_kind("layer_types", "a list of words", types);
  for (Json& type : types) {
    if (type != kFull && type != kSliding)
      fail("key 'layer_types' holds ", type.dump(), ", expected ", kFull, " or ", kSliding);
    type = type == kFull ? "full_attention" : "sliding_attention";
  }
}

/// Source: transformers 5.24 `InklingTextConfig.__post_init__`.
void prepare_inkling(Json& config) {
  const int64_t layers = optional_int(config, "num_hidden_layers").value_or(66);
  if (layers < 1 || layers > kMaxLayers) return;  // which is refused where it is read
  write_layer_types(config, layers);
  if (!find_field(config, "mlp_layer_types")) {
    const int64_t dense = optional_int(config, "dense_mlp_idx").value_or(0);
    std::vector<std::string> words;
    for (int64_t i = 0; i < layers; ++i) words.emplace_back(i < dense ? "dense" : "sparse");
    config["mlp_layer_types"] = words;
  }
  if (find_field(config, "dense_intermediate_size")) {
    config["moe_intermediate_size"] = optional_int(config, "intermediate_size").value_or(24576);
    config["intermediate_size"] = config["dense_intermediate_size"];
  }
}

/// config[key], or the class's default.
int64_t size_or(const Json& config, std::string_view key, int64_t usual, int64_t most) {
  const int64_t size = optional_int(config, key).value_or(usual);
  if (size < 1 || size > most) fail("key '", key, "' is ", size, ", expected 1 to ", most);
  return size;
}

/// Layers with a window have heads of their own, and logits for all of its distances.
void resolve_layers(const Json& config, ModelConfig& resolved) {
  const int64_t extent = size_or(config, "rel_extent", 1024, kMaxPositions);
  const AttentionSizes full = resolved.layers[0].attention;
  AttentionSizes local{.heads = size_or(config, "swa_num_attention_heads", 64, kMaxWidth),
                       .kv_heads = size_or(config, "swa_num_key_value_heads", 16, kMaxWidth),
                       .head_dim = size_or(config, "swa_head_dim", 128, 4096)};
  local.value_dim = local.head_dim;
  if (local.heads % local.kv_heads != 0 || local.query_width() > kMaxWidth)
    fail("key 'swa_num_attention_heads' is ", local.heads,
         ", expected a multiple of swa_num_key_value_heads ", local.kv_heads);
  for (LayerConfig& layer : resolved.layers) {
    const AttentionSizes& sizes = layer.attention = layer.has_window ? local : full;
    layer.cache = {.heads = sizes.kv_heads, .k_dim = sizes.head_dim, .v_dim = sizes.value_dim};
    layer.softmax_factor = 1.0f / static_cast<float>(sizes.head_dim);
    layer.relative_extent = layer.has_window ? layer.sliding_window : extent;
    if (layer.relative_extent == 0)
      fail_missing("sliding_window_size", "the window of hybrid_sliding layers");
  }
  resolved.softmax_scale = 1.0f;
}

/// In layers without a window queries grow by 1 + log_scaling_alpha · ln(max(1, (position + 1) /
/// log_scaling_n_floor)).
void resolve_growth(const Json& config, ModelConfig& resolved) {
  if (!find_field(config, "log_scaling_n_floor")) return;
  RopeConfig growth;
  growth.queries_grow_late = true;
  growth.query_growth_shift = 1;
  growth.query_beta = number_of(config, "log_scaling_alpha").value_or(0.1);
  growth.original_max_position_embeddings =
      size_or(config, "log_scaling_n_floor", 1, kMaxPositions);
  growth.unturned_dim = std::gcd(resolved.head_dim, resolved.relative_rank);
  if (growth.unturned_dim % 2 != 0)
    fail("key 'd_rel' is ", resolved.relative_rank,
         ", expected an even number beside log_scaling_n_floor");
  const auto number = std::ssize(resolved.ropes);
  for (LayerConfig& layer : resolved.layers)
    if (!layer.has_window) layer.rope = number;
  resolved.ropes.push_back(growth);
}

/// Source: transformers 5.24, models/inkling.
void resolve_inkling(const Json& config, ModelConfig& resolved) {
  const std::string_view kernel =
      find_field(config, "conv_kernel_size") ? "conv_kernel_size" : "sconv_kernel_size";
  resolved.short_kernel = size_or(config, kernel, 4, 64);
  resolved.relative_rank = size_or(config, "d_rel", 16, 4096);
  resolved.norm_topk_prob = true;
  resolved.tie_word_embeddings = false;  // whatever it says
  const auto outputs = optional_int(config, "unpadded_vocab_size");
  if (outputs && *outputs < 1)
    fail("key 'unpadded_vocab_size' is ", *outputs, ", expected 1 or more");
  if (outputs && *outputs < resolved.vocab_size) resolved.output_vocab_size = *outputs;
  resolve_layers(config, resolved);
  resolve_growth(config, resolved);
}

TensorRows saved_model_rows() {
  TensorRows rows = model_rows();
  add(rows, {{kEmbeddingNorm, "embed_tokens.embed_norm.weight"}});
  return rows;
}
/// Source: transformers 5.24, conversion_mapping.py.
TensorRows published_model_rows() {
  return {{kEmbedding, "embed.weight"},
          {kEmbeddingNorm, "embed_norm.weight"},
          {kFinalNorm, "norm.weight"},
          {kLmHead, "model.llm.unembed.weight"}};
}

TensorRows saved_attention_rows() {
  return joined({pre_norm_rows(),
                 query_key_value_rows(),
                 {{kOutput, "self_attn.o_proj.weight"},
                  {kRelative, "self_attn.r_proj.weight"},
                  {kRelativeTable, "self_attn.rel_logits_proj.proj"},
                  {kKeyConv, "self_attn.k_sconv.conv1d.weight"},
                  {kValueConv, "self_attn.v_sconv.conv1d.weight"},
                  {kAttentionOutputConv, "attn_sconv.conv1d.weight"},
                  {kMlpOutputConv, "mlp_sconv.conv1d.weight"}},
                 head_norm_rows()});
}
TensorRows published_attention_rows() {
  return joined({{{kInputNorm, "attn_norm.weight"},
                  {kMlpNorm, "mlp_norm.weight"},
                  {kQuery, "attn.wq_du.weight"},
                  {kKey, "attn.wk_dv.weight"},
                  {kValue, "attn.wv_dv.weight"},
                  {kOutput, "attn.wo_ud.weight"},
                  {kRelative, "attn.wr_du.weight"},
                  {kRelativeTable, "attn.rel_logits_proj.proj"},
                  {kKeyConv, "attn.k_sconv.weight"},
                  {kValueConv, "attn.v_sconv.weight"},
                  {kAttentionOutputConv, "attn_sconv.weight"},
                  {kMlpOutputConv, "mlp_sconv.weight"}},
                 head_norm_rows("attn.q_norm.weight", "attn.k_norm.weight")});
}

const Condition kMoe = when(&LayerConfig::is_moe), kDense = unless(&LayerConfig::is_moe);

/// Tensors of all experts, or of all shared ones.
TensorRow stacked(Role role, std::string_view name, Dim count, std::vector<SplitRow> split,
                  std::vector<Dim> shape = {}, Layout layout = Layout::kOutIn) {
  return {role, name, std::move(shape), {kMoe}, layout, count, std::move(split)};
}
constexpr SharedNames kSplitShared{"mlp.shared_experts.{}.gate_proj.weight",
                                   "mlp.shared_experts.{}.up_proj.weight",
                                   "mlp.shared_experts.{}.down_proj.weight"};

/// The dense MLP's scale, and the router.
TensorRows router_rows(std::string_view correction) {
  return {{kMlpScale, "mlp.global_scale", {}, {kDense}},
          {kRouter, "mlp.gate.weight", {Dim::kScoredExperts, Dim::kHidden}, {kMoe}},
          {kRouterScale, "mlp.gate.global_scale", {}, {kMoe}},
          {kRouterCorrection, correction, {}, {kMoe}}};
}
TensorRows saved_feed_forward_rows() {
  const std::vector<Dim> gate_up{Dim::kExpertGateUpWidth, Dim::kHidden};
  return joined(
      {mlp_rows(),
       router_rows("mlp.gate.e_score_correction_bias"),
       {stacked(kExpertGateUp, "mlp.experts.gate_up_proj", Dim::kExperts,
                {{kExpertGate, kSplitExperts.gate}, {kExpertUp, kSplitExperts.up}}, gate_up),
        stacked(kExpertDown, "mlp.experts.down_proj", Dim::kExperts,
                {{kExpertDown, kSplitExperts.down}}),
        stacked(kSharedGate, "mlp.shared_experts.gate_proj", Dim::kScoredShared,
                {{kSharedGate, kSplitShared.gate}}),
        stacked(kSharedUp, "mlp.shared_experts.up_proj", Dim::kScoredShared,
                {{kSharedUp, kSplitShared.up}}),
        stacked(kSharedDown, "mlp.shared_experts.down_proj", Dim::kScoredShared,
                {{kSharedDown, kSplitShared.down}})}});
}
/// Rows of gate and up alternate.
TensorRows published_feed_forward_rows() {
  constexpr Layout kAlternating = Layout::kOutInterleaved;
  return joined(
      {{{kGateUp, "mlp.w13_dn.weight", {}, {kDense}, kAlternating},
        {kDown, "mlp.w2_md.weight", {}, {kDense}}},
       router_rows("mlp.gate.bias"),
       {stacked(kExpertGateUp, "mlp.experts.w13_weight", Dim::kExperts,
                {{kExpertGate, kSplitExperts.gate}, {kExpertUp, kSplitExperts.up}}, {},
                kAlternating),
        stacked(kExpertDown, "mlp.experts.w2_weight", Dim::kExperts,
                {{kExpertDown, kSplitExperts.down}}),
        stacked(kSharedGateUp, "mlp.shared_experts.shared_w13_weight", Dim::kScoredShared,
                {{kSharedGate, kSplitShared.gate}, {kSharedUp, kSplitShared.up}}, {}, kAlternating),
        stacked(kSharedDown, "mlp.shared_experts.shared_w2_weight", Dim::kScoredShared,
                {{kSharedDown, kSplitShared.down}})}});
}

/// Rows of published checkpoints, whose text model has images and sounds around it, and of those
/// that transformers saves of it alone.
TensorRows published_or_saved(TensorRows published, TensorRows saved) {
  return joined({with(unless(&ModelConfig::has_saved_names), std::move(published)),
                 with(when(&ModelConfig::has_saved_names), std::move(saved))});
}

constexpr FamilyRow kRows[] = {
    // Logits by distance instead of positions; convolutions of K, V and of what attention and MLP
    // give; shared experts that the router scores.
    {"inkling", "", "InklingAttention", "text model of Inkling",
     [](Architecture& family) {
       family.model_types = {"inkling_text"};
       family.defaults = R"({"vocab_size": 201024, "hidden_size": 6144, "num_hidden_layers": 66,
         "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128,
         "sliding_window_size": 512, "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
         "intermediate_size": 24576, "moe_intermediate_size": 3072, "n_routed_experts": 256,
         "num_experts_per_tok": 6, "n_shared_experts": 2, "route_scale": 8.0,
         "logits_mup_width_multiplier": 24.0, "log_scaling_alpha": 0.1})";
       family.aliases = {{"sliding_window", "sliding_window_size"},
                         {"num_experts", "n_routed_experts"},
                         {"num_experts", "num_local_experts"},
                         {"max_position_embeddings", "model_max_length"},
                         {"logits_mup_width_multiplier", "embedding_multiplier"}};
       family.numbers = {{"route_scale", &ModelConfig::routed_scaling_factor},
                         {"logits_mup_width_multiplier", &ModelConfig::head_input_multiplier,
                          NumberReading::kInverse}};
       family.known_keys = {"swa_num_attention_heads",
                            "swa_num_key_value_heads",
                            "swa_head_dim",
                            "d_rel",
                            "rel_extent",
                            "log_scaling_n_floor",
                            "log_scaling_alpha",
                            "local_layer_ids",
                            "conv_kernel_size",
                            "sconv_kernel_size",
                            "unpadded_vocab_size",
                            "dense_mlp_idx",
                            "dense_intermediate_size",
                            "shared_expert_sink",
                            "rms_norm_eps_moe_gate",
                            "num_mtp_layers",
                            "chain_hidden_post_norm",
                            "mtp_hidden_states_first",
                            "mtp_local_layer_ids",
                            "number_of_conv_states"};
       family.prepare = prepare_inkling;
       family.resolve = resolve_inkling;
       family.norms_embedding = true;
       family.scores_shared_experts = true;
       family.positions = Positions::kNone;
       family.sliding_window = SlidingWindow::kTyped;
       family.expert_layers = ExpertLayers::kTyped;
       family.router_score = RouterScore::kSigmoid;
       family.attention_module = "attn";
       family.saved_attention_module = "self_attn";
       family.model_tensors = published_or_saved(published_model_rows(), saved_model_rows());
       for (TensorRow& row : family.model_tensors)
         if (row.role == kLmHead) row.shape = {Dim::kVocab, Dim::kHidden};
       family.layer_tensors =
           joined({published_or_saved(published_attention_rows(), saved_attention_rows()),
                   published_or_saved(published_feed_forward_rows(), saved_feed_forward_rows())});
     }},
};

}  // namespace

Lineage inkling_lineage() {
  return kRows;
}

}  // namespace kvcal
