#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "family/config_reader.h"
#include "family/tensor_tables.h"

namespace kvcal {

using enum Role;

namespace {

constexpr std::string_view kSliding = "sliding_attention", kFull = "full_attention",
                           kIndexed = "indexed_attention";

// Keys of published files, as transformers 5.24 `Dots3NoteTextConfig.__post_init__` and
// `convert_rope_params_to_dict` read them, and the class's defaults.

Json said_or(const Json& config, std::string_view key, Json other) {
  const Json* said = find_field(config, key);
  return said ? *said : std::move(other);
}

/// layer_types: without it two layers with full attention, then one in four; full attention has an
/// indexer, unless use_dsa says that it has none, or does not say and layers have sizes of their
/// own, as in a file that transformers saved.
void write_layer_types(Json& config, size_t layers) {
  optional_bool(config, "use_dsa");  // checks that it is true, false or null
  Json uses_indexers = config.contains("per_layer_config") ? Json() : Json(true);
  if (config.contains("use_dsa")) uses_indexers = config["use_dsa"];
  const bool slides = optional_bool(config, "use_sliding_window").value_or(true);
  Json types = said_or(config, "layer_types", nullptr);
  if (types.is_null()) {
    types = Json::array();
    for (size_t i = 0; i < layers; ++i)
      types.push_back(slides && i >= 2 && i % 4 != 1 ? kSliding
                      : uses_indexers == false       ? kFull
                                                     : kIndexed);
  }
  if (uses_indexers.is_boolean() && types.is_array())
    for (Json& type : types)
      if (type == kFull || type == kIndexed) type = uses_indexers == true ? kIndexed : kFull;
  config["layer_types"] = types;
}

/// A rope for each type of layer. What a file says for all types is also that of layers with a
/// window, whatever swa_rope_theta says.
void write_ropes(Json& config) {
  const Json* parameters = find_field(config, "rope_parameters");
  const Json* scaling = find_field(config, "rope_scaling");
  if (scaling && scaling->empty()) scaling = nullptr;
  if (parameters && scaling)
    fail("keys 'rope_scaling' and 'rope_parameters' both describe ropes; expected one of them");
  const Json* said = parameters ? parameters : scaling;
  const Json& types = config["layer_types"];
  if ((said && !said->is_object()) || !types.is_array()) return;  // refused where it is read
  const Json theta = said_or(config, "rope_theta", 8e7);
  const Json of_window = said_or(config, "swa_rope_theta", 5e4);
  std::set<std::string> words;
  for (const Json& type : types)
    if (type.is_string()) words.insert(type.get<std::string>());
  bool is_by_type = false;
  for (const std::string& word : words) is_by_type = is_by_type || (said && said->contains(word));
  Json ropes = Json::object();
  for (const std::string& word : words) {
    Json rope = {{"rope_type", "default"},
                 {"rope_theta", !said && word == kSliding ? of_window : theta}};
    const Json* own = is_by_type ? find_field(*said, word) : said;
    if (is_by_type && (!own || !own->is_object()))
      fail_missing("rope_parameters." + word, "the rope of these layers");
    if (own) {
      rope = *own;
      if (!find_field(rope, "rope_theta")) rope["rope_theta"] = theta;
    }
    rope.erase("partial_rotary_factor");  // that of qk_rope_head_dim, whatever it says
    const std::string_view name = word == kSliding ? kSliding : kFull;
    if (ropes.contains(name) && ropes[name] != rope)
      fail("key 'rope_parameters' has other values for ", kIndexed, " than for ", kFull,
           ", which is not supported");
    ropes[name] = std::move(rope);
  }
  config["rope_parameters"] = std::move(ropes);
}

/// Sizes of layers with a window, where the file has no per_layer_config.
void write_window_sizes(Json& config) {
  if (find_field(config, "per_layer_config")) return;
  Json sizes = {{"num_attention_heads", 64}, {"num_key_value_heads", 64}, {"q_lora_rank", 1024},
                {"kv_lora_rank", 1024},      {"head_dim", 256},           {"qk_nope_head_dim", 192},
                {"v_head_dim", 128}};
  for (const auto& [key, value] : sizes.items()) value = said_or(config, "swa_" + key, value);
  // Sizes out of range are refused where they are read.
  const auto size = [&](const char* key) {
    return std::clamp<int64_t>(optional_int(sizes, key).value_or(0), 0, kMaxWidth);
  };
  sizes["qk_rope_head_dim"] =
      said_or(config, "swa_qk_rope_head_dim", size("head_dim") - size("qk_nope_head_dim"));
  Json overrides = Json::object();
  const Json& types = config["layer_types"];
  for (size_t i = 0; types.is_array() && i < types.size(); ++i)
    if (types[i] == kSliding) overrides[std::to_string(i)] = sizes;
  config["per_layer_config"] = std::move(overrides);
}

/// Layers with experts, and the width of those that all tokens run.
void write_experts(Json& config, size_t layers) {
  if (!find_field(config, "mlp_layer_types")) {
    const int64_t first = optional_int(config, "first_k_dense_replace").value_or(1);
    const Json frequency = said_or(config, "moe_layer_freq", 1);
    const auto is_sparse = [&](size_t i) -> bool {
      if (static_cast<int64_t>(i) < first) return false;
      if (frequency.is_array()) return frequency.at(i) != 0 && frequency.at(i) != false;
      return static_cast<int64_t>(i) % frequency.get<int64_t>() == 0;
    };
    if (frequency.is_array() ? frequency.size() < layers
                             : !frequency.is_number_integer() || frequency < 1)
      fail("key 'moe_layer_freq' is ", frequency.dump(), ", expected 1 or more, or ", layers,
           " numbers");
    Json types = Json::array();
    for (size_t i = 0; i < layers; ++i) types.push_back(is_sparse(i) ? "sparse" : "dense");
    config["mlp_layer_types"] = std::move(types);
  }
  const Json width = said_or(config, "moe_shared_expert_intermediate_size",
                             said_or(config, "shared_experts_intermediate_size", 1536));
  const bool has_count = config.contains("n_shared_experts");
  const int64_t count = optional_int(config, "n_shared_experts").value_or(has_count ? 0 : 1);
  if (count < 1 || count > 1024) fail("key 'n_shared_experts' is ", count, ", expected 1 to 1024");
  if (!width.is_number_integer() || width < 1 || width > kMaxWidth)
    fail("key 'shared_experts_intermediate_size' is ", width.dump(), ", expected 1 to ", kMaxWidth);
  config["shared_expert_intermediate_size"] = count * width.get<int64_t>();
}

void prepare_dots(Json& config) {
  const int64_t layers = optional_int(config, "num_hidden_layers").value_or(46);
  if (layers < 1 || layers > kMaxLayers) return;  // which is refused where it is read
  write_layer_types(config, static_cast<size_t>(layers));
  write_ropes(config);
  write_window_sizes(config);
  write_experts(config, static_cast<size_t>(layers));
  if (!find_field(config, "sliding_window"))
    config["sliding_window"] = said_or(config, "sliding_window_size", 512);
  std::vector<std::string> read{"use_dsa",
                                "use_sliding_window",
                                "sliding_window_size",
                                "rope_theta",
                                "rope_scaling",
                                "swa_rope_theta",
                                "partial_rotary_factor",
                                "first_k_dense_replace",
                                "moe_layer_freq",
                                "moe_shared_expert_intermediate_size",
                                "shared_experts_intermediate_size"};
  for (const char* key :
       {"num_attention_heads", "num_key_value_heads", "q_lora_rank", "kv_lora_rank", "head_dim",
        "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"})
    read.push_back(std::string("swa_") + key);
  for (const std::string& key : read) config.erase(key);
}

/// Norms and scores of its latent attention. Source: transformers 5.24 `Dots3NoteTextAttention`.
void resolve_dots(const Json& config, ModelConfig& resolved) {
  const int64_t heads = resolved.num_attention_heads;
  if (const auto said = optional_int(config, "num_key_value_heads"); said && *said != heads)
    fail("key 'num_key_value_heads' is ", *said, ", expected num_attention_heads ", heads);
  resolved.softmax_scale = 1.0f / std::sqrt(static_cast<float>(resolved.head_dim));
  resolved.gates_whole_heads = true;
  for (LayerConfig& layer : resolved.layers) {
    const auto hidden = static_cast<double>(resolved.hidden_size);
    const auto root = [&](int64_t rank) {
      return static_cast<float>(std::sqrt(hidden / static_cast<double>(rank)));
    };
    layer.latent.norm_eps = resolved.norm_eps;
    if (layer.latent.query_rank == 0)
      fail("key 'q_lora_rank' is missing or null, expected the rank of queries");
    layer.latent.query_multiplier = root(layer.latent.query_rank);
    layer.latent.latent_multiplier = root(layer.latent.latent_rank);
  }
}

constexpr FamilyRow kRows[] = {
    // DeepSeek-V3.2's attention and experts with a gate a head, a norm of the rotated key, and
    // sizes and a rope of their own in layers with a window.
    {"dots3_note", "deepseek_v32", "Dots3NoteTextAttention", "text model of Dots 3 Note",
     [](Architecture& family) {
       family.model_types = {"dots3_note_text"};
       family.defaults = R"({"kv_lora_rank": 512, "q_lora_rank": 1024, "qk_nope_head_dim": 128,
         "qk_rope_head_dim": 64, "v_head_dim": 128, "rms_norm_eps": 1e-5, "n_routed_experts": 256,
         "n_shared_experts": 1, "moe_intermediate_size": 1536, "n_group": 1, "topk_group": 1,
         "num_experts_per_tok": 8, "norm_topk_prob": true, "routed_scaling_factor": 1.0,
         "index_topk": 2048, "index_head_dim": 128, "index_n_heads": 64})";
       family.text_defaults = R"({"vocab_size": 152064, "hidden_size": 5120,
         "intermediate_size": 13824, "num_hidden_layers": 46, "num_attention_heads": 128,
         "max_position_embeddings": 524288})";
       add(family.aliases, {{"num_experts", "num_local_experts"}});
       family.fixed = {};
       // The first five stand beside the text model's keys in published files.
       family.known_keys = {"vision_config",  "audio_config",   "image_token_id",
                            "video_token_id", "audio_token_id", "head_dim",
                            "mlp_bias",       "scoring_func",   "topk_method"};
       family.prepare = prepare_dots;
       family.resolve = resolve_dots;
       family.has_latent_by_layer = true;
       family.has_query_gate = true;
       family.indexer = Indexer::kInterleaved;
       family.sliding_window = SlidingWindow::kTyped;
       add(family.layer_tensors,
           {{kLatentKeyNorm, "self_attn.k_rope_only_layernorm.weight"},
            {kQueryGate, "self_attn.g_proj.weight", {Dim::kQueryGateWidth, Dim::kHidden}}});
       family.ignored_prefixes = {"model.mtp.", "model.language_model.mtp."};
     }},
};

}  // namespace

Lineage dots_lineage() {
  return kRows;
}

}  // namespace kvcal
