#include "hub/file_download.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <variant>

#include "core/error.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/git_blob_hash.h"
#include "core/interrupt.h"
#include "core/posix_file.h"
#include "core/sha256.h"

namespace kvcal {
namespace {

using std::chrono::milliseconds;

bool is_sha256(std::string_view etag) {
  return is_hex(etag, 64);
}

}  // namespace

bool is_hash(const std::string& etag) {
  return is_sha256(etag) || is_commit_hash(etag);
}

struct FileHash::State {
  std::optional<Sha256> sha256;
  std::optional<GitBlobHash> git;
};

FileHash::FileHash(const std::string& etag, uint64_t size) : state_(std::make_unique<State>()) {
  if (is_sha256(etag))
    state_->sha256.emplace();
  else if (is_commit_hash(etag))
    state_->git.emplace(size);
}
FileHash::~FileHash() = default;
FileHash::FileHash(FileHash&&) noexcept = default;
FileHash& FileHash::operator=(FileHash&&) noexcept = default;

void FileHash::update(std::span<const std::byte> bytes) {
  if (state_->sha256) state_->sha256->update(bytes);
  if (state_->git) state_->git->update(bytes);
}

std::string FileHash::text() {
  if (state_->sha256) return state_->sha256->hex();
  return state_->git ? state_->git->hex() : "";
}

/// The lock of a file as huggingface_hub holds it: flock on .locks/.../ETAG.lock.
class FileDownload::Lock {
 public:
  explicit Lock(fs::path path) : path_(std::move(path)) { make_folders(path_.parent_path()); }

  /// Whether it is held now, or the file system has no locks.
  bool take() {
    constexpr mode_t kForGroup = 0664;  // several users may share a cache
    descriptor_ = std::make_unique<Descriptor>(path_, O_RDWR | O_CREAT, kForGroup);
    if (descriptor_->get() < 0) fail_errno(path_, "cannot create");
    if (try_lock(descriptor_->get(), LOCK_EX) == Locked::kNo) return false;
    // Its last holder may have removed the file.
    struct stat open {
    }, named{};
    return ::fstat(descriptor_->get(), &open) == 0 && ::stat(path_.c_str(), &named) == 0 &&
           open.st_ino == named.st_ino && open.st_dev == named.st_dev;
  }

 private:
  fs::path path_;
  std::unique_ptr<Descriptor> descriptor_;
};

/// ETAG.incomplete.
class FileDownload::Part {
 public:
  explicit Part(fs::path path) : path_(std::move(path)), file_(path_, O_RDWR | O_CREAT, 0666) {
    if (file_.get() < 0) fail_errno(path_, "cannot create");
  }

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
  Descriptor file_;
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
  retries_.forget();
}

void FileDownload::commit_part() {
  const std::string found = hash_->text();
  if (is_hash(file_.etag) && found != file_.etag) {
    start_again();
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

}  // namespace kvcal
