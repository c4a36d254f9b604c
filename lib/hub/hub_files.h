#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/hash.h"
#include "hub/hub_cache.h"
#include "hub/hub_id.h"
#include "hub/hub_request.h"

namespace kvcal {

/// The files of a model's repository that are used: safetensors, JSON, tokenizers, chat templates,
/// Python code that engines need beside the checkpoint (it is never run here), and texts such as
/// README.md, recipe.yaml and LICENSE. Not: weights in other forms, other folders, and
/// consolidated.safetensors beside model.safetensors. Throws Error where no weights are left, with
/// those that were found.
std::vector<std::string> model_files(std::span<const std::string> names);

/// Whether a file beside the weights, of so many bytes, may say what they are: config.json, the
/// index, a manifest; not the tokenizer's long files.
bool describes_weights(std::string_view name, uint64_t size);

/// What a local copy of a model lacks, of config.json, all weights, and a tokenizer.
struct MissingModelFiles {
  std::vector<std::string> needed;  ///< without these it is not loaded
  bool lacks_tokenizer = false;
};
/// names: of its files. indexed: the shards that its index names; empty without an index.
MissingModelFiles missing_model_files(std::span<const std::string> names,
                                      std::span<const std::string> indexed);

/// Files that are one data set.
struct HubDataFiles {
  std::vector<std::string> names;
  std::string path;  ///< names them all, below the repository: a file, or a pattern of files
};

/// The data files of a repository that id.path names, or all: those of one kind (Parquet before
/// Arrow, JSON lines, JSON, CSV and text), in one folder, of one split. Files of data are known by
/// their extension. Throws Error where there is none, a shard is missing, or there are several
/// splits or folders, with the names to choose from.
HubDataFiles data_files(const HubId& id, std::span<const std::string> names);

/// A file of a repository at a commit.
struct HubFile {
  std::string name;  ///< below the repository
  std::string etag;  ///< SHA-256 (LFS), git's SHA-1, or of another kind
  uint64_t size = 0;
};

/// Whether a hash can be made that must equal the etag.
bool is_hash(const std::string& etag);

/// SHA-256, or git's SHA-1 of a blob, of a file while it is written; of what kind the etag says.
class FileHash {
 public:
  FileHash(const std::string& etag, uint64_t size);
  void update(std::span<const std::byte> bytes) {
    if (hash_) hash_->update(bytes);
  }
  /// The hash in the form of the etag; call it last. Empty for an etag that is no hash.
  std::string text() { return hash_ ? hash_->hex() : ""; }

 private:
  std::unique_ptr<Digest> hash_;
};

/// The download of one file into blobs/: into ETAG.incomplete, from where an earlier one ended, and
/// then by rename. Size and hash are checked before. Holds the file's lock from the first request
/// on; while another process holds it, nothing is requested.
class FileDownload : public HttpJob {
 public:
  /// Borrows settings and id.
  FileDownload(const HubSettings& settings, const HubId& id, const std::string& commit,
               HubFile file);
  ~FileDownload() override;

  std::optional<HttpRequest> request() override;
  bool is_done() const override { return is_done_; }
  void receive(int status, std::span<const std::byte> bytes) override;
  std::chrono::milliseconds finish(const HttpResponse& response) override;

  uint64_t received() const { return is_done_ ? file_.size : received_; }

 private:
  class Lock;
  class Part;
  void open_part();
  void start_again();
  /// Renames the part where it is whole. Throws Error where it is twice another file than the hub
  /// says; the first time it is fetched again.
  void commit_part();

  const HubSettings& settings_;
  const HubId& id_;
  std::string url_;
  HubFile file_;
  fs::path blob_;
  std::unique_ptr<Lock> lock_;
  std::unique_ptr<Part> part_;
  std::optional<FileHash> hash_;
  uint64_t received_ = 0;
  bool is_first_piece_ = true, is_done_ = false, was_wrong_ = false;
  uint64_t furthest_ = 0;  ///< the most bytes that were there at once
  Retries retries_;
};

/// Makes the snapshot of a commit show these files, whose blobs are there: relative links, or
/// copies where the file system has no links. config.json comes last, and refs/ after it, so that
/// a snapshot that was not finished is not taken for a whole one. Throws Error.
void link_snapshot(const HubCache& cache, const HubId& id, const std::string& commit,
                   std::span<const HubFile> files);

/// Marks the cache for backup programs (https://bford.info/cachedir/).
void mark_cache(const HubCache& cache);

}  // namespace kvcal
