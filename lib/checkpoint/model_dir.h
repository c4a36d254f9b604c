#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"
#include "core/json.h"

namespace kvcal {

inline constexpr std::string_view kSingleFileName = "model.safetensors";
inline constexpr std::string_view kIndexFileName = "model.safetensors.index.json";
/// Folder of chat templates besides the default one.
inline constexpr std::string_view kTemplateFolder = "additional_chat_templates";

/// Folder that holds config.json: path itself, or the snapshot of a hub cache folder
/// (models--org--name/snapshots/<revision>: the one in refs/main, else the only one). Throws Error
/// naming path and the expected files.
fs::path resolve_model_folder(const fs::path& path);

/// Files that the weight_map of an index names, sorted. Throws Error for an index without one, and
/// for names that are no safetensors files of the same folder.
std::vector<std::string> indexed_files(const Json& index);
/// Reads model.safetensors.index.json. Throws Error naming the file.
Json read_index(const fs::path& path);

/// A tensor that the index names and no file holds.
struct AbsentTensor {
  std::string name;
  std::string problem;  ///< with the index's path
};

/// A Hugging Face model: a plain folder with config.json, or a hub cache folder. Owns the mappings;
/// every view borrows from it and stays valid when it is moved.
class ModelDir {
 public:
  /// Throws Error naming path and the expected files, and for links that leave the folder
  /// (check_links).
  explicit ModelDir(const fs::path& path);
  /// Opens these files of the folder, in this order, whatever its index says. Of tensors of one
  /// name the last counts. For readers that imitate other programs.
  ModelDir(const fs::path& path, std::vector<std::string> shard_names);

  const fs::path& path() const { return path_; }              ///< the resolved folder
  const fs::path& given_path() const { return given_path_; }  ///< as the user wrote it
  const Json& config() const { return config_; }              ///< config.json, unchanged
  /// Shards in name order: model.safetensors, or those of model.safetensors.index.json, whose
  /// weight_map must name all tensors of the shards, each in its shard.
  const std::vector<SafetensorsFile>& shards() const { return shards_; }
  const std::vector<std::string>& shard_names() const { return shard_names_; }
  /// model.safetensors.index.json, without the absent tensors; nullptr for a single file.
  const Json* index() const { return index_.is_null() ? nullptr : &index_; }
  /// Tensors that the index names and no file holds: published indexes name prediction layers that
  /// were left out. Who knows which tensors run refuses those of them; else check_complete.
  const std::vector<AbsentTensor>& absent() const { return absent_; }
  /// Throws Error where there are any.
  void check_complete() const;

  /// nullptr where the checkpoint has no such tensor.
  const TensorView* find(std::string_view name) const&;
  const TensorView* find(std::string_view name) && = delete;
  /// Throws Error with "did you mean".
  const TensorView& tensor(std::string_view name) const&;
  const TensorView& tensor(std::string_view name) && = delete;
  /// All tensor names, sorted.
  std::vector<std::string> tensor_names() const;
  /// Files beside the weights that belong to the model (tokenizer, templates, generation_config,
  /// …): all regular files, and those of additional_chat_templates/, except weights, indexes of
  /// them, config.json and hidden files. Relative names, sorted.
  std::vector<std::string> sidecar_files() const;
  /// generation_config.json, or an empty object.
  Json generation_config() const;
  /// Hides these tensors from now on; a shard without other tensors is removed from shards(). Views
  /// must be fetched again.
  void leave_out(const std::set<std::string, std::less<>>& names);
  /// Adds tensors to copies of a shard (SafetensorsFile::add). Views must be fetched again.
  void add(size_t shard, std::vector<TensorSource> sources);
  /// Replaces config() from now on.
  void set_config(Json config) { config_ = std::move(config); }
  /// Elements of all tensors in the files, hidden or not.
  uint64_t num_elements() const { return num_elements_; }
  /// SHA-256 over config.json and every shard, each as "<name>\0<hex digest>\n", in name order.
  std::string sha256() const;

 private:
  void open_single_file();
  /// Throws Error where an index beside the single file is not of that file.
  void check_index_of_single_file();
  void open_indexed_shards();
  void read_config();
  void list_tensors();
  void count_elements();
  /// Throws Error for a tensor in another shard, and for one that is not listed. Returns the
  /// absent.
  std::vector<AbsentTensor> check_weight_map(const Json& weight_map) const;
  [[noreturn]] void fail_without_weights() const;

  fs::path given_path_, path_;
  Json config_, index_;
  std::vector<std::string> shard_names_;
  std::vector<SafetensorsFile> shards_;
  std::vector<AbsentTensor> absent_;
  bool may_repeat_ = false;  ///< whether a name may be in several shards
  std::map<std::string_view, const TensorView*> tensors_;  ///< names and views of shards_
  uint64_t num_elements_ = 0;
};

/// Fingerprint of a checkpoint without a full read: SHA-256 over config.json, and over size,
/// header, and first and last 512 bytes of each tensor of every shard, in name order.
/// ModelDir::sha256 identifies a checkpoint fully. Throws Error where a file cannot be read.
std::string sampled_sha256(const ModelDir& model_dir);

}  // namespace kvcal
