#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "hub/hub_cache.h"
#include "hub/hub_request.h"

namespace kvcal {

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
  ~FileHash();
  FileHash(FileHash&&) noexcept;
  FileHash& operator=(FileHash&&) noexcept;
  void update(std::span<const std::byte> bytes);
  /// The hash in the form of the etag; call it last. Empty for an etag that is no hash.
  std::string text();

 private:
  struct State;
  std::unique_ptr<State> state_;
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

  const HubFile& file() const { return file_; }
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
  Retries retries_;
};

}  // namespace kvcal
