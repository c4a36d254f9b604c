#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/model_dir.h"
#include "export/writer.h"

namespace kvcal {

/// Name of the shard that holds the scales of a sharded checkpoint; the source's own shards stay
/// byte for byte the same.
inline constexpr std::string_view kScalesFileName = "model-kv-scales.safetensors";

/// Throws Error where the checkpoint already has a tensor of names, or a shard named
/// kScalesFileName.
void check_tensors_are_new(const ModelDir& model, const std::vector<std::string>& names);

/// Names of the files of weights in an output whose tensors lie in a shard of their own.
std::vector<std::string> shared_shard_names(const ModelDir& model);

/// The tensors as sources to write, which borrow from them.
std::vector<TensorSource> sources_of(const std::vector<Tensor>& tensors);

/// Writes the tensors as kScalesFileName, and the index of all shards in folder.
void write_scales_shard(const ModelDir& model, const std::vector<Tensor>& tensors,
                        const std::filesystem::path& folder);

/// The shard's metadata, with "format" where it has none: transformers refuses a file that does not
/// say which framework wrote it.
std::map<std::string, std::string> metadata_of(const SafetensorsFile& shard);

/// Writes model.safetensors.index.json of the named shards in folder: the source's with other
/// entries, or a new one. Counts total_size anew, and total_parameters where the source has it.
void write_index(const ModelDir& model, const std::vector<std::string>& shard_names,
                 const std::filesystem::path& folder);

/// Copies the files beside the weights. A file whose name is taken, or that describes another
/// format of the weights, becomes source_NAME, unless the source has such a file: that of the first
/// source stays, so that conversions of conversions collect none. Not copied are files by which an
/// earlier run of kvcal described its output, and the source's model card, whose text the output's
/// card has (export/model_card.h).
void copy_sidecar_files(const ModelDir& model, const std::vector<std::string>& taken,
                        const std::filesystem::path& folder);

/// config.json as compressed-tensors writes it (Python json.dump, indent 2, sorted keys): ASCII, no
/// newline at the end.
std::string config_text(const Json& config);

/// Writes the model with a format's tensors and config.json, and its weights quantized where the
/// plan says so, into folder. first: see Writer::write.
WrittenCheckpoint write_checkpoint(const ExportInput& input, const FormatParts& parts,
                                   const std::filesystem::path& folder,
                                   const WrittenCheckpoint* first);

/// recipe.yaml where there is a recipe, vllm.yaml where layers are ignored: name → content.
std::map<std::string, std::string> recipe_and_arguments(const ExportInput& input);

/// Name of the file that marks a folder as an overlay.
inline constexpr std::string_view kOverlayName = "kvcal_overlay.json";

/// Writes an overlay: the files that a format adds to a checkpoint, without the checkpoint. These
/// are the scales as kScalesFileName, config.json, the index of a sharded model, the format's own
/// files, and kOverlayName, which names the model and the format. Copied into the folder of a
/// sharded checkpoint they give the result of write(); `kvcal apply` does it for any checkpoint.
/// Throws Error where the plan quantizes weights: an overlay holds none.
void write_overlay(const ExportInput& input, const FormatParts& parts, const std::string& format,
                   const std::filesystem::path& folder);

/// Content of kOverlayName.
struct Overlay {
  std::string format;  ///< as --format named it
  std::string model_type;
  int64_t num_hidden_layers = 0;
  Json config;  ///< keys of config.json that the format set
};

/// Throws Error naming file and key.
Overlay read_overlay(const std::filesystem::path& folder);

}  // namespace kvcal
