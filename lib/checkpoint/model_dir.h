#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"
#include "core/json.h"

namespace kvcal {

/// A Hugging Face model: a plain folder with config.json, or a hub cache folder
/// (models--org--name/snapshots/<revision>, found through refs/main, else the only snapshot).
/// Owns the mappings; every view borrows from it.
class ModelDir {
 public:
  /// Throws Error naming path and what was looked for.
  explicit ModelDir(const fs::path& path);

  const fs::path& path() const { return path_; }             ///< the resolved folder
  const fs::path& given_path() const { return given_path_; } ///< as the user wrote it
  const Json& config() const { return config_; }             ///< config.json as it stands
  /// Shards in name order: model.safetensors, or those of model.safetensors.index.json, whose weight_map is
  /// checked against what the shards hold.
  const std::vector<SafetensorsFile>& shards() const { return shards_; }
  const std::vector<std::string>& shard_names() const { return shard_names_; }
  const Json* index() const { return index_.is_null() ? nullptr : &index_; }

  /// nullptr where the checkpoint has no such tensor.
  const TensorView* find(std::string_view name) const&;
  const TensorView* find(std::string_view name) && = delete;
  /// Throws Error with "did you mean".
  const TensorView& tensor(std::string_view name) const&;
  const TensorView& tensor(std::string_view name) && = delete;
  /// All tensor names, sorted.
  std::vector<std::string> tensor_names() const;
  /// Files beside the weights that belong to the model (tokenizer, templates, generation_config, …): all
  /// regular files except weights, indexes of them, and config.json. Relative names, sorted.
  std::vector<std::string> sidecar_files() const;
  /// generation_config.json, or an empty object.
  Json generation_config() const;
  /// SHA-256 over config.json and every shard, each as "<name>\0<hex digest>\n", in name order.
  std::string sha256() const;

 private:
  fs::path given_path_, path_;
  Json config_, index_;
  std::vector<std::string> shard_names_;
  std::vector<SafetensorsFile> shards_;
  std::map<std::string, const TensorView*, std::less<>> tensors_;
};

}  // namespace kvcal
