#include "export/checkpoint_copy.h"

#include <algorithm>
#include <array>
#include <map>

#include "core/checked.h"
#include "core/file.h"
#include "core/interrupt.h"
#include "export/attention_scales.h"
#include "export/manifest.h"
#include "export/overlay.h"

namespace kvcal {
namespace {

/// Name of the only shard, for a model that was one file and is written in shards.
constexpr std::string_view kOnlyShardName = "model-00001-of-00001.safetensors";

/// Files of a quantized checkpoint that would be wrong for the output.
bool is_left_over(std::string_view name) {
  static constexpr std::array<std::string_view, 6> kNames{
      "recipe.yaml", "kv_cache_scales.json", "hf_quant_config.json",
      kManifestName, kVllmArgumentsName,     kOverlayName};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

}  // namespace

std::vector<TensorSource> sources_of(const std::vector<Tensor>& tensors) {
  std::vector<TensorSource> sources;
  for (const Tensor& tensor : tensors) sources.push_back(source_of(tensor));
  return sources;
}

void check_tensors_are_new(const ModelDir& model, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (model.find(name)) fail(model.path().string(), ": has a tensor ", name, " already");
  const auto& shards = model.shard_names();
  if (std::find(shards.begin(), shards.end(), kScalesFileName) != shards.end())
    fail(model.path().string(), ": has a shard ", kScalesFileName, " already");
}

std::map<std::string, std::string> metadata_of(const SafetensorsFile& shard) {
  std::map<std::string, std::string> metadata = shard.metadata();
  metadata.emplace("format", "pt");
  return metadata;
}

void IndexEntries::add(const TensorView& tensor, const std::string& shard) {
  total_size = checked_add(total_size, tensor.bytes.size());
  num_elements = checked_add(num_elements, element_count(tensor.shape));
  weight_map[std::string(tensor.name)] = shard;
}

std::string index_text(const ModelDir& model, IndexEntries entries) {
  Json index = model.index() ? *model.index() : Json::object();
  Json metadata = index.value("metadata", Json::object());
  if (!metadata.is_object()) metadata = Json::object();
  metadata["total_size"] = entries.total_size;
  const auto parameters = metadata.find("total_parameters");
  if (parameters != metadata.end() && parameters->is_number_unsigned()) {
    // The source's count is right for its own tensors.
    const uint64_t with_ours = checked_add(parameters->get<uint64_t>(), entries.num_elements);
    *parameters = with_ours - std::min(with_ours, model.num_elements());
  }
  index["metadata"] = std::move(metadata);
  index["weight_map"] = std::move(entries.weight_map);
  return dump_json(sorted_keys(index));
}

void write_index(const ModelDir& model, const std::vector<std::string>& shard_names,
                 const std::filesystem::path& folder) {
  IndexEntries entries;
  for (const std::string& name : shard_names) {
    const SafetensorsFile shard(folder / name);
    for (const TensorView& tensor : shard.tensors()) entries.add(tensor, name);
  }
  write_text_file(folder / kIndexFileName, index_text(model, std::move(entries)));
}

std::vector<std::string> shared_shard_names(const ModelDir& model) {
  return model.index() ? model.shard_names()
                       : std::vector<std::string>{std::string(kOnlyShardName)};
}

void link_or_copy(const std::filesystem::path& file, const std::filesystem::path& target) {
  std::error_code error;
  std::filesystem::create_hard_link(file, target, error);
  if (error) kvcal::copy_file(file, target);
}

void write_scales_shard(const ModelDir& model, const std::vector<Tensor>& tensors,
                        const std::filesystem::path& folder) {
  write_safetensors(folder / kScalesFileName, sources_of(tensors), {{"format", "pt"}});
  std::vector<std::string> names = shared_shard_names(model);
  names.emplace_back(kScalesFileName);
  write_index(model, names, folder);
}

namespace {

void copy_shard(const SafetensorsFile& shard, const std::filesystem::path& target,
                ThreadPool* pool) {
  throw_if_interrupted();
  if (shard.is_whole()) return kvcal::copy_file(shard.file().path(), target);
  std::vector<TensorSource> sources;
  for (const TensorView& tensor : shard.tensors()) sources.push_back(source_of(shard, tensor));
  write_safetensors(target, std::move(sources), metadata_of(shard), {.pool = pool});
}

}  // namespace

void copy_weights(const WeightCopy& copy, const std::filesystem::path& folder) {
  const ModelDir& model = copy.model;
  if (!model.index() && !copy.is_shared) {
    const SafetensorsFile& file = model.shards().front();
    std::vector<TensorSource> sources = sources_of(copy.tensors);
    for (const TensorView& tensor : file.tensors()) sources.push_back(source_of(file, tensor));
    write_safetensors(folder / kSingleFileName, std::move(sources), metadata_of(file),
                      {.pool = copy.pool});
    return;
  }
  const std::vector<std::string> names = shared_shard_names(model);
  for (size_t i = 0; i < names.size(); ++i)
    if (copy.linked.empty())
      copy_shard(model.shards()[i], folder / names[i], copy.pool);
    else
      link_or_copy(copy.linked / names[i], folder / names[i]);
  write_scales_shard(model, copy.tensors, folder);
}

void copy_sidecar_files(const ModelDir& model, const std::filesystem::path& folder) {
  for (const std::string& name : model.sidecar_files()) {
    if (is_left_over(name)) continue;
    const std::filesystem::path target = folder / name;
    // Never creates folder itself: if it vanished, its other files would be missing.
    if (target.parent_path() != folder) std::filesystem::create_directory(target.parent_path());
    kvcal::copy_file(model.path() / name, target);
  }
}

std::string config_text(const Json& config) {
  return dump_as_python(sorted_keys(config));
}

void write_text_file(const std::filesystem::path& path, std::string_view text) {
  FileWriter writer(path);
  writer.write(text);
  writer.close();
}

}  // namespace kvcal
