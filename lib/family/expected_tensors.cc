#include "family/expected_tensors.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>

#include "core/number.h"
#include "family/wrapper.h"

namespace kvcal {
namespace {

/// The tensors of a row, which have one shape: one for each expert or head, or one that stacks
/// them.
struct ResolvedRow {
  int64_t tensors = 1, stacked = 1;
  Shape shape;
};

ResolvedRow resolved(const TensorRow& row, int64_t layer, const ModelConfig& config) {
  const LayerConfig* own = layer == kNoLayer ? nullptr : &config.layer(layer);
  const int64_t repeat = row.repeat == Dim::kOne ? 1 : config.size_of(row.repeat, own);
  ResolvedRow result;
  (row.is_stacked() ? result.stacked : result.tensors) = repeat;
  if (row.is_stacked() && !row.is_flat) result.shape.dims.push_back(repeat);
  for (const Dim dim : row.shape) result.shape.dims.push_back(config.size_of(dim, own));
  if (row.is_flat) result.shape.dims[0] *= repeat;
  return result;
}

/// Rows of a table of n-grams that its part of that index lacks: the last may be shorter.
int64_t missing_rows(int64_t part, const LayerConfig& layer) {
  return std::max<int64_t>(0, (part + 1) * layer.ngram_part_rows - layer.ngram_rows);
}

/// Adds the tensors of a row, below prefix; layer: null for rows of the model.
void append(const TensorRow& row, const std::string& prefix, int64_t layer,
            const ModelConfig& config, std::vector<ExpectedTensor>& tensors) {
  const ResolvedRow own = resolved(row, layer, config);
  for (int64_t i = 0; i < own.tensors; ++i) {
    tensors.push_back({.row = &row,
                       .layer = layer,
                       .index = i,
                       .count = own.stacked,
                       .name = prefix + row.name_of(i),
                       .shape = own.shape});
    if (row.role == Role::kNgramEmbedding)
      tensors.back().shape.dims[0] -= missing_rows(i, config.layer(layer));
  }
}

/// Every row that a checkpoint has tensors of, the draft layer's apart: visit(row, layer).
template <class Visit>
void for_each_row(const ModelConfig& config, const Visit& visit) {
  for (const TensorRow& row : config.architecture->model_tensors)
    if (config.holds(row.conditions, nullptr) && !(config.lacks_head && row.is_of_head()))
      visit(row, kNoLayer);
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    for (const TensorRow& row : config.architecture->layer_tensors)
      if (config.holds(row.conditions, &config.layers[static_cast<size_t>(layer)]))
        visit(row, layer);
}

/// Number of the layer that a tensor's name tells; kNoLayer: none.
int64_t layer_of(std::string_view name, const ModelConfig& config) {
  const std::string prefix = config.backbone_prefix + std::string(config.architecture->layers_name);
  if (!name.starts_with(prefix)) return kNoLayer;
  int64_t layer = 0;
  const auto [end, error] =
      std::from_chars(name.data() + prefix.size(), name.data() + name.size(), layer);
  return error == std::errc() && layer >= 0 ? layer : kNoLayer;
}

bool is_behind_last_layer(std::string_view name, const ModelConfig& config) {
  return layer_of(name, config) >= config.num_hidden_layers;
}

/// The tensors that K, V and Q of the draft layer are made of.
void append_draft_tensors(const ModelConfig& config, std::vector<ExpectedTensor>& tensors) {
  const int64_t layer = config.num_hidden_layers;
  for (const TensorRow& row : draft_input_rows(config))
    append(row, draft_input_prefix(config), layer, config, tensors);
  for (const TensorRow& row : config.architecture->layer_tensors)
    if (is_run_by_draft(row.role) && config.holds(row.conditions, &config.layer(layer)))
      append(row, config.layer_prefix(layer), layer, config, tensors);
}

}  // namespace

bool is_unused_tensor(std::string_view name, const ModelConfig& config) {
  const Architecture& architecture = *config.architecture;
  const auto ends = [&](std::string_view suffix) { return name.ends_with(suffix); };
  const auto begins = [&](std::string_view prefix) { return name.starts_with(prefix); };
  return std::ranges::any_of(architecture.ignored_suffixes, ends) ||
         std::ranges::any_of(architecture.ignored_prefixes, begins) ||
         is_outside_text(name, config) || skipped_layer_of(name, config) != kNoLayer ||
         name.ends_with("rotary_emb.inv_freq") ||  // what older transformers saved along
         is_of_prediction_layer(name, config);
}

bool is_beside_model(std::string_view name, const ModelConfig& config) {
  if (config.wrapper) return false;  // its row names what lies outside
  return !config.backbone_prefix.empty() && !name.starts_with(config.backbone_prefix) &&
         std::ranges::none_of(config.architecture->model_tensors, [&](const TensorRow& row) {
           const std::string_view module = row.name.substr(0, row.name.rfind('.'));
           return row.is_of_head() && name.starts_with(config.head_prefix) &&
                  name.substr(config.head_prefix.size()).starts_with(module);
         });
}

int64_t skipped_layer_of(std::string_view name, const ModelConfig& config) {
  const int64_t number = layer_of(name, config);
  if (number == kNoLayer || number >= config.num_hidden_layers) return kNoLayer;
  const LayerConfig& layer = config.layers[static_cast<size_t>(number)];
  return layer.has_mixer || layer.has_mlp || layer.is_moe ? kNoLayer : number;
}

bool is_of_prediction_layer(std::string_view name, const ModelConfig& config) {
  const Architecture& architecture = *config.architecture;
  return (architecture.has_prediction_layers && is_behind_last_layer(name, config)) ||
         (architecture.draft == DraftLayer::kMtp && name.starts_with("mtp."));
}

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config) {
  std::vector<ExpectedTensor> tensors;
  for_each_row(config, [&](const TensorRow& row, int64_t layer) {
    const std::string& model_prefix =
        row.is_of_head() ? config.head_prefix : config.backbone_prefix;
    append(row, layer == kNoLayer ? model_prefix : config.layer_prefix(layer), layer, config,
           tensors);
  });
  if (config.has_draft()) append_draft_tensors(config, tensors);
  return tensors;
}

uint64_t num_expected_elements(const ModelConfig& config) {
  uint64_t elements = 0;
  const auto add = [&](const Shape& shape, int64_t tensors) {
    elements =
        checked_add(elements, checked_mul(element_count(shape), static_cast<uint64_t>(tensors)));
  };
  for_each_row(config, [&](const TensorRow& row, int64_t layer) {
    ResolvedRow own = resolved(row, layer, config);
    if (row.role == Role::kNgramEmbedding) {
      own.shape.dims[0] = config.layer(layer).ngram_rows;
      own.tensors = 1;
    }
    add(own.shape, own.tensors);
  });
  std::vector<ExpectedTensor> draft;
  if (config.has_draft()) append_draft_tensors(config, draft);
  for (const ExpectedTensor& tensor : draft) add(tensor.shape, 1);
  return elements;
}

std::vector<ExpertTensor> split_into_experts(const ExpectedTensor& stacked,
                                             const ModelConfig& config) {
  const TensorRow& row = *stacked.row;
  const auto parts = static_cast<int64_t>(row.split.size());
  std::vector<ExpertTensor> experts;
  for (int64_t i = 0; i < stacked.count; ++i)
    for (int64_t part = 0; part < parts; ++part) {
      const SplitRow& own = row.split[static_cast<size_t>(part)];
      const StackedSlice slice{
          .tensor = stacked.name,
          .experts = row.is_flat ? stacked.count : 0,
          .index = i,
          .part = part,
          .parts = parts,
          .is_transposed = row.layout == Layout::kInOut || row.layout == Layout::kInOutInterleaved,
          .is_interleaved =
              row.layout == Layout::kInOutInterleaved || row.layout == Layout::kOutInterleaved};
      experts.push_back({.role = own.role,
                         .name = config.layer_prefix(stacked.layer) + numbered(own.name, i),
                         .shape = shape_of(slice, stacked.shape),
                         .slice = slice});
    }
  return experts;
}

namespace {

/// First or second half of every head.
RowRanges halves_of_heads(int64_t place, const AttentionSizes& sizes) {
  RowRanges ranges;
  for (int64_t head = 0; head < sizes.heads; ++head)
    ranges.emplace_back((2 * head + place) * sizes.head_dim, sizes.head_dim);
  return ranges;
}

/// Rows of Q, K or V (by place) in group order: the queries of a group, then its K and V.
RowRanges rows_by_group(int64_t place, const AttentionSizes& sizes) {
  const int64_t group = sizes.query_width() / sizes.kv_heads;
  const std::array<int64_t, 3> counts{group, sizes.head_dim, sizes.value_dim};
  const int64_t before = std::accumulate(counts.begin(), counts.begin() + place, int64_t{0});
  const int64_t step = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  RowRanges ranges;
  for (int64_t head = 0; head < sizes.kv_heads; ++head)
    ranges.emplace_back(head * step + before, counts[static_cast<size_t>(place)]);
  return ranges;
}

/// Rows of Q, K or V (by place) in CodeGen's order.
RowRanges rows_in_four_blocks(int64_t place, const AttentionSizes& sizes) {
  const int64_t part = sizes.query_width() / 4, order = place == 0 ? 0 : place == 1 ? 2 : 1;
  RowRanges ranges;
  for (int64_t block = 0; block < 4; ++block) ranges.emplace_back((3 * block + order) * part, part);
  return ranges;
}

}  // namespace

namespace {

/// Rows of one of several roles, of different sizes, one behind the other.
RowRanges rows_of_sizes(std::span<const Role> held, int64_t place, const ModelConfig& config,
                        int64_t layer) {
  int64_t begin = 0;
  for (int64_t i = 0;; ++i) {
    const Dim outputs = row_of(held[static_cast<size_t>(i)]).shape.front();
    const int64_t count = config.size_of(outputs, &config.layer(layer));
    if (i == place) return {{begin, count}};
    begin += count;
  }
}

}  // namespace

RowRanges row_ranges(Role role, Role fused_role, int64_t rows, const ModelConfig& config,
                     int64_t layer) {
  const std::vector<Role>& held = row_of(fused_role).holds;
  const int64_t place = std::ranges::find(held, role) - held.begin();
  if (fused_role == Role::kQueryAndGate || fused_role == Role::kQueryAndGateBias)
    return halves_of_heads(place, config.attention(layer));
  if (fused_role == Role::kIndexerQueryKey) return rows_of_sizes(held, place, config, layer);
  if (held.size() == 2) return {{place * rows / 2, rows / 2}};
  if (fused_role == Role::kMixerAll) return rows_of_sizes(held, place, config, layer);
  if (config.architecture->fused_qkv == FusedQkv::kByGroup)
    return rows_by_group(place, config.attention(layer));
  const AttentionSizes& sizes = config.attention(layer);
  if (config.architecture->fused_qkv == FusedQkv::kFourBlocks)
    return rows_in_four_blocks(place, sizes);
  const std::array<int64_t, 3> counts{sizes.query_width(), sizes.key_width(), sizes.value_width()};
  return {{std::accumulate(counts.begin(), counts.begin() + place, int64_t{0}),
           counts[static_cast<size_t>(place)]}};
}

void append_draft_layer(ModelConfig& config) {
  KVCAL_CHECK(config.architecture->draft != DraftLayer::kNone && !config.has_draft());
  LayerConfig draft = config.layer(config.last_attention_layer());
  draft.cache_layer = config.num_layers();
  draft.is_draft = true;
  config.layers.push_back(draft);
}

const std::vector<TensorRow>& draft_input_rows(const ModelConfig& config) {
  static const TensorRows kBehindLast =
      with_usual_shapes({{Role::kDraftEmbeddingNorm, "enorm.weight"},
                         {Role::kDraftHiddenNorm, "hnorm.weight"},
                         {Role::kDraftProjection, "eh_proj.weight"}});
  static const TensorRows kMtp =
      with_usual_shapes({{Role::kDraftEmbeddingNorm, "pre_fc_norm_embedding.weight"},
                         {Role::kDraftHiddenNorm, "pre_fc_norm_hidden.weight"},
                         {Role::kDraftProjection, "fc.weight"}});
  return config.architecture->draft == DraftLayer::kMtp ? kMtp : kBehindLast;
}

std::string draft_input_prefix(const ModelConfig& config) {
  return config.architecture->draft == DraftLayer::kMtp
             ? "mtp."
             : config.layer_prefix(config.num_hidden_layers);
}

bool is_run_by_draft(Role role) {
  using enum Role;
  constexpr std::array kRun{kInputNorm,       kInputNormBias,
                            kQueryNorm,       kKeyNorm,
                            kQuery,           kKey,
                            kValue,           kQueryBias,
                            kKeyBias,         kValueBias,
                            kQueryGate,       kQueryAndGate,
                            kQueryKeyValue,   kQueryKeyValueBias,
                            kQueryDown,       kQueryDownBias,
                            kQueryDownNorm,   kQueryUp,
                            kLatent,          kLatentBias,
                            kLatentNorm,      kQueryGateBias,
                            kQueryAndGateBias};
  return std::ranges::find(kRun, role) != kRun.end();
}

std::string draft_scale_module(const ModelConfig& config, int64_t layer) {
  if (!config.is_draft(layer)) return "";
  const std::string_view inner = config.architecture->draft_scales;
  return config.attention_module(layer) + (inner.empty() ? "" : "." + std::string(inner));
}

namespace {

constexpr std::string_view kWeight = ".weight";

/// transformers' class name for the module of a matrix; empty where the row is no module of its
/// own.
std::string_view class_of(const TensorRow& row) {
  const TensorClass tensor_class = row_of(row.role).tensor_class;
  // Cohere's norms of Q and K have one weight per head.
  const bool is_matrix =
      row.name.ends_with(kWeight) && row.shape.size() == 2 && tensor_class != TensorClass::kNorm;
  if (!is_matrix || row.is_stacked()) return {};
  if (tensor_class == TensorClass::kEmbedding) return "Embedding";
  return row.layout == Layout::kInOut ? "Conv1D" : "Linear";
}

/// Second name of a module; empty where it has none. Source: transformers 5.17
/// `conversion_mapping.py`, "mixtral" and "phimoe"; llm-compressor then makes Linears of the
/// stacked experts.
std::string alias_of(std::string name) {
  static constexpr std::string_view kOld = ".block_sparse_moe.", kNew = ".mlp.";
  static constexpr std::pair<std::string_view, std::string_view> kEndings[] = {
      {".w1", ".gate_proj"}, {".w2", ".down_proj"}, {".w3", ".up_proj"}, {".gate", ".gate"}};
  // Of a text model inside another, and of Inkling.
  if (name.ends_with(".lm_head") || name.ends_with(".unembed")) return "lm_head";
  const size_t place = name.find(kOld);
  for (const auto& [old_ending, new_ending] : kEndings)
    if (place != std::string::npos && name.ends_with(old_ending)) {
      name.replace(name.size() - old_ending.size(), old_ending.size(), new_ending);
      return name.replace(place, kOld.size(), kNew);
    }
  return {};
}

void add_modules(const ModelConfig& config, const TensorRow& row, const std::string& prefix,
                 const LayerConfig* layer, std::vector<ModuleName>& modules) {
  const std::string_view class_name = class_of(row);
  // A tied lm_head is also a module.
  std::vector<Condition> conditions = row.conditions;
  if (row.role == Role::kLmHead)
    std::erase_if(conditions, [](const Condition& condition) {
      return condition.model == &ModelConfig::tie_word_embeddings;
    });
  if (class_name.empty() || !config.holds(conditions, layer) ||
      (row.is_of_head() && config.lacks_head))
    return;
  for (int64_t i = 0; i < config.size_of(row.repeat, layer); ++i) {
    const std::string name = prefix + row.name_of(i);
    const std::string module = name.substr(0, name.size() - kWeight.size());
    const bool is_renamed = !row.module.empty();
    modules.push_back({.name = is_renamed ? prefix + std::string(row.module) : module,
                       .class_name = std::string(class_name),
                       .role = row.role,
                       .index = i,
                       .alias = is_renamed ? module : alias_of(module),
                       .is_interleaved = row.layout == Layout::kOutInterleaved});
    if (row.is_run_by_layers) modules.back().layer = 0;
    if (row.is_run_by_last_layer) modules.back().layer = config.num_hidden_layers - 1;
  }
}

/// The Linears of stacked experts, expert by expert.
void add_slices(const ModelConfig& config, int64_t layer, std::vector<ModuleName>& modules) {
  const auto first = std::ssize(modules);
  const LayerConfig& own = config.layers[static_cast<size_t>(layer)];
  for (const TensorRow& row : config.architecture->layer_tensors) {
    if (row.split.empty() || !config.holds(row.conditions, &own)) continue;
    for (const SplitRow& part : row.split)
      for (int64_t i = 0; part.name.ends_with(kWeight) && i < config.size_of(row.repeat, &own);
           ++i) {
        const std::string name = config.layer_prefix(layer) + numbered(part.name, i);
        modules.push_back({.name = name.substr(0, name.size() - kWeight.size()),
                           .class_name = "Linear",
                           .role = part.role,
                           .index = i,
                           .is_slice = true});
      }
  }
  std::stable_sort(modules.begin() + first, modules.end(),
                   [](const ModuleName& a, const ModuleName& b) { return a.index < b.index; });
}

}  // namespace

std::vector<ModuleName> list_modules(const ModelConfig& config) {
  const Architecture& architecture = *config.architecture;
  std::vector<ModuleName> modules;
  for (const TensorRow& row : architecture.model_tensors)
    add_modules(config, row, row.is_of_head() ? config.head_prefix : config.backbone_prefix,
                nullptr, modules);
  size_t done = modules.size();
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    for (const TensorRow& row : architecture.layer_tensors)
      add_modules(config, row, config.layer_prefix(layer),
                  &config.layers[static_cast<size_t>(layer)], modules);
    add_slices(config, layer, modules);
    if (config.has_attention(layer))
      modules.push_back({.name = config.attention_module(layer),
                         .class_name = std::string(architecture.attention_class),
                         .role = {},
                         .index = layer});
    for (; done < modules.size(); ++done) modules[done].layer = layer;
  }
  // Only K and V of a draft are calibrated, so its Linears are not run.
  if (config.has_draft())
    modules.push_back({.name = config.attention_module(config.num_hidden_layers),
                       .class_name = std::string(architecture.attention_class),
                       .role = {},
                       .index = config.num_hidden_layers,
                       .layer = config.num_hidden_layers});
  return modules;
}

}  // namespace kvcal
