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

/// What copy_weights writes.
struct WeightCopy {
  const ModelDir& model;
  const std::vector<Tensor>& tensors;  ///< added to the model's
  /// The tensors lie in a shard of their own even where the model is one file.
  bool is_shared = false;
  /// Folder of an output with the same weights (is_shared), which are linked where the file system
  /// can; empty: they are copied.
  std::filesystem::path linked = {};
};

/// Copies the model's weights into folder and adds tensors to them. One file stays one file, its
/// weights copied by range behind a new header; shards are copied, whole where nothing of them is
/// left out, the tensors become one more shard, and the index names all. Both keep the layout that
/// every loader knows: transformers takes model.safetensors and no index, vLLM, SGLang and TGI take
/// what lies in the folder.
void copy_weights(const WeightCopy& copy, const std::filesystem::path& folder);

/// Names of the files of weights in an output whose tensors lie in a shard of their own.
std::vector<std::string> shared_shard_names(const ModelDir& model);

/// The tensors as sources to write, which borrow from them.
std::vector<TensorSource> sources_of(const std::vector<Tensor>& tensors);

/// A hard link of a file of one output in another, or a copy where the file system has none.
void link_or_copy(const std::filesystem::path& file, const std::filesystem::path& target);

/// The tensors in kScalesFileName, and the index of all shards that lie in folder.
void write_scales_shard(const ModelDir& model, const std::vector<Tensor>& tensors,
                        const std::filesystem::path& folder);

/// The shard's metadata, with "format" where it has none: transformers refuses a file that does not
/// say which framework wrote it.
std::map<std::string, std::string> metadata_of(const SafetensorsFile& shard);

/// What an index says of the tensors of an output.
struct IndexEntries {
  Json weight_map = Json::object();  ///< tensor → shard
  uint64_t total_size = 0, num_elements = 0;
  void add(const TensorView& tensor, const std::string& shard);
};

/// model.safetensors.index.json: the source's, or a new one, with these entries; total_size, and
/// total_parameters where there is one, are counted anew.
std::string index_text(const ModelDir& model, IndexEntries entries);

/// The index of the shards of those names that lie in folder.
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
