// Recurrent mixers, parallel residual streams, and MLPs that differ by layer.
#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "family/layer_plan.h"

namespace kvcal {
namespace {

enum class Block { kAttention, kRecurrence, kAttentionAndRecurrence, kMlp, kExperts };

/// A word of a list of layer types, or a letter of Nemotron-H's pattern. may_slide: the family
/// knows windows.
Block block_of(const std::string& word, std::string_view key, size_t layer, bool may_slide) {
  const auto is_one_of = [&](std::initializer_list<std::string_view> words) {
    return std::ranges::find(words, word) != words.end();
  };
  if (is_one_of({"attention", "full_attention", "indexed_attention", "*"}))
    return Block::kAttention;
  if (may_slide && word == "sliding_attention") return Block::kAttention;
  if (is_one_of({"mamba", "mamba2", "linear_attention", "conv", "M"})) return Block::kRecurrence;
  if (is_one_of({"mlp", "-"})) return Block::kMlp;
  if (is_one_of({"moe", "E"})) return Block::kExperts;
  fail("key '", key, "' holds '", word, "' for layer ", layer, ", which is not supported");
}

std::vector<std::string> words_of(const Json& list, std::string_view key) {
  std::vector<std::string> words;
  if (list.is_string()) {
    for (const char letter : list.get<std::string>()) words.emplace_back(1, letter);
    return words;
  }
  if (!list.is_array()) fail_kind(key, "a list of layer types", list);
  for (const Json& word : list) {
    if (!word.is_string()) fail("key '", key, "' holds ", word.dump(), ", expected strings");
    words.push_back(word.get<std::string>());
  }
  return words;
}

std::vector<Block> listed_blocks(const ConfigReader& reader, std::string_view key,
                                 const ModelConfig& config) {
  const int64_t num_layers = config.num_hidden_layers;
  const bool may_slide = config.architecture->sliding_window != SlidingWindow::kNone;
  const std::vector<std::string> words = words_of(*reader.find(key), key);
  if (words.size() != static_cast<size_t>(num_layers))
    fail("key '", key, "' has ", counted(words.size(), "value"), ", expected ", num_layers,
         ", one a layer");
  std::vector<Block> blocks;
  for (const std::string& word : words)
    blocks.push_back(block_of(word, key, blocks.size(), may_slide));
  return blocks;
}

/// Mixers by the counting keys, for configs without a list.
std::vector<Block> counted_blocks(const ConfigReader& reader, int64_t num_layers) {
  std::vector<Block> blocks(static_cast<size_t>(num_layers), Block::kRecurrence);
  // Layers counted from 0, or from 1.
  for (const auto& [key, first] : {std::pair("attn_layer_indices", 0), {"attn_layer_numbers", 1}}) {
    const Json* list = reader.find(key);
    if (!list) continue;
    if (!list->is_array()) fail_kind(reader.name_of(key), "a list of layers", *list);
    for (const Json& layer : *list) {
      if (!layer.is_number_integer() || layer < first || layer >= num_layers + first)
        fail("key '", reader.name_of(key), "' holds ", layer.dump(), ", expected ", first, " to ",
             num_layers + first - 1);
      blocks[static_cast<size_t>(layer.get<int64_t>() - first)] = Block::kAttention;
    }
    return blocks;
  }
  const bool has_period = reader.find("attn_layer_period") != nullptr;
  const std::string_view key = has_period ? "attn_layer_period" : "full_attention_interval";
  const int64_t period = reader.size(key, kMaxLayers);
  const int64_t offset = has_period ? reader.size("attn_layer_offset", period - 1, 0) : period - 1;
  for (int64_t i = 0; i < num_layers; ++i)
    if (i % period == offset) blocks[static_cast<size_t>(i)] = Block::kAttention;
  return blocks;
}

constexpr std::array<std::string_view, 3> kBlockLists{"hybrid_override_pattern",
                                                      "layers_block_type", "layer_types"};

std::vector<Block> layer_blocks(const ConfigReader& reader, const ModelConfig& config) {
  const int64_t num_layers = config.num_hidden_layers;
  if (config.architecture->mixes_beside_attention)
    return std::vector<Block>(static_cast<size_t>(num_layers), Block::kAttentionAndRecurrence);
  for (const std::string_view key : kBlockLists)
    if (reader.find(key)) return listed_blocks(reader, key, config);
  return counted_blocks(reader, num_layers);
}

/// "auto" and absent mean the mixer's width divided by the heads: mamba_d_ssm, or the expanded
/// hidden_size.
int64_t mamba_head_dim(const ConfigReader& reader, int64_t heads) {
  const bool has_width = reader.integer("mamba_d_ssm").has_value();
  const Json* found = reader.find("mamba_head_dim");
  const bool has_dim = found && !found->is_string();
  if (has_dim && !has_width) return reader.size("mamba_head_dim", 4096);
  const int64_t inner =
      has_width ? reader.size("mamba_d_ssm", kMaxWidth)
                : reader.size("mamba_expand", 1024) * reader.size("hidden_size", kMaxWidth);
  if (inner % heads != 0)
    fail(has_width ? "mamba_d_ssm" : "mamba_expand times hidden_size", " is ", inner,
         ", which is no multiple of ", counted(heads, "Mamba head"));
  if (has_dim && reader.size("mamba_head_dim", 4096) != inner / heads)
    fail("key '", reader.name_of("mamba_head_dim"), "' is ", reader.size("mamba_head_dim", 4096),
         ", expected mamba_d_ssm ", inner, " divided by ", counted(heads, "head"));
  return inner / heads;
}

/// transformers 5 writes infinity as {"__float__": "Infinity"}.
std::optional<float> step_size(const Json& value) {
  if (value == Json{{"__float__", "Infinity"}}) return std::numeric_limits<float>::infinity();
  return value.is_number() ? std::optional(value.get<float>()) : std::nullopt;
}

/// [least, most] step size; most may be infinite.
void parse_step_limit(const ConfigReader& reader, RecurrentConfig& recurrent) {
  // Such a family names its default. Source: transformers 5.24 `Zamba2MambaMixer`.
  if (reader.has_default("time_step_min")) {
    recurrent.dt_min = static_cast<float>(reader.required_number("time_step_min"));
    return;
  }
  const Json* limit = reader.find("time_step_limit");
  if (!limit) return;
  const bool is_pair = limit->is_array() && limit->size() == 2;
  const auto least = is_pair ? step_size(limit->at(0)) : std::nullopt;
  const auto most = is_pair ? step_size(limit->at(1)) : std::nullopt;
  if (!least || !most || !(*least >= 0.0f) || !(*least < *most)) {
    std::string found = dump_as_python(*limit);
    std::erase_if(found, [](char c) { return c == '\n' || c == ' '; });
    fail("key 'time_step_limit' is ", found, ", expected two rising numbers, the first 0 or more");
  }
  recurrent.dt_min = static_cast<float>(number_at(*limit, 0, "time_step_limit"));
  recurrent.dt_max = *most;
}

void parse_mamba2(const ConfigReader& reader, RecurrentConfig& recurrent) {
  parse_step_limit(reader, recurrent);
  recurrent.heads = reader.size("mamba_num_heads", kMaxWidth);
  recurrent.head_dim = mamba_head_dim(reader, recurrent.heads);
  recurrent.groups = reader.size("mamba_n_groups", recurrent.heads);
  recurrent.state_dim = reader.size("mamba_d_state", 4096);
  recurrent.kernel = reader.size("mamba_d_conv", 64, 2);
  if (recurrent.heads % recurrent.groups != 0)
    fail("key '", reader.name_of("mamba_n_groups"), "' is ", recurrent.groups,
         ", expected a divisor of ", counted(recurrent.heads, "head"));
  recurrent.norm_groups = recurrent.groups;
  recurrent.channels = recurrent.inner() + 2 * recurrent.groups * recurrent.state_dim;
}

/// Sizes that config.json leaves out are OLMo Hybrid's. Source: transformers 5.23
/// `OlmoHybridConfig`.
void parse_delta_net(const ConfigReader& reader, ModelConfig& config) {
  const Architecture& architecture = *config.architecture;
  RecurrentConfig& recurrent = config.recurrent;
  const auto heads = [&](std::string_view key, int64_t most) {
    return reader.size(reader.integer(key) ? key : "num_attention_heads", most);
  };
  recurrent.heads = heads("linear_num_value_heads", kMaxWidth);
  recurrent.groups = heads("linear_num_key_heads", recurrent.heads);
  recurrent.state_dim = reader.integer("linear_key_head_dim")
                            ? reader.size("linear_key_head_dim", 4096)
                            : 3 * reader.size("hidden_size", kMaxWidth) / (4 * recurrent.groups);
  recurrent.head_dim = reader.integer("linear_value_head_dim")
                           ? reader.size("linear_value_head_dim", 4096)
                           : 2 * recurrent.state_dim;
  if (recurrent.state_dim < 1)
    fail("hidden_size is too small for ", recurrent.groups, " key heads of linear attention");
  recurrent.kernel = reader.size("linear_conv_kernel_dim", 64, 2);
  if (recurrent.heads % recurrent.groups != 0)
    fail("key 'linear_num_key_heads' is ", recurrent.groups, ", expected a divisor of ",
         recurrent.heads, " value heads");
  recurrent.channels = recurrent.inner() + 2 * recurrent.keys();
  if (has_row(architecture, Role::kMixerZDown) && !config.has_full_rank_gate)
    recurrent.gate_rank = recurrent.head_dim;
  if (has_row(architecture, Role::kMixerAlphaDown)) recurrent.decay_rank = recurrent.head_dim;
  recurrent.fades_by_key = recurrent.decay_rank > 0 || has_row(architecture, Role::kMixerKeyDecays);
}

void parse_mamba(const ConfigReader& reader, RecurrentConfig& recurrent) {
  const int64_t hidden = reader.size("hidden_size", kMaxWidth);
  recurrent.heads = reader.size("mamba_expand", 1024) * hidden;
  recurrent.head_dim = recurrent.groups = 1;
  recurrent.channels = recurrent.heads;
  recurrent.state_dim = reader.size("mamba_d_state", 4096);
  recurrent.kernel = reader.size("mamba_d_conv", 64, 2);
  const Json* rank = reader.find("mamba_dt_rank");
  recurrent.step_rank =
      !rank || *rank == "auto" ? (hidden + 15) / 16 : reader.size("mamba_dt_rank", kMaxWidth);
}

void parse_short_convolution(const ConfigReader& reader, RecurrentConfig& recurrent) {
  recurrent.heads = recurrent.channels = reader.size("hidden_size", kMaxWidth);
  recurrent.head_dim = 1;
  recurrent.kernel = reader.size("conv_L_cache", 64, 2);
}

/// Mamba 2's scan with V for x, K for B and Q for C, step sizes of 1, and no convolution but its
/// activation. Source: transformers 5.24, models/minimax `MiniMaxLightningAttention`, whose norm
/// has the epsilon of its class.
void parse_lightning(const ModelConfig& config, RecurrentConfig& recurrent) {
  recurrent.heads = recurrent.groups = config.num_attention_heads;
  recurrent.head_dim = recurrent.state_dim = config.head_dim;
  recurrent.kernel = 1;
  recurrent.channels = 3 * recurrent.inner();
  recurrent.norm_eps = 1e-6f;
}

}  // namespace

std::optional<int64_t> listed_layers(const ConfigReader& reader) {
  for (const std::string_view key : kBlockLists)
    if (const Json* list = reader.find(key))
      return static_cast<int64_t>(words_of(*list, key).size());
  return std::nullopt;
}

void parse_mixers(const ConfigReader& reader, ModelConfig& config) {
  const Architecture& architecture = *config.architecture;
  if (architecture.recurrence == Mixer::kNone) return;
  if (architecture.recurrence == Mixer::kMamba) parse_mamba(reader, config.recurrent);
  if (architecture.recurrence == Mixer::kMamba2) parse_mamba2(reader, config.recurrent);
  if (architecture.recurrence == Mixer::kDeltaNet) parse_delta_net(reader, config);
  if (architecture.recurrence == Mixer::kShortConvolution)
    parse_short_convolution(reader, config.recurrent);
  if (architecture.recurrence == Mixer::kLightning) parse_lightning(config, config.recurrent);
  const std::vector<Block> blocks = layer_blocks(reader, config);
  const auto attends = [](Block block) {
    return block == Block::kAttention || block == Block::kAttentionAndRecurrence;
  };
  if (std::ranges::none_of(blocks, attends))
    fail("no layer of the model has attention, and so there is no KV cache");
  for (size_t i = 0; i < blocks.size(); ++i) {
    LayerConfig& layer = config.layers[i];
    layer.has_attention = attends(blocks[i]);
    layer.has_recurrence =
        blocks[i] == Block::kRecurrence || blocks[i] == Block::kAttentionAndRecurrence;
    layer.has_mixer = layer.has_attention || layer.has_recurrence;
    if (!architecture.has_single_blocks) continue;
    layer.has_mlp = blocks[i] == Block::kMlp;
    layer.is_moe = blocks[i] == Block::kExperts;
  }
}

namespace {

// Source of the streams and MLPs: transformers 5.23, models/gemma3n `Gemma3nTextConfig`.

/// More would be a mistake: the largest published models have some 10.
constexpr int64_t kMaxStreams = 64;
/// Published models have 20.
constexpr int64_t kMaxIterations = 1000;

void parse_sparsity(const ConfigReader& reader, ModelConfig& config) {
  constexpr std::string_view kKey = "activation_sparsity_pattern";
  // Where it is absent, the first ten layers of a model with more are sparse.
  constexpr int64_t kSparseLayers = 10;
  constexpr double kSparsity = 0.95;
  const Json* list = reader.find(kKey);
  if (list) check_one_a_layer(kKey, *list, config.num_hidden_layers);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const bool is_sparse = config.num_hidden_layers > kSparseLayers && i < size_t{kSparseLayers};
    config.layers[i].activation_sparsity = list        ? number_at(*list, i, kKey)
                                           : is_sparse ? kSparsity
                                                       : 0.0;
  }
}

/// A stream for the embedding, and one for each block of layers.
void parse_residual_sums(const ConfigReader& reader, ModelConfig& config) {
  constexpr std::string_view kKey = "attn_res_block_size";
  if (!reader.find(kKey)) return;
  config.residual_block = reader.size(kKey, kMaxLayers);
  config.attends_residuals = true;
  config.streams =
      1 + (config.num_hidden_layers + config.residual_block - 1) / config.residual_block;
  if (config.streams > kMaxStreams)
    fail("key '", kKey, "' is ", config.residual_block, ", which gives ",
         counted(config.num_hidden_layers, "layer"), " ", config.streams,
         " residual sums, expected up to ", kMaxStreams);
}

}  // namespace

bool lists_mlp_widths(const ConfigReader& reader, const Architecture& architecture) {
  const Json* width = reader.find("intermediate_size");
  return architecture.has_mlp_by_layer && width && width->is_array();
}

void parse_mlps_by_layer(const ConfigReader& reader, ModelConfig& config) {
  constexpr std::string_view kKey = "intermediate_size";
  if (lists_mlp_widths(reader, *config.architecture)) {
    const Json& list = *reader.find(kKey);
    check_one_a_layer(kKey, list, config.num_hidden_layers);
    for (size_t i = 0; i < config.layers.size(); ++i) {
      const Json& width = list.at(i);
      if (!width.is_number_integer() || width < 1 || width > kMaxWidth)
        fail("key '", kKey, "' holds ", width.dump(), " for layer ", i,
             ", expected an integer from 1 to ", kMaxWidth);
      config.layers[i].intermediate_size = width.get<int64_t>();
    }
    config.intermediate_size = config.largest(&LayerConfig::intermediate_size);
  }
  parse_sparsity(reader, config);
}

void parse_streams(const ConfigReader& reader, ModelConfig& config) {
  if (has_row(*config.architecture, Role::kLaurelDown))
    config.laurel_rank = reader.size("laurel_rank", kMaxWidth);
  if (has_row(*config.architecture, Role::kAttentionConnection)) {
    config.streams = reader.size("hc_mult", kMaxStreams, 2);
    config.connections = {.iterations = reader.size("hc_sinkhorn_iters", kMaxIterations),
                          .epsilon = static_cast<float>(reader.required_number("hc_eps"))};
  }
  if (has_row(*config.architecture, Role::kAttentionMixDown)) {
    config.streams = reader.size("hc_count", kMaxStreams, 2);
    config.stream_mix_rank = reader.size("hc_lowrank", kMaxWidth);
  }
  if (has_row(*config.architecture, Role::kAttentionSumScore)) parse_residual_sums(reader, config);
  if (!has_row(*config.architecture, Role::kStreamRouter)) return;
  config.streams = reader.size("altup_num_inputs", kMaxStreams, 2);
  config.active_stream = reader.size("altup_active_idx", config.streams - 1, 0);
}

}  // namespace kvcal
