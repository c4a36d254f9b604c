#include "checkpoint/model_dir.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/hash.h"
#include "core/json.h"
#include "core/links.h"
#include "core/number.h"
#include "core/output.h"
#include "core/posix_file.h"
#include "core/registry.h"
#include "core/safe_points.h"
#include "core/text.h"

namespace kvcal {
namespace {

void check_entries(const fs::path& inner, const AllowedLinks& links) {
  if (!is_folder(inner)) return;
  SafePoints points(1024);
  for (const fs::path& path : paths_in(inner)) {
    points.pass();
    const std::string name = path.filename().string();
    if (name.starts_with('.')) continue;
    std::error_code error;
    const bool is_link = fs::is_symlink(path, error);
    if (error) fail_code(path, "cannot find out what it is", error);
    if (is_link && (name == kTemplateFolder || !is_folder(path))) links.check(path);
  }
}

/// Throws Error where a file of a checkpoint's folder that would be read or copied is a symbolic
/// link out of it.
void check_links(const fs::path& folder) {
  const AllowedLinks links(folder, "checkpoint");
  check_entries(folder, links);
  check_entries(folder / kTemplateFolder, links);
}

constexpr std::string_view kShardSuffix = ".safetensors";
constexpr std::string_view kIndexSuffix = ".index.json";
/// Five times the tensors and shards of the largest known models.
constexpr JsonLimits kIndexLimits{.max_bytes = size_t{64} << 20, .max_values = 700'000};
constexpr size_t kMostShards = 1000;

/// Names of the entries of a folder that are regular files (or links to one), sorted; no hidden
/// ones.
std::vector<std::string> files_in(const fs::path& folder) {
  std::vector<std::string> names;
  SafePoints points(1024);
  for (const fs::path& path : paths_in(folder)) {
    points.pass();
    const std::string name = path.filename().string();
    if (name.starts_with('.')) continue;
    const fs::file_type type = type_of(path);
    // A silently skipped file would be missed later.
    if (type == fs::file_type::not_found) fail(path.string(), ": is a link that leads nowhere");
    if (type != fs::file_type::regular && type != fs::file_type::directory)
      fail(path.string(), ": is neither a file nor a folder");
    if (type == fs::file_type::regular) names.push_back(name);
  }
  return names;
}

/// Weights in any format, and other files that safetensors replaces.
bool is_weight_file(std::string_view name) {
  static constexpr std::array<std::string_view, 14> kSuffixes{
      ".safetensors", ".bin",  ".pt", ".pth", ".ckpt",      ".gguf",   ".h5",
      ".msgpack",     ".onnx", ".ot", ".npz", ".onnx_data", ".tflite", ".index.json"};
  return std::ranges::any_of(kSuffixes,
                             [&](std::string_view suffix) { return name.ends_with(suffix); });
}

/// The revision that refs/main of a hub cache folder names, or "" without that file.
std::string main_revision(const fs::path& cache_folder) {
  const fs::path ref = cache_folder / "refs" / "main";
  if (!is_there(ref)) return "";
  std::string revision = read_text(ref, 4096);
  while (!revision.empty() && (revision.back() == '\n' || revision.back() == '\r'))
    revision.pop_back();
  if (revision.empty() || revision.starts_with('.') || revision.find('/') != std::string::npos)
    fail(ref.string(), ": holds '", revision, "', expected the name of a snapshot");
  return revision;
}

fs::path snapshot_of(const fs::path& cache_folder) {
  const fs::path snapshots = cache_folder / "snapshots";
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(snapshots, error), end; !error && it != end; it.increment(error))
    if (is_folder(it->path())) names.push_back(it->path().filename().string());
  std::sort(names.begin(), names.end());
  const std::string wanted = main_revision(cache_folder);
  if (!wanted.empty()) {
    if (!std::binary_search(names.begin(), names.end(), wanted))
      fail(cache_folder.string(), ": refs/main names snapshot ", wanted, ", snapshots/ holds ",
           names.empty() ? "none" : join(names, ", "));
    return snapshots / wanted;
  }
  if (names.empty()) fail(snapshots.string(), ": holds no snapshot");
  if (names.size() > 1)
    fail(cache_folder.string(), ": has no refs/main and ", names.size(),
         " snapshots; pass one of them: ", join(names, ", "));
  return snapshots / names.front();
}

}  // namespace

fs::path resolve_model_folder(const fs::path& path) {
  if (!is_there(path))
    fail(path.string(), ": no such folder; give a local model folder or hub cache folder");
  if (!is_folder(path)) fail(path.string(), ": is a file, expected the model's folder");
  if (is_there(path / "config.json")) return path;
  if (is_folder(path / "snapshots")) {
    const fs::path snapshot = snapshot_of(path);
    if (is_there(snapshot / "config.json")) return snapshot;
    fail(snapshot.string(), ": has no config.json; the download may be incomplete");
  }
  fail(path.string(), ": has no config.json and is no hub cache folder (no snapshots/)");
}

std::vector<std::string> indexed_files(const Json& index) {
  const Json* weight_map = find_field(index, "weight_map");
  if (!weight_map) fail_missing("weight_map", "an object: tensor name → shard");
  if (!weight_map->is_object())
    fail_kind("weight_map", "an object: tensor name → shard", *weight_map);
  std::set<std::string> names;
  for (const auto& item : weight_map->items()) {
    if (!item.value().is_string()) fail_kind(item.key(), "the name of a shard", item.value());
    names.insert(item.value().get<std::string>());
    if (names.size() > kMostShards) fail("weight_map names more than ", kMostShards, " shards");
  }
  // A shard is a file in the model's own folder, and no path leads out of that.
  for (const std::string& name : names)
    if (!name.ends_with(kShardSuffix) || name.starts_with('.') ||
        name.find_first_of("/\\") != std::string::npos)
      fail("weight_map names shard '", name,
           "', expected a name like model-00001-of-00002.safetensors");
  return {names.begin(), names.end()};
}

Json read_index(const fs::path& path) {
  return read_json_object(path, kIndexLimits);
}

ModelDir::ModelDir(const fs::path& path, std::vector<std::string> shard_names)
    : given_path_(path),
      path_(resolve_model_folder(path)),
      shard_names_(std::move(shard_names)),
      may_repeat_(true) {
  read_config();
  for (const std::string& name : shard_names_) shards_.emplace_back(path_ / name);
  list_tensors();
  count_elements();
}

ModelDir::ModelDir(const fs::path& path) : given_path_(path), path_(resolve_model_folder(path)) {
  read_config();
  const bool has_single = is_there(path_ / kSingleFileName);
  const bool has_index = is_there(path_ / kIndexFileName);
  if (has_single) {
    open_single_file();
    // Engines differ in which of the two they load.
    if (has_index) check_index_of_single_file();
  } else if (has_index) {
    open_indexed_shards();
  } else {
    fail_without_weights();
  }
  count_elements();
}

void ModelDir::read_config() {
  check_links(path_);
  config_ = read_model_config(path_ / "config.json");
}

void ModelDir::count_elements() {
  for (const auto& [name, tensor] : tensors_)
    num_elements_ = checked_add(num_elements_, element_count(tensor->shape));
}

void ModelDir::open_single_file() {
  shard_names_.emplace_back(kSingleFileName);
  shards_.emplace_back(path_ / kSingleFileName);
  list_tensors();
}

void ModelDir::check_index_of_single_file() {
  const fs::path index_path = path_ / kIndexFileName;
  const Json index = read_index(index_path);
  in_context(index_path.string(), [&] {
    const std::vector<std::string> files = indexed_files(index);
    if (files != shard_names_)
      fail("weight_map names ", files.empty() ? "no file" : files.front(), ", and the folder has ",
           kSingleFileName, "; engines differ in which they load");
    absent_ = check_weight_map(index.at("weight_map"));
  });
}

void ModelDir::list_tensors() {
  tensors_.clear();
  for (const SafetensorsFile& shard : shards_)
    for (const TensorView& tensor : shard.tensors())
      if (!tensors_.insert_or_assign(tensor.name, &tensor).second && !may_repeat_)
        fail("tensor '", tensor.name, "' is in more than one shard, the second is ",
             shard.file().path().filename().string());
}

void ModelDir::leave_out(const std::set<std::string, std::less<>>& names) {
  std::vector<SafetensorsFile> shards;
  std::vector<std::string> shard_names;
  for (size_t i = 0; i < shards_.size(); ++i) {
    const bool had_tensors = !shards_[i].tensors().empty();
    shards_[i].leave_out(names);
    if (had_tensors && shards_[i].tensors().empty()) continue;
    shards.push_back(std::move(shards_[i]));
    shard_names.push_back(std::move(shard_names_[i]));
  }
  shards_ = std::move(shards);
  shard_names_ = std::move(shard_names);
  list_tensors();
}

void ModelDir::add(size_t shard, std::vector<TensorSource> sources) {
  shards_[shard].add(std::move(sources));
  list_tensors();
}

void ModelDir::open_indexed_shards() {
  const fs::path index_path = path_ / kIndexFileName;
  index_ = read_index(index_path);
  in_context(index_path.string(), [&] {
    shard_names_ = indexed_files(index_);
    if (shard_names_.empty()) fail("weight_map is empty");
    const std::string first = shard_names_.front();
    std::erase_if(shard_names_, [&](const std::string& name) { return !is_there(path_ / name); });
    if (shard_names_.empty()) fail("weight_map names shard ", first, ", which does not exist");
  });
  for (const std::string& name : shard_names_) shards_.emplace_back(path_ / name);
  in_context(index_path.string(), [&] {
    list_tensors();
    absent_ = check_weight_map(index_.at("weight_map"));
  });
  for (const AbsentTensor& tensor : absent_) index_.at("weight_map").erase(tensor.name);
}

void ModelDir::check_complete() const {
  if (!absent_.empty()) fail(absent_.front().problem);
}

std::vector<AbsentTensor> ModelDir::check_weight_map(const Json& weight_map) const {
  std::vector<AbsentTensor> absent;
  const std::string where = (path_ / kIndexFileName).string() + ": ";
  for (const auto& item : weight_map.items()) {
    const std::string& name = item.value().get_ref<const std::string&>();
    const auto shard = std::ranges::lower_bound(shard_names_, name);
    if (shard == shard_names_.end() || *shard != name) {
      absent.push_back(
          {item.key(), where + "weight_map names shard " + name + ", which does not exist"});
    } else if (!shards_[static_cast<size_t>(shard - shard_names_.begin())].find(item.key())) {
      const std::string problem =
          "weight_map puts tensor '" + item.key() + "' into " + name + ", which does not hold it";
      if (find(item.key())) fail(problem);  // another shard holds it
      absent.push_back({item.key(), where + problem});
    }
  }
  if (weight_map.size() - absent.size() == tensors_.size()) return absent;
  std::set<std::string_view> listed;
  for (const auto& item : weight_map.items()) listed.insert(item.key());
  for (const auto& [name, tensor] : tensors_)
    if (!listed.contains(name)) fail("weight_map lacks tensor '", name, "', which a shard holds");
  return absent;
}

void ModelDir::fail_without_weights() const {
  std::vector<std::string> shards, others;
  for (const std::string& name : files_in(path_)) {
    if (name.ends_with(kShardSuffix))
      shards.push_back(name);
    else if (is_weight_file(name) && !name.ends_with(kIndexSuffix))
      others.push_back(name);
  }
  const std::string where = path_.string();
  if (!shards.empty() && shards.front().starts_with("model-"))
    fail(where, ": has ", shards.size(), " shards (", shards.front(), ", …) and no ",
         kIndexFileName);
  if (!shards.empty())
    fail(where, ": has ", shards.front(), ", expected ", kSingleFileName, " or ", kIndexFileName);
  if (!others.empty())
    fail(where, ": has weights only as ", others.front(), "; safetensors is needed (",
         kSingleFileName, " or ", kIndexFileName, ")");
  fail(where, ": has no weights, expected ", kSingleFileName, " or ", kIndexFileName);
}

const TensorView* ModelDir::find(std::string_view name) const& {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : it->second;
}

const TensorView& ModelDir::tensor(std::string_view name) const& {
  if (const TensorView* found = find(name)) return *found;
  fail(path_.string(), ": has no tensor '", name, "'", did_you_mean(name, tensor_names()));
}

std::vector<std::string> ModelDir::tensor_names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, tensor] : tensors_) names.emplace_back(name);
  return names;
}

std::vector<std::string> ModelDir::sidecar_files() const {
  std::vector<std::string> names;
  for (const std::string& name : files_in(path_))
    if (name != "config.json" && name != kMarkName && !is_weight_file(name)) names.push_back(name);
  const fs::path templates = path_ / kTemplateFolder;
  if (is_folder(templates))
    for (const std::string& name : files_in(templates))
      names.push_back(std::string(kTemplateFolder) + "/" + name);
  std::sort(names.begin(), names.end());
  return names;
}

Json ModelDir::generation_config() const {
  const fs::path path = path_ / "generation_config.json";
  if (!is_there(path)) return Json::object();
  return read_json_object(path, kSmallFileLimits);
}

std::string ModelDir::sha256() const {
  std::vector<std::string> names = shard_names_;
  names.emplace_back("config.json");
  std::sort(names.begin(), names.end());
  Sha256 hash;
  for (const std::string& name : names) {
    hash.update(name);
    hash.update(std::string_view("\0", 1));
    hash.update(sha256_of_file(path_ / name));
    hash.update("\n");
  }
  return hash.hex();
}

std::string sampled_sha256(const ModelDir& model_dir) {
  Sha256 hash;
  hash.update(read_text(model_dir.path() / "config.json"));
  for (const SafetensorsFile& shard : model_dir.shards()) {
    const auto bytes = shard.file().bytes();
    hash.update(std::to_string(bytes.size()) + "\n");
    hash.update(bytes.first(shard.data_offset()));
    for (const TensorView& tensor : shard.tensors()) {
      const size_t part = std::min(size_t{512}, tensor.bytes.size());
      hash.update(tensor.bytes.first(part));
      hash.update(tensor.bytes.last(part));
    }
    shard.file().drop(bytes);
  }
  return hash.hex();
}

}  // namespace kvcal
