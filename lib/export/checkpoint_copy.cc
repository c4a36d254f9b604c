#include "export/checkpoint_copy.h"

#include <algorithm>
#include <array>
#include <map>

#include "core/checked.h"
#include "core/file.h"
#include "core/interrupt.h"
#include "export/attention_scales.h"
#include "export/manifest.h"

namespace kvcal {
namespace {

/// Files of a quantized checkpoint that would lie about this one.
bool is_left_over(std::string_view name) {
  static constexpr std::array<std::string_view, 5> kNames{"recipe.yaml", "kv_cache_scales.json",
                                                          "hf_quant_config.json", kManifestName,
                                                          kVllmArgumentsName};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

std::vector<TensorSource> sources_of(const std::vector<Tensor>& tensors) {
  std::vector<TensorSource> sources;
  for (const Tensor& tensor : tensors) sources.push_back(source_of(tensor));
  return sources;
}

uint64_t count_elements(const SafetensorsFile& shard) {
  uint64_t count = 0;
  for (const TensorView& tensor : shard.tensors())
    count = checked_add(count, element_count(tensor.shape));
  return count;
}

}  // namespace

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

void write_index(const ModelDir& model, const std::vector<std::string>& shard_names,
                 const std::filesystem::path& folder) {
  Json index = *model.index();
  Json& metadata = index["metadata"];
  if (!metadata.is_object()) metadata = Json::object();
  uint64_t total_size = 0, elements = 0, source_elements = 0;
  Json weight_map = Json::object();
  for (const std::string& name : shard_names) {
    const SafetensorsFile shard(folder / name);
    for (const TensorView& tensor : shard.tensors()) {
      total_size = checked_add(total_size, tensor.bytes.size());
      weight_map[std::string(tensor.name)] = name;
    }
    elements = checked_add(elements, count_elements(shard));
  }
  for (const SafetensorsFile& shard : model.shards())
    source_elements = checked_add(source_elements, count_elements(shard));
  index["weight_map"] = std::move(weight_map);
  metadata["total_size"] = total_size;
  const auto parameters = metadata.find("total_parameters");
  if (parameters != metadata.end() && parameters->is_number_unsigned())
    // Whatever the source counted, it is right for what was there before.
    *parameters = checked_add(parameters->get<uint64_t>(), elements) - source_elements;
  write_text_file(folder / kIndexFileName, dump_json(sorted_keys(index)));
}

void copy_weights(const ModelDir& model, const std::vector<Tensor>& tensors,
                  const std::filesystem::path& folder) {
  if (!model.index()) {
    const SafetensorsFile& file = model.shards().front();
    std::vector<TensorSource> sources = sources_of(tensors);
    for (const TensorView& tensor : file.tensors()) sources.push_back(source_of(file, tensor));
    write_safetensors(folder / kSingleFileName, std::move(sources), metadata_of(file));
    return;
  }
  for (const std::string& name : model.shard_names()) {
    throw_if_interrupted();
    kvcal::copy_file(model.path() / name, folder / name);
  }
  write_safetensors(folder / kScalesFileName, sources_of(tensors), {{"format", "pt"}});
  std::vector<std::string> names = model.shard_names();
  names.emplace_back(kScalesFileName);
  write_index(model, names, folder);
}

void copy_sidecar_files(const ModelDir& model, const std::filesystem::path& folder) {
  for (const std::string& name : model.sidecar_files()) {
    if (is_left_over(name)) continue;
    const std::filesystem::path target = folder / name;
    std::filesystem::create_directories(target.parent_path());
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
