#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/model_dir.h"

namespace kvcal {

/// Where the scales of a sharded checkpoint go: its own shards stay byte for byte what they were.
inline constexpr std::string_view kScalesFileName = "model-kv-scales.safetensors";

/// Throws Error where the checkpoint has one of names already, or a shard of kScalesFileName.
void check_tensors_are_new(const ModelDir& model, const std::vector<std::string>& names);

/// Copies the model's weights into folder and adds tensors to them. One file stays one file, its
/// weights copied by range behind a new header; shards are copied whole, the tensors become one
/// more shard, and the index names all. Both keep the layout that every loader knows: transformers
/// takes model.safetensors and no index, vLLM, SGLang and TGI take what lies in the folder.
void copy_weights(const ModelDir& model, const std::vector<Tensor>& tensors,
                  const std::filesystem::path& folder);

/// The shard's metadata, with "format" where it has none: transformers refuses a file that does not
/// say which framework wrote it.
std::map<std::string, std::string> metadata_of(const SafetensorsFile& shard);

/// The source's index for the shards of those names that lie in folder: weight_map and total_size
/// are counted anew, and total_parameters, where there is one, by what was added or left out.
void write_index(const ModelDir& model, const std::vector<std::string>& shard_names,
                 const std::filesystem::path& folder);

/// Copies what belongs to the model beside its weights, except what another run of ours or another
/// quantizer left there.
void copy_sidecar_files(const ModelDir& model, const std::filesystem::path& folder);

/// config.json as compressed-tensors writes it (Python json.dump, indent 2, sorted keys): ASCII, no
/// newline at the end.
std::string config_text(const Json& config);

/// A file of an output folder that is not visible yet (see AtomicDirectory).
void write_text_file(const std::filesystem::path& path, std::string_view text);

}  // namespace kvcal
