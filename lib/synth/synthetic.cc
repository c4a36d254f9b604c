#include "synth/synthetic.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <iterator>
#include <map>
#include <system_error>

#include "checkpoint/model_dir.h"
#include "core/file.h"
#include "core/number.h"
#include "family/config_reader.h"
#include "family/ngram_hashes.h"
#include "family/wrapper.h"
#include "synth/synthetic_values.h"

namespace kvcal {
namespace {

// Keys of config.json with one entry per layer, and with numbers of layers.
constexpr std::array<std::string_view, 17> kListsByLayer{
    "activation_sparsity_pattern",
    "attention_layers",
    "hybrid_override_pattern",
    "intermediate_size",
    "layer_rope_theta",
    "layer_types",
    "layers_block_type",
    "mlp_layer_types",
    "moe_layer_freq",
    "moe_topk",
    "no_rope_layers",
    "num_attention_heads_per_layer",
    "partial_rotary_factors",
    "rope_theta",
    "sparse_attention_config.sparse_attention_freq",
    "swiglu_limits",
    "swiglu_limits_shared"};
constexpr std::string_view kLayersFromOne = "ple_layer_ids";  ///< the others count from 0
constexpr std::array<std::string_view, 4> kListsOfLayers{"attn_layer_indices", "mlp_only_layers",
                                                         "moe_layers", kLayersFromOne};
// Keys of quantized weights and caches.
constexpr std::array<std::string_view, 3> kQuantizationKeys{
    "compression_config", "kv_cache_torch_dtype", "quantization_config"};

/// key: "a.b" for b in the object a.
Json* mutable_field(Json& object, std::string_view key) {
  const size_t dot = key.find('.');
  const auto it = object.find(std::string(key.substr(0, dot)));
  if (it == object.end()) return nullptr;
  if (dot == std::string_view::npos) return &*it;
  return it->is_object() ? mutable_field(*it, key.substr(dot + 1)) : nullptr;
}

/// The object that describes the text model, wherever the wrapper keeps it.
Json& text_of(Json& config, const FamilyChoice& family) {
  // It lies in config, which may be changed.
  return const_cast<Json&>(*text_model_of(config, family).config);
}

/// GPT-Neo's [[words, times], ..], as one entry for each of the first layers.
void cut_attention_types(Json& text, size_t count) {
  const Json* list = find_field(text, "attention_types");
  if (!list || !list->is_array()) return;
  Json kept = Json::array();
  for (const Json& entry : *list)
    for (int64_t i = 0; i < entry.at(1).get<int64_t>(); ++i)
      for (const Json& word : entry.at(0))
        if (kept.size() < count) kept.push_back(Json::array({Json::array({word}), 1}));
  text["attention_types"] = kept;
}

void cut_layers(Json& text, const Architecture& architecture, int64_t num_layers) {
  const auto count = static_cast<size_t>(num_layers);
  for (const std::string_view key : kListsByLayer) {
    Json* list = mutable_field(text, key);
    if (!list) continue;
    if (list->is_string()) *list = list->get<std::string>().substr(0, count);
    if (list->is_array() && list->size() > count)
      list->erase(list->begin() + static_cast<std::ptrdiff_t>(count), list->end());
  }
  for (const std::string_view key : kListsOfLayers) {
    Json* list = mutable_field(text, key);
    if (!list || !list->is_array()) continue;
    Json kept = Json::array();
    for (const Json& layer : *list)
      if (layer.is_number_integer() &&
          layer.get<int64_t>() < num_layers + (key == kLayersFromOne ? 1 : 0))
        kept.push_back(layer);
    *list = kept;
  }
  cut_attention_types(text, count);
  if (Json* overrides = mutable_field(text, "per_layer_config");
      overrides && overrides->is_object())
    for (auto it = overrides->begin(); it != overrides->end();)
      it = std::strtoll(it.key().c_str(), nullptr, 10) < num_layers ? std::next(it)
                                                                    : overrides->erase(it);
  const ConfigReader reader(text, architecture);
  // The last layers read earlier caches; those that are left stay readers.
  if (const auto shared = reader.integer("num_kv_shared_layers");
      shared && architecture.shares_caches)
    text["num_kv_shared_layers"] =
        std::max<int64_t>(0, *shared - (*reader.integer("num_hidden_layers") - num_layers));
  text[std::string(reader.name_of("num_hidden_layers"))] = num_layers;
}

std::string dtype_word(DType dtype) {
  return dtype == DType::kF32 ? "float32" : dtype == DType::kF16 ? "float16" : "bfloat16";
}

/// Sets the dtype under the names that exist.
void set_dtype(Json& config, Json& text, DType dtype) {
  bool is_set = false;
  for (Json* object : {&config, &text})
    for (const std::string_view key : {"dtype", "torch_dtype"})
      if (Json* found = mutable_field(*object, key)) {
        *found = dtype_word(dtype);
        is_set = true;
      }
  if (!is_set) config["torch_dtype"] = dtype_word(dtype);
}

}  // namespace

DType weight_dtype(const ModelConfig& config) {
  return config.dtype == "float32"   ? DType::kF32
         : config.dtype == "float16" ? DType::kF16
                                     : DType::kBF16;
}

Json synthetic_config(const Json& config, const SyntheticOptions& options) {
  Json result = config;
  for (const std::string_view key : kQuantizationKeys) result.erase(std::string(key));
  Json& text = text_of(result, options.family);
  for (const std::string_view key : kQuantizationKeys) text.erase(std::string(key));
  const ModelConfig parsed = parse_model_config(result, options.family);
  if (options.num_layers) {
    if (*options.num_layers < 1 || *options.num_layers > parsed.num_hidden_layers)
      fail("has ", counted(parsed.num_hidden_layers, "layer"), ", ", *options.num_layers,
           " were asked for; expected 1 to ", parsed.num_hidden_layers);
    cut_layers(text, *parsed.architecture, *options.num_layers);
    in_context("the first " + std::to_string(*options.num_layers) + " of " +
                   counted(parsed.num_hidden_layers, "layer"),
               [&] { parse_model_config(result, options.family); });
  }
  set_dtype(result, text, options.dtype.value_or(weight_dtype(parsed)));
  return result;
}

namespace {

/// Tensors of one file and their bytes.
struct Shard {
  std::vector<TensorSource> tensors;
  uint64_t bytes = 0;
};

/// The bytes of constants of a layer's hashes.
std::vector<std::byte> hash_numbers(const ExpectedTensor& tensor, const ModelConfig& config) {
  const NgramHashes hashes =
      ngram_hashes(config.ngrams, config.vocab_size, config.layer(tensor.layer).ngram_index);
  const std::vector<int64_t>& numbers = tensor.row->role == Role::kNgramFactors ? hashes.factors
                                        : tensor.row->role == Role::kNgramSizes ? hashes.sizes
                                                                                : hashes.offsets;
  const auto bytes = std::as_bytes(std::span(numbers));
  return {bytes.begin(), bytes.end()};
}

/// Writes the tensor's bytes from an offset on.
using Generate = std::function<void(uint64_t offset, std::span<std::byte> to)>;

Generate generator_of(const ExpectedTensor& tensor, const ModelConfig& config, DType dtype,
                      uint64_t seed) {
  if (row_of(tensor.row->role).tensor_class == TensorClass::kHashNumber)
    return [bytes = hash_numbers(tensor, config)](uint64_t offset, std::span<std::byte> to) {
      std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(offset), to.size(), to.begin());
    };
  const uint64_t element = static_cast<uint64_t>(bits_of_dtype(dtype)) / 8;
  return
      [values = SyntheticValues(tensor, config, seed), dtype, element](
          uint64_t offset, std::span<std::byte> to) { values.fill(dtype, offset / element, to); };
}

/// Tensors in the order of the tables; a new file starts where the next tensor would make it too
/// large.
std::vector<Shard> shards_of(const ModelConfig& config, const SyntheticOptions& options) {
  const DType weights = weight_dtype(config);
  std::vector<Shard> shards(1);
  for (const ExpectedTensor& tensor : expected_tensors(config)) {
    const bool is_hash = row_of(tensor.row->role).tensor_class == TensorClass::kHashNumber;
    const DType dtype = is_hash ? DType::kI64 : weights;
    const uint64_t bytes = byte_count(tensor.shape, dtype);
    if (!shards.back().tensors.empty() && shards.back().bytes + bytes > options.max_shard_bytes)
      shards.emplace_back();
    shards.back().tensors.push_back(
        {.name = tensor.name,
         .dtype = dtype,
         .shape = tensor.shape,
         .bytes = {},
         .file = {},
         .file_offset = 0,
         .generate = generator_of(tensor, config, dtype, options.seed)});
    shards.back().bytes = checked_add(shards.back().bytes, bytes);
  }
  return shards;
}

/// "model-00001-of-00003.safetensors"
std::string shard_name(size_t index, size_t count) {
  if (count == 1) return std::string(kSingleFileName);
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name;
}

/// Index in transformers' layout.
Json index_of(const std::vector<Shard>& shards, uint64_t total_size) {
  std::map<std::string, std::string> files;
  for (size_t i = 0; i < shards.size(); ++i)
    for (const TensorSource& tensor : shards[i].tensors)
      files[tensor.name] = shard_name(i, shards.size());
  return {{"metadata", {{"total_size", total_size}}}, {"weight_map", files}};
}

/// Checks the free space before anything is made of the tensors.
void check_space(const fs::path& folder, const ModelConfig& config) {
  const auto element = static_cast<uint64_t>(bits_of_dtype(weight_dtype(config))) / 8;
  const uint64_t bytes = checked_mul(num_expected_elements(config), element);
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (!error && space.available < bytes)
    fail("the tensors need ", bytes, " bytes, the disk of ", folder.parent_path().string(), " has ",
         space.available, " free; --layers writes fewer");
}

}  // namespace

SyntheticCheckpoint write_synthetic_checkpoint(const Json& config, const SyntheticOptions& options,
                                               const fs::path& folder, Diagnostics& diagnostics) {
  const Json json = synthetic_config(config, options);
  const ModelConfig parsed = parse_model_config(json, options.family);
  check_space(folder, parsed);
  std::vector<Shard> shards = shards_of(parsed, options);
  SyntheticCheckpoint result{.model_type = parsed.model_type,
                             .num_layers = parsed.num_hidden_layers,
                             .num_files = static_cast<int64_t>(shards.size()),
                             .dtype = weight_dtype(parsed)};
  for (const Shard& shard : shards) {
    result.num_tensors += static_cast<int64_t>(shard.tensors.size());
    result.bytes = checked_add(result.bytes, shard.bytes);
  }

  ThreadPool pool(options.threads);
  uint64_t done = 0;
  const auto report = [&](uint64_t bytes) {
    done += bytes;
    diagnostics.progress("writing", static_cast<int64_t>(done), static_cast<int64_t>(result.bytes),
                         "B");
  };
  write_text_file(folder / "config.json", dump_as_python(json) + "\n");
  if (shards.size() > 1)
    write_text_file(folder / kIndexFileName, dump_json(index_of(shards, result.bytes)));
  for (size_t i = 0; i < shards.size(); ++i)
    write_safetensors(folder / shard_name(i, shards.size()), std::move(shards[i].tensors),
                      {{"format", "pt"}}, {.pool = &pool, .written = report});
  return result;
}

}  // namespace kvcal
