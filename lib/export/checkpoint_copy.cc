#include "export/checkpoint_copy.h"

#include <algorithm>
#include <array>
#include <map>

#include "core/checked.h"
#include "core/file.h"
#include "core/interrupt.h"
#include "export/manifest.h"

namespace kvcal {
namespace {

/// Files of a quantized checkpoint that would lie about this one.
bool is_left_over(std::string_view name) {
  static constexpr std::array<std::string_view, 4> kNames{"recipe.yaml", "kv_cache_scales.json",
                                                          "hf_quant_config.json", kManifestName};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

/// transformers refuses a file that does not say which framework wrote it.
std::map<std::string, std::string> with_format(std::map<std::string, std::string> metadata) {
  metadata.emplace("format", "pt");
  return metadata;
}

std::vector<TensorSource> sources_of(const std::vector<Tensor>& tensors) {
  std::vector<TensorSource> sources;
  for (const Tensor& tensor : tensors) sources.push_back(source_of(tensor));
  return sources;
}

/// The source's index with the tensors in it, and the sums in its metadata made right.
Json extended_index(const ModelDir& model, const std::vector<Tensor>& tensors) {
  Json index = *model.index();
  Json& metadata = index["metadata"];
  if (!metadata.is_object()) metadata = Json::object();
  uint64_t total_size = 0, added_elements = 0;
  for (const SafetensorsFile& shard : model.shards())
    for (const TensorView& tensor : shard.tensors())
      total_size = checked_add(total_size, tensor.bytes.size());
  for (const Tensor& tensor : tensors) {
    total_size = checked_add(total_size, tensor.bytes.size());
    added_elements += element_count(tensor.shape);
    index["weight_map"][tensor.name] = kScalesFileName;
  }
  metadata["total_size"] = total_size;
  const auto parameters = metadata.find("total_parameters");
  if (parameters != metadata.end() && parameters->is_number_unsigned())
    *parameters = checked_add(parameters->get<uint64_t>(), added_elements);
  return sorted_keys(index);
}

}  // namespace

void check_tensors_are_new(const ModelDir& model, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (model.find(name)) fail(model.path().string(), ": has a tensor ", name, " already");
  const auto& shards = model.shard_names();
  if (std::find(shards.begin(), shards.end(), kScalesFileName) != shards.end())
    fail(model.path().string(), ": has a shard ", kScalesFileName, " already");
}

void copy_weights(const ModelDir& model, const std::vector<Tensor>& tensors,
                  const std::filesystem::path& folder) {
  if (!model.index()) {
    const SafetensorsFile& file = model.shards().front();
    std::vector<TensorSource> sources = sources_of(tensors);
    for (const TensorView& tensor : file.tensors()) sources.push_back(source_of(file, tensor));
    write_safetensors(folder / kSingleFileName, std::move(sources), with_format(file.metadata()));
    return;
  }
  for (const std::string& name : model.shard_names()) {
    throw_if_interrupted();
    kvcal::copy_file(model.path() / name, folder / name);
  }
  write_safetensors(folder / kScalesFileName, sources_of(tensors), with_format({}));
  write_text_file(folder / kIndexFileName, dump_json(extended_index(model, tensors)));
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
