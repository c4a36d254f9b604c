#include "hub/hub_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>

#include <fnmatch.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/interrupt.h"
#include "core/posix_file.h"
#include "core/text.h"

namespace kvcal {
namespace {

constexpr std::string_view kSafetensors = ".safetensors", kIndex = ".safetensors.index.json";
constexpr std::string_view kTemplates = "additional_chat_templates/";

bool ends_with_any(std::string_view name, std::span<const std::string_view> ends) {
  return std::ranges::any_of(ends, [&](std::string_view end) { return name.ends_with(end); });
}

bool has(std::span<const std::string> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

bool is_beside_weights(std::string_view name) {
  constexpr std::array<std::string_view, 9> kEnds{".json", ".jinja", ".model", ".tiktoken", ".txt",
                                                  ".md",   ".yaml",  ".yml",   ".py"};
  constexpr std::array<std::string_view, 6> kTexts{"license", "licence",    "notice",
                                                   "readme",  "use_policy", "citation"};
  const std::string lower = ascii_lower(std::string(name));
  return ends_with_any(lower, kEnds) || std::ranges::any_of(kTexts, [&](std::string_view text) {
           return lower.starts_with(text) && lower.find('.') == lower.npos;
         });
}

/// Weights in forms that are not read, for the message.
bool is_other_weights(std::string_view name) {
  constexpr std::array<std::string_view, 8> kEnds{".bin",     ".pt",   ".pth", ".ckpt",
                                                  ".msgpack", ".gguf", ".h5",  ".onnx"};
  return ends_with_any(name, kEnds);
}

}  // namespace

std::vector<std::string> model_files(std::span<const std::string> names) {
  const bool has_model = std::ranges::any_of(names, [](const std::string& name) {
    return name.starts_with("model") && name.ends_with(kSafetensors);
  });
  std::vector<std::string> wanted, others;
  bool has_weights = false;
  for (const std::string& name : names) {
    if (name.starts_with('.')) continue;
    const bool is_template = name.starts_with(kTemplates) && name.ends_with(".jinja");
    if (name.find('/') != name.npos && !is_template) continue;
    if (is_other_weights(name)) others.push_back(name);
    if (has_model && name.starts_with("consolidated")) continue;
    has_weights = has_weights || name.ends_with(kSafetensors);
    if (name.ends_with(kSafetensors) || is_template || is_beside_weights(name))
      wanted.push_back(name);
  }
  if (!has_weights)
    fail("has no safetensors", others.empty() ? "" : ", but " + join(others, ", "),
         "; expected model.safetensors or model-00001-of-....safetensors");
  return wanted;
}

bool describes_weights(std::string_view name, uint64_t size) {
  constexpr std::array<std::string_view, 3> kLong{kIndex, "kv_cache_scales.json",
                                                  "kvcal_manifest.json"};
  constexpr std::array<std::string_view, 4> kEnds{".json", ".py", ".yaml", ".yml"};
  constexpr uint64_t kMostBytes = uint64_t{1} << 20;
  return ends_with_any(name, kLong) || (ends_with_any(name, kEnds) && size <= kMostBytes);
}

MissingModelFiles missing_model_files(std::span<const std::string> names,
                                      std::span<const std::string> indexed) {
  constexpr std::array<std::string_view, 4> kTokenizers{"tokenizer.json", "tokenizer.model",
                                                        "vocab.json", "tekken.json"};
  MissingModelFiles missing;
  if (!has(names, "config.json")) missing.needed.push_back("config.json");
  for (const std::string& shard : indexed)
    if (!has(names, shard)) missing.needed.push_back(shard);
  const bool has_weights = std::ranges::any_of(
      names, [](const std::string& name) { return name.ends_with(kSafetensors); });
  const bool has_index =
      std::ranges::any_of(names, [](const std::string& name) { return name.ends_with(kIndex); });
  const bool is_shard_alone = !has(names, "model.safetensors") && !has_index;
  if (!has_weights && indexed.empty()) missing.needed.push_back("model.safetensors");
  if (has_weights && is_shard_alone) missing.needed.push_back("model.safetensors.index.json");
  missing.lacks_tokenizer = std::ranges::none_of(
      kTokenizers, [&](std::string_view tokenizer) { return has(names, tokenizer); });
  return missing;
}

namespace {

/// Kinds of data files, the one that is taken where a repository has several first.
constexpr std::array<std::array<std::string_view, 2>, 6> kDataKinds{{{".parquet", ".parquet"},
                                                                     {".arrow", ".feather"},
                                                                     {".jsonl", ".ndjson"},
                                                                     {".json", ".json"},
                                                                     {".csv", ".tsv"},
                                                                     {".txt", ".text"}}};

/// Name without the ending of a packed file.
std::string_view unpacked_name(std::string_view name) {
  for (const std::string_view packed : {".gz", ".zst"})
    if (name.ends_with(packed)) return name.substr(0, name.size() - packed.size());
  return name;
}

size_t kind_of_data(const std::string& name) {
  const std::string lower = ascii_lower(name);
  const std::string_view plain = unpacked_name(lower);
  size_t kind = 0;
  while (kind < kDataKinds.size() && !ends_with_any(plain, kDataKinds[kind])) ++kind;
  return kind;
}

/// What lies beside data and is none.
bool is_beside_data(const std::string& name) {
  constexpr std::array<std::string_view, 8> kBeside{"readme",       "license",      "licence",
                                                    "dataset_info", "dataset_dict", "state.json",
                                                    "config",       "requirements"};
  const std::string file = ascii_lower(std::filesystem::path(name).filename().string());
  return name.starts_with('.') || file.starts_with('.') ||
         std::ranges::any_of(kBeside,
                             [&](std::string_view text) { return file.starts_with(text); });
}

/// A file's name taken apart: "data/train-00001-of-00003-0123456789abcdef.parquet".
struct Shard {
  std::string group;    ///< "data/train", or the whole name where it is no shard
  std::string pattern;  ///< of all shards of the group
  size_t number = 0, count = 0;
};

Shard shard_of(const std::string& name) {
  constexpr std::string_view kOf = "-of-";
  constexpr size_t kDigits = 5;
  const auto is_number = [&](size_t at) {
    return at + kDigits <= name.size() &&
           std::all_of(name.begin() + static_cast<std::ptrdiff_t>(at),
                       name.begin() + static_cast<std::ptrdiff_t>(at + kDigits),
                       [](char c) { return c >= '0' && c <= '9'; });
  };
  const size_t of = name.rfind(kOf);
  if (of == name.npos || of < kDigits + 1 || name[of - kDigits - 1] != '-' ||
      !is_number(of - kDigits) || !is_number(of + kOf.size()))
    return {.group = name, .pattern = name};
  const std::string count = name.substr(of + kOf.size(), kDigits);
  const std::string group = name.substr(0, of - kDigits - 1);
  const size_t dot = name.find('.', of);
  return {.group = group,
          .pattern = group + "-[0-9][0-9][0-9][0-9][0-9]" + std::string(kOf) + count + "*" +
                     (dot == name.npos ? "" : name.substr(dot)),
          .number = std::stoul(name.substr(of - kDigits, kDigits)),
          .count = std::stoul(count)};
}

/// Names that the id's path selects: a file, a folder, or a pattern.
bool is_selected(const std::string& name, const std::string& path) {
  return path.empty() || name == path ||
         name.starts_with(path.ends_with('/') ? path : path + "/") ||
         ::fnmatch(path.c_str(), name.c_str(), FNM_PATHNAME) == 0;
}

void check_shards(const HubId& id, const std::string& group, const std::vector<Shard>& shards) {
  std::set<size_t> numbers;
  for (const Shard& shard : shards) numbers.insert(shard.number);
  for (size_t i = 0; i < shards.front().count; ++i)
    if (!numbers.contains(i))
      fail(id.text(), ": shard ", i, " of the ", shards.front().count, " of '", group,
           "' is missing");
}

}  // namespace

HubDataFiles data_files(const HubId& id, std::span<const std::string> names) {
  size_t kind = kDataKinds.size();
  const auto is_data = [&](const std::string& name) {
    return is_selected(name, id.path) && (name == id.path || !is_beside_data(name));
  };
  for (const std::string& name : names)
    if (is_data(name)) kind = std::min(kind, kind_of_data(name));
  std::map<std::string, std::vector<Shard>> groups;
  HubDataFiles files;
  for (const std::string& name : names) {
    if (kind == kDataKinds.size() || !is_data(name) || kind_of_data(name) != kind) continue;
    const Shard shard = shard_of(name);
    groups[shard.group].push_back(shard);
    files.names.push_back(name);
    files.path = shard.pattern;
  }
  if (groups.empty())
    fail(id.text(), ": has no data file (.parquet, .arrow, .jsonl, .json, .csv, .txt)",
         id.path.empty() ? "" : " that '" + id.path + "' names");
  if (groups.size() > 1) {
    constexpr size_t kShown = 12;
    std::vector<std::string> choices;
    for (const auto& [group, shards] : groups)
      if (choices.size() < kShown)
        choices.push_back("'" + id.text() + "/" + group + (shards[0].count > 0 ? "-*'" : "'"));
    fail(id.text(), ": holds ", counted(groups.size(), "split"),
         " or parts; choose one: ", join(choices, ", "), groups.size() > kShown ? ", ..." : "");
  }
  const auto& [group, shards] = *groups.begin();
  if (shards.front().count > 0) check_shards(id, group, shards);
  return files;
}

namespace {

using std::chrono::milliseconds;

bool is_sha256(std::string_view etag) {
  return is_hex(etag, 64);
}

}  // namespace

bool is_hash(const std::string& etag) {
  return is_sha256(etag) || is_commit_hash(etag);
}

FileHash::FileHash(const std::string& etag, uint64_t size) {
  if (is_sha256(etag))
    hash_ = std::make_unique<Digest>(Sha256());
  else if (is_commit_hash(etag))
    hash_ = std::make_unique<Digest>(GitBlobHash(size));
}

/// The lock of a file as huggingface_hub holds it: flock on .locks/.../ETAG.lock.
class FileDownload::Lock {
 public:
  explicit Lock(fs::path path) : path_(std::move(path)) { make_folders(path_.parent_path()); }

  /// Whether it is held now, or the file system has no locks.
  bool take() {
    constexpr mode_t kForGroup = 0664;  // several users may share a cache
    file_ = std::make_unique<OwnFile>(path_, O_RDWR | O_CREAT, kForGroup);
    return try_lock(file_->get(), LOCK_EX) != Locked::kNo && is_still_at(file_->get(), path_);
  }

 private:
  fs::path path_;
  std::unique_ptr<OwnFile> file_;
};

/// ETAG.incomplete.
class FileDownload::Part {
 public:
  explicit Part(fs::path path) : path_(std::move(path)), file_(path_, O_RDWR | O_CREAT) {}

  const fs::path& path() const { return path_; }
  uint64_t size() const {
    struct stat status {};
    if (::fstat(file_.get(), &status) != 0) fail_errno(path_, "cannot look at");
    return static_cast<uint64_t>(status.st_size);
  }
  void clear() { cut_file(file_.get(), 0, path_); }
  void write(std::span<const std::byte> bytes, uint64_t offset) {
    write_all_at(file_.get(), bytes, offset, path_);
  }
  void flush() { flush_file(file_.get(), path_); }
  void hash_into(FileHash& hash) const {
    std::vector<std::byte> buffer(size_t{1} << 20);
    for (uint64_t at = 0;;) {
      throw_if_interrupted();
      const size_t count = read_at(file_.get(), buffer, at, path_);
      if (count == 0) return;
      hash.update(std::span(buffer).first(count));
      at += count;
    }
  }

 private:
  fs::path path_;
  OwnFile file_;
};

FileDownload::FileDownload(const HubSettings& settings, const HubId& id, const std::string& commit,
                           HubFile file)
    : settings_(settings),
      id_(id),
      url_(file_url(settings, id, commit, file.name)),
      file_(std::move(file)),
      blob_(HubCache(settings.cache).blob(id, file_.etag)) {}

FileDownload::~FileDownload() = default;

void FileDownload::open_part() {
  make_folders(blob_.parent_path());
  part_ = std::make_unique<Part>(blob_.string() + ".incomplete");
  hash_.emplace(file_.etag, file_.size);
  received_ = part_->size();
  // A part of a file without a hash may be of another file.
  if (received_ > file_.size || (received_ > 0 && !is_hash(file_.etag))) return start_again();
  part_->hash_into(*hash_);
}

void FileDownload::start_again() {
  part_->clear();
  hash_.emplace(file_.etag, file_.size);
  received_ = 0;
}

std::optional<HttpRequest> FileDownload::request() {
  if (!lock_) {
    auto lock = std::make_unique<Lock>(HubCache(settings_.cache).lock(id_, file_.etag));
    if (!lock->take()) return std::nullopt;
    lock_ = std::move(lock);
  }
  if (!part_ && is_there(blob_)) {  // another process has fetched it, or another snapshot has it
    is_done_ = true;
    return std::nullopt;
  }
  if (!part_) open_part();
  if (received_ == file_.size) commit_part();
  if (is_done_) return std::nullopt;
  is_first_piece_ = true;
  return HttpRequest{.url = url_, .token = settings_.token, .offset = received_};
}

void FileDownload::receive(int status, std::span<const std::byte> bytes) {
  if (status != 200 && status != 206) return;  // the text of an error
  // A server without ranges sends the whole file.
  if (is_first_piece_ && status == 200 && received_ > 0) start_again();
  is_first_piece_ = false;
  if (received_ + bytes.size() > file_.size)
    fail(id_.text(), ": ", file_.name, ": the hub sends more than the ", file_.size,
         " bytes that it announced");
  part_->write(bytes, received_);
  hash_->update(bytes);
  received_ += bytes.size();
  // Only what no earlier answer had is progress: a hub may cut each at the same place.
  if (received_ <= furthest_) return;
  furthest_ = received_;
  retries_.forget();
}

void FileDownload::commit_part() {
  const std::string found = hash_->text();
  if (is_hash(file_.etag) && found != file_.etag) {
    start_again();
    furthest_ = 0;
    const char* kind = is_sha256(file_.etag) ? "SHA-256" : "git's SHA-1";
    if (std::exchange(was_wrong_, true)) {
      fs::remove(part_->path());
      fail(id_.text(), ": ", file_.name, ": arrived damaged, twice: its ", kind, " is ", found,
           ", the hub says ", file_.etag);
    }
    return;
  }
  part_->flush();
  fs::rename(part_->path(), blob_);
  part_.reset();
  is_done_ = true;
}

milliseconds FileDownload::finish(const HttpResponse& response) {
  constexpr int kRangeNotThere = 416;
  const bool is_success =
      response.error.empty() && (response.status == 200 || response.status == 206);
  if (is_success && received_ == file_.size) {
    commit_part();
    return milliseconds(0);
  }
  if (response.status == kRangeNotThere && received_ > 0) {
    start_again();
    return milliseconds(0);
  }
  HttpResponse judged = response;
  if (is_success) judged.error = "it ended early";
  if (const auto pause = retries_.pause_after(judged)) return *pause;
  fail_response(settings_, id_, file_.name, judged);
}

namespace {

void link_file(const fs::path& blob, const fs::path& target) {
  if (is_there(target)) return;  // a link to its blob, which cannot change
  make_folders(target.parent_path());
  // No other process uses this name.
  const fs::path scratch = target.string() + "." + std::to_string(::getpid()) + ".tmp";
  std::error_code error;
  fs::remove(scratch, error);
  fs::create_symlink(blob.lexically_relative(target.parent_path()), scratch, error);
  if (error) kvcal::copy_file(blob, scratch);
  fs::rename(scratch, target, error);
  if (error) {
    fs::remove(scratch);
    fail_code(target, "cannot create", error);
  }
}

void write_text(const fs::path& target, std::string_view text) {
  make_folders(target.parent_path());
  write_file_atomically(target, text, /*overwrite=*/true);
}

}  // namespace

void link_snapshot(const HubCache& cache, const HubId& id, const std::string& commit,
                   std::span<const HubFile> files) {
  const fs::path snapshot = cache.snapshot(id, commit);
  std::vector<HubFile> ordered(files.begin(), files.end());
  std::stable_partition(ordered.begin(), ordered.end(),
                        [](const HubFile& file) { return file.name != "config.json"; });
  for (const HubFile& file : ordered) link_file(cache.blob(id, file.etag), snapshot / file.name);
  if (id.is_commit() || cache.commit(id) == commit) return;
  write_text(cache.ref(id), commit);
}

void mark_cache(const HubCache& cache) {
  const fs::path tag = cache.root() / "CACHEDIR.TAG";
  if (!is_there(tag))
    write_text(tag,
               "Signature: 8a477f597d28d172789f06886806bc55\n"
               "# This folder is a cache of files of the Hugging Face hub.\n");
}

}  // namespace kvcal
