#include "export/checkpoint_copy.h"

#include <algorithm>
#include <array>
#include <map>

#include "core/file.h"
#include "core/folder.h"
#include "core/number.h"
#include "export/layer_scales.h"
#include "export/manifest.h"
#include "export/model_card.h"
#include "export/planned_weights.h"
#include "export/quantized_copy.h"
#include "export/writer.h"
#include "stored/kv_scales.h"

namespace kvcal {
namespace {

/// Name of the only shard, for a model that was one file and is written in shards.
constexpr std::string_view kOnlyShardName = "model-00001-of-00001.safetensors";

/// Files of a quantized checkpoint that programs would read, and that would be wrong for the
/// output.
bool is_misleading(std::string_view name) {
  constexpr std::array<std::string_view, 5> kNames{kModelOptFileName, kAscendDescriptionName,
                                                   kManifestName, kVllmArgumentsName, kOverlayName};
  return std::ranges::find(kNames, name) != kNames.end() ||
         std::ranges::any_of(kWriters.rows(),
                             [&](const auto& row) { return row.second.file == name; });
}

/// Names of the files beside a model's weights in a copy of it.
class CopiedNames {
 public:
  CopiedNames(const ModelDir& model, const std::vector<std::string>& taken)
      : files_(model.sidecar_files()), taken_(taken) {
    if (!has(files_, kCardName) || !is_readable_card(model.path())) return;
    has_card_ = true;
    is_ours_ = read_source_card(model.path()).is_ours;
  }

  const std::vector<std::string>& files() const { return files_; }

  /// Empty: the file is not copied.
  std::string of(const std::string& name) const {
    if (name == kCardName && has_card_) return {};
    const bool misleads = is_misleading(name);
    // The output has its own of what kvcal wrote.
    if (misleads && (is_ours_ || has(files_, kManifestName))) return {};
    if (!misleads && name != kCardName && !has(taken_, name)) return name;
    std::string kept = "source_" + name;
    return has(files_, kept) ? std::string() : kept;
  }

 private:
  static bool has(const auto& names, std::string_view name) {
    return std::ranges::find(names, name) != std::ranges::end(names);
  }

  const std::vector<std::string> files_;
  const std::vector<std::string>& taken_;
  bool has_card_ = false;  ///< that the output's card holds
  bool is_ours_ = false;
};

/// Content of an index for the tensors of an output.
struct IndexEntries {
  Json weight_map = Json::object();  ///< tensor → shard
  uint64_t total_size = 0, num_elements = 0;

  void add(const TensorView& tensor, const std::string& shard) {
    total_size = checked_add(total_size, tensor.bytes.size());
    num_elements = checked_add(num_elements, element_count(tensor.shape));
    weight_map[std::string(tensor.name)] = shard;
  }
};

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

/// The source's config.json with the parts' keys, as text.
std::string changed_config(const ExportInput& input, const FormatParts& parts) {
  Json config = input.model.config();
  for (const auto& [key, value] : parts.config.items()) config[key] = value;
  if (input.calibration.plan.unties_embedding) untie(config);
  return config_text(config);
}

/// The index of the source's shards and the overlay's.
std::string index_with_scales(const ModelDir& model, const std::vector<Tensor>& tensors) {
  IndexEntries entries;
  for (size_t shard = 0; shard < model.shards().size(); ++shard)
    for (const TensorView& tensor : model.shards()[shard].tensors())
      entries.add(tensor, model.shard_names()[shard]);
  for (const Tensor& tensor : tensors) entries.add(tensor.view(), std::string(kScalesFileName));
  return index_text(model, std::move(entries));
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

void write_scales_shard(const ModelDir& model, const std::vector<Tensor>& tensors,
                        const std::filesystem::path& folder) {
  write_safetensors(folder / kScalesFileName, sources_of(tensors), {{"format", "pt"}});
  std::vector<std::string> names = shared_shard_names(model);
  names.emplace_back(kScalesFileName);
  write_index(model, names, folder);
}

void copy_sidecar_files(const ModelDir& model, const std::vector<std::string>& taken,
                        const std::filesystem::path& folder) {
  const CopiedNames names(model, taken);
  for (const std::string& name : names.files()) {
    const std::string copied = names.of(name);
    if (copied.empty()) continue;
    const std::filesystem::path target = folder / copied;
    // Never creates folder itself: if it vanished, its other files would be missing.
    if (target.parent_path() != folder) std::filesystem::create_directory(target.parent_path());
    kvcal::copy_file(model.path() / name, target);
  }
}

std::string config_text(const Json& config) {
  return dump_as_python(sorted_keys(config));
}

WrittenCheckpoint write_checkpoint(const ExportInput& input, const FormatParts& parts,
                                   const std::filesystem::path& folder,
                                   const WrittenCheckpoint* first) {
  std::vector<std::string> taken;
  for (const auto& [name, content] : parts.files) taken.push_back(name);
  copy_sidecar_files(input.model, taken, folder);
  WrittenCheckpoint written = write_weights(input, parts, folder, first);
  write_text_file(folder / "config.json", changed_config(input, parts));
  return written;
}

std::map<std::string, std::string> recipe_and_arguments(const ExportInput& input) {
  std::map<std::string, std::string> files;
  if (input.recipe) files.emplace("recipe.yaml", to_yaml(*input.recipe));
  if (auto arguments = vllm_arguments(input.calibration))
    files.emplace(kVllmArgumentsName, *std::move(arguments));
  return files;
}

void write_overlay(const ExportInput& input, const FormatParts& parts, const std::string& format,
                   const std::filesystem::path& folder) {
  if (input.calibration.plan.quantizes_weights())
    fail("an overlay holds scales of K and V; FP8 weights make a checkpoint of their own");
  for (const auto& [name, content] : parts.files) write_text_file(folder / name, content);
  if (!parts.has_checkpoint) return;
  write_safetensors(folder / kScalesFileName, sources_of(parts.tensors), {{"format", "pt"}});
  write_text_file(folder / "config.json", changed_config(input, parts));
  if (input.model.index())
    write_text_file(folder / kIndexFileName, index_with_scales(input.model, parts.tensors));
  const Json overlay = {{"format", format},
                        {"model_type", required_string(input.model.config(), "model_type")},
                        {"num_hidden_layers", input.calibration.num_hidden_layers},
                        {"config", parts.config}};
  write_text_file(folder / kOverlayName, dump_json(overlay));
}

Overlay read_overlay(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kOverlayName;
  if (!is_there(file))
    fail(folder.string(), ": is no overlay: it has no ", kOverlayName,
         ", which --scales-only writes");
  const std::string text = read_text(file, size_t{16} << 20);
  return in_context(file.string(), [&] {
    const Json json = parse_json(text);
    Overlay overlay{.format = required_string(json, "format"),
                    .model_type = required_string(json, "model_type"),
                    .num_hidden_layers = required_int(json, "num_hidden_layers"),
                    .config = Json::object()};
    const Json* config = find_field(json, "config");
    if (!config || !config->is_object()) fail_missing("config", "an object");
    overlay.config = *config;
    in_context("key 'format'", [&] { make_writer(overlay.format); });
    return overlay;
  });
}

}  // namespace kvcal
