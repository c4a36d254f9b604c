#include "engines/scale_tensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>

#include "core/text.h"
#include "family/expected_tensors.h"
#include "quant/fp8.h"
#include "quant/half.h"

namespace kvcal {
namespace {

/// Ends of names that belong to quantized Linears and say nothing of the cache.
constexpr std::array<std::string_view, 10> kLinearScales{
    ".weight_scale",     ".weight_scale_inv",    ".input_scale",      ".weight_scale_2",
    ".scales",           ".weight_global_scale", ".input_zero_point", ".input_global_scale",
    ".activation_scale", ".weight_zero_point"};

/// Ends of names that are told outside of known attention modules too.
constexpr std::array<std::string_view, 9> kCacheScales{".k_scale",
                                                       ".v_scale",
                                                       ".kv_scale",
                                                       ".q_scale",
                                                       ".k_proj.output_scale",
                                                       ".k_zero_point",
                                                       ".v_zero_point",
                                                       ".v_proj.output_scale",
                                                       ".kv_cache_scaling_factor"};

template <class Ends>
bool ends_with_any(std::string_view name, const Ends& ends) {
  return std::ranges::any_of(ends, [&](std::string_view end) { return name.ends_with(end); });
}

template <class T>
T element(std::span<const std::byte> bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

/// Loaders cast whatever number a scale is stored as; nullopt: none that torch casts.
std::optional<float> value_at(const TensorView& tensor, size_t i) {
  switch (tensor.dtype) {
    case DType::kF32:
      return element<float>(tensor.bytes, i);
    case DType::kF16:
      return to_float(element<F16>(tensor.bytes, i));
    case DType::kBF16:
      return to_float(element<BF16>(tensor.bytes, i));
    case DType::kF64:
      return static_cast<float>(element<double>(tensor.bytes, i));
    case DType::kF8E4M3:
      return fp8::decode(element<uint8_t>(tensor.bytes, i), fp8::Format::kE4m3Fn);
    case DType::kF8E5M2:
      return fp8::decode(element<uint8_t>(tensor.bytes, i), fp8::Format::kE5m2);
    case DType::kBool:
      return element<uint8_t>(tensor.bytes, i) == 0 ? 0.0f : 1.0f;
    case DType::kI8:
      return element<int8_t>(tensor.bytes, i);
    case DType::kU8:
      return element<uint8_t>(tensor.bytes, i);
    case DType::kI32:
      return static_cast<float>(element<int32_t>(tensor.bytes, i));
    case DType::kI64:
      return static_cast<float>(element<int64_t>(tensor.bytes, i));
    default:
      return std::nullopt;
  }
}

/// Scales are a few numbers, at most one a channel; anything larger is none and is not read.
std::vector<float> values_of(const TensorView& tensor) {
  constexpr uint64_t kMost = 65536;
  const uint64_t count = element_count(tensor.shape);
  std::vector<float> values;
  for (size_t i = 0; count <= kMost && i < count; ++i)
    if (const auto value = value_at(tensor, i)) values.push_back(*value);
  return values;
}

struct AttentionModule {
  int64_t layer;
  std::string prefix;  ///< "model.layers.3.self_attn"
};

std::vector<AttentionModule> attention_modules(const ModelConfig& config) {
  std::vector<AttentionModule> modules;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    if (config.has_attention(layer)) modules.push_back({layer, config.attention_module(layer)});
  // Sorted, so that the module of a name is found by search; no prefix begins with another one.
  std::ranges::sort(modules, {}, &AttentionModule::prefix);
  return modules;
}

const AttentionModule* module_of(const std::vector<AttentionModule>& modules,
                                 const std::string& name) {
  auto after = std::ranges::upper_bound(modules, name, {}, &AttentionModule::prefix);
  if (after == modules.begin()) return nullptr;
  --after;
  return name.starts_with(after->prefix) ? &*after : nullptr;
}

/// Place in name of the number of a layer: [begin, end).
std::optional<std::pair<size_t, size_t>> layer_number(std::string_view name) {
  for (const std::string_view before : {".layers.", ".h.", "layers.", "h."}) {
    const size_t at = name.find(before);
    if (at == std::string_view::npos) continue;
    const size_t begin = at + before.size();
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view digits = name.substr(begin, end - begin);
    if (!digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos)
      return std::pair{begin, end};
  }
  return std::nullopt;
}

/// The tensors that accept(name) gives a value for, with it.
template <class Accept>
std::vector<ScaleTensor> collect(const ModelDir& model_dir, const Accept& accept) {
  std::vector<ScaleTensor> found;
  for (size_t shard = 0; shard < model_dir.shards().size(); ++shard) {
    const auto first = static_cast<std::ptrdiff_t>(found.size());
    for (const TensorView& tensor : model_dir.shards()[shard].tensors()) {
      std::optional<ScaleTensor> accepted = accept(std::string(tensor.name));
      if (!accepted) continue;
      accepted->shape = tensor.shape.dims;
      accepted->values = values_of(tensor);
      accepted->file = model_dir.shard_names()[shard];
      found.push_back(*std::move(accepted));
    }
    std::ranges::sort(found.begin() + first, found.end(), {}, &ScaleTensor::name);
  }
  return found;
}

}  // namespace

std::vector<std::string> linear_scale_endings(const ModelDir& model_dir) {
  std::vector<std::string> found;
  for (const std::string_view end : kLinearScales)
    if (std::ranges::any_of(model_dir.shards(), [&](const SafetensorsFile& shard) {
          return std::ranges::any_of(shard.tensors(), [&](const TensorView& tensor) {
            return tensor.name.ends_with(end);
          });
        }))
      found.emplace_back(end);
  return found;
}

bool is_attention_scale(std::string_view name) {
  if (ends_with_any(name, kLinearScales)) return false;
  const std::string plain = ascii_lower(std::string(name));
  return plain.find("scale") != std::string::npos || plain.find("scaling") != std::string::npos ||
         plain.ends_with("amax") || plain.ends_with("zero_point");
}

std::vector<ScaleTensor> find_scale_tensors(const ModelDir& model_dir, const ModelConfig& config) {
  const std::vector<AttentionModule> modules = attention_modules(config);
  return collect(model_dir, [&](const std::string& name) -> std::optional<ScaleTensor> {
    const AttentionModule* module = module_of(modules, name);
    // The dot before the rest stays, as in the engines' rules.
    std::string rest = module ? name.substr(module->prefix.size()) : name;
    if (!module && is_of_prediction_layer(name, config)) return std::nullopt;
    if (module ? !is_attention_scale(rest) : !ends_with_any(name, kCacheScales))
      return std::nullopt;
    return ScaleTensor{.name = name, .layer = module ? module->layer : -1, .rest = std::move(rest)};
  });
}

std::vector<ScaleTensor> draft_scale_tensors(const ModelDir& model_dir, const ModelConfig& config) {
  const int64_t layer = config.num_hidden_layers;
  const std::string module = config.attention_module(layer);
  return collect(model_dir, [&](const std::string& name) -> std::optional<ScaleTensor> {
    if (!name.starts_with(module + ".") || !is_attention_scale(name.substr(module.size())))
      return std::nullopt;
    return ScaleTensor{.name = name, .layer = layer, .rest = name.substr(module.size())};
  });
}

std::string name_in_layer(const ScaleTensor& tensor) {
  const auto number = layer_number(tensor.name);
  if (tensor.layer >= 0 || !number) return tensor.rest;
  return "layer" + tensor.name.substr(number->second);
}

std::string general_name(const ScaleTensor& tensor, const ModelConfig& config) {
  if (tensor.layer >= 0) {
    std::string module = config.attention_module(tensor.layer);
    const std::string number = std::to_string(tensor.layer);
    const size_t at = module.find("." + number + ".");
    if (at != std::string::npos) module.replace(at + 1, number.size(), "N");
    return module + tensor.rest;
  }
  std::string name = tensor.name;
  if (const auto number = layer_number(name))
    name.replace(number->first, number->second - number->first, "N");
  return name;
}

namespace {

using NameSet = std::set<std::string, std::less<>>;

/// Whether the engine makes another model than one of texts, with a head of its own for scores,
/// labels or embeddings. Source: vLLM 0.32, `as_seq_cls_model`, `as_embedding_model`.
bool has_other_head(const ModelDir& model_dir) {
  const auto listed = model_dir.config().find("architectures");
  if (listed == model_dir.config().end() || !listed->is_array() || listed->empty() ||
      !listed->front().is_string())
    return false;
  const auto& name = listed->front().get_ref<const std::string&>();
  return !name.ends_with("ForCausalLM") && !name.ends_with("LMHeadModel") &&
         !name.ends_with("ForConditionalGeneration");
}

struct KnownNames {
  NameSet tensors;
  NameSet modules;   ///< that hold tensors
  NameSet mixtures;  ///< that hold "experts"
};

constexpr std::string_view kExperts = ".experts.";

KnownNames known_names(const ModelConfig& config) {
  KnownNames known;
  const auto add = [&](const std::string& name) {
    known.tensors.insert(name);
    known.modules.insert(name.substr(0, name.rfind('.')));
    if (const size_t at = name.find(kExperts); at != std::string::npos)
      known.mixtures.insert(name.substr(0, at));
  };
  for (const ExpectedTensor& tensor : expected_tensors(config)) add(tensor.name);
  // The file may hold a tied lm_head anyway.
  for (const TensorRow& row : config.architecture->model_tensors)
    if (row.is_of_head()) add(config.head_prefix + std::string(row.name));
  return known;
}

bool is_known_tensor(const std::string& name, const KnownNames& known, bool has_quantized_weights) {
  // Columns in the order of activations, which loaders have no place for any more. Source: vLLM
  // 0.32, run with such a checkpoint.
  if (name.ends_with(".weight_g_idx")) return false;
  if (known.tensors.contains(name) || known.mixtures.contains(name.substr(0, name.find(kExperts))))
    return true;
  if (!known.modules.contains(name.substr(0, name.rfind('.')))) return false;
  return has_quantized_weights || name.ends_with(".bias");
}

/// Of layers that read another one's cache: their K and V, which published checkpoints have all the
/// same, and loaders a place for. Source: vLLM 0.33, models/gemma4.py.
bool is_of_shared_cache(const std::string& name, const ModelConfig& config) {
  constexpr std::array<std::string_view, 4> kEnds{".k_proj.weight", ".v_proj.weight",
                                                  ".k_norm.weight", ".v_norm.weight"};
  if (!ends_with_any(name, kEnds)) return false;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    if (!config.layers[static_cast<size_t>(layer)].has_own_cache &&
        name.starts_with(config.attention_module(layer) + "."))
      return true;
  return false;
}

}  // namespace

std::vector<std::string> foreign_tensors(const ModelDir& model_dir, const ModelConfig& config,
                                         const std::vector<ScaleTensor>& scales,
                                         bool has_quantized_weights) {
  const KnownNames known = known_names(config);
  NameSet own;
  for (const ScaleTensor& scale : scales) own.insert(scale.name);
  NameSet foreign;
  const bool other_head = has_other_head(model_dir);
  for (const std::string& name : model_dir.tensor_names()) {
    if (other_head && is_beside_model(name, config)) continue;
    if (own.contains(name) || is_unused_tensor(name, config) || is_of_shared_cache(name, config) ||
        is_known_tensor(name, known, has_quantized_weights))
      continue;
    ScaleTensor tensor;
    tensor.name = tensor.rest = name;
    foreign.insert(general_name(tensor, config));
  }
  return {foreign.begin(), foreign.end()};
}

}  // namespace kvcal
