#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdio>
#include <new>
#include <utility>

#include "core/file.h"
#include "core/file_in_use.h"
#include "core/folder.h"
#include "core/posix_file.h"
#include "core/replaceable.h"

namespace kvcal {
namespace {

/// ".name.partial-<pid>" beside the target.
fs::path scratch_beside(const fs::path& target) {
  return target.parent_path() /
         ("." + target.filename().string() + ".partial-" + std::to_string(::getpid()));
}

/// Makes a file or folder beside the target that no other process has, not even one with the same
/// number in another container. make: creates it, or sets errno; error: start of the message then.
fs::path made_scratch(const fs::path& target, std::string_view error,
                      bool (*make)(const fs::path& scratch)) {
  const fs::path name = scratch_beside(target);
  for (int more = 0;; ++more) {
    fs::path scratch = name;
    if (more > 0) scratch += "-" + std::to_string(more);
    if (make(scratch)) return scratch;
    if (errno != EEXIST) fail_errno(scratch, error);
  }
}

fs::path made_scratch_folder(const fs::path& target) {
  return made_scratch(target, "cannot create folder",
                      [](const fs::path& scratch) { return ::mkdir(scratch.c_str(), 0777) == 0; });
}

fs::path made_scratch_file(const fs::path& target) {
  return made_scratch(target, "cannot create", [](const fs::path& scratch) {
    return Descriptor(scratch, O_WRONLY | O_CREAT | O_EXCL, 0666).get() >= 0;
  });
}

/// Removes files of killed runs with this target, maybe gigabytes. Call it only with the target's
/// lock.
void remove_stale_scratch(const fs::path& target) {
  const std::string prefix = "." + target.filename().string() + ".partial-";
  std::error_code error;
  for (fs::directory_iterator entries(target.parent_path(), error), end; !error && entries != end;
       entries.increment(error)) {
    const fs::directory_entry& entry = *entries;
    const std::string name = entry.path().filename().string();
    std::error_code ignored;
    const bool is_scratch =
        name.starts_with(prefix) && name.size() > prefix.size() &&
        name.find_first_not_of("0123456789-", prefix.size()) == std::string::npos &&
        entry.symlink_status(ignored).type() == fs::file_type::directory;
    if (is_scratch) fs::remove_all(entry.path(), ignored);
  }
}

/// Exchanges a finished output with an existing one atomically; false where the system cannot.
bool exchange(const fs::path& finished, const fs::path& target) {
#ifdef RENAME_EXCHANGE
  return ::renameat2(AT_FDCWD, finished.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0;
#else
  return false;
#endif
}

/// Device and inode; zeros where nothing exists. Throws Error where the system cannot tell.
std::pair<uint64_t, uint64_t> identity_of(const fs::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) fail_errno(path, "cannot look at it");
    return {};
  }
  return {static_cast<uint64_t>(status.st_dev), static_cast<uint64_t>(status.st_ino)};
}

/// Whether the name exists, also as a broken link.
bool has_name(const fs::path& path) {
  return own_type_of(path) != fs::file_type::not_found;
}

fs::path checked_target(const fs::path& target, OutputKind kind, bool overwrite) {
  if (target.empty()) fail("the path of the output is empty");
  fs::path absolute = fs::absolute(target).lexically_normal();
  if (!absolute.has_filename()) absolute = absolute.parent_path();
  check_replaceable(target, kind, overwrite);
  return absolute;
}

}  // namespace

AtomicDirectory::Parents::Parents(const fs::path& folder) {
  for (fs::path path = folder; !path.empty() && !has_name(path); path = path.parent_path())
    made_.push_back(path);
  try {
    make_folders(folder);
  } catch (const Error&) {
    take_back();
    throw;
  }
}

void AtomicDirectory::Parents::take_back() {
  std::error_code error;
  for (const fs::path& folder : made_)
    if (!fs::remove(folder, error) && error) return;  // not empty: somebody else uses it by now
}

constexpr size_t kReserveBytes = size_t{512} << 10;

AtomicDirectory::Reserve::Reserve()
    : data_(::mmap(nullptr, kReserveBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
  if (data_ == MAP_FAILED) throw std::bad_alloc();
}

void AtomicDirectory::Reserve::release() {
  if (void* data = std::exchange(data_, nullptr)) ::munmap(data, kReserveBytes);
}

AtomicDirectory::AtomicDirectory(const fs::path& target, bool overwrite)
    : target_(checked_target(target, OutputKind::kFolder, overwrite)),
      overwrite_(overwrite),
      parents_(target_.parent_path()),
      lock_(target_) {
  if (lock_->is_held()) remove_stale_scratch(target_);
  scratch_ = made_scratch_folder(target_);
  try {
    scratch_id_ = identity_of(scratch_);
  } catch (const Error&) {
    std::error_code error;
    fs::remove(scratch_, error);
    throw;
  }
}

AtomicDirectory::~AtomicDirectory() {
  reserve_.release();
  std::error_code error;
  if (!scratch_.empty()) fs::remove_all(scratch_, error);
}

/// Throws Error where the folder was moved away and made again, without earlier files.
void AtomicDirectory::check_scratch() const {
  if (identity_of(scratch_) != scratch_id_)
    fail(scratch_.string(), ": was moved or removed while the output was written there");
}

void AtomicDirectory::commit() {
  StagedOutputs alone;
  alone.add(*this);
  alone.commit();
}

void AtomicDirectory::prepare() {
  check_files_in_use();
  check_scratch();
  mark_output(scratch_);
  std::error_code error;
  for (fs::recursive_directory_iterator it(scratch_, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (it->is_directory(ignored)) sync_folder(it->path());
  }
  if (error) fail_code(scratch_, "cannot list the folder", error);
  sync_folder(scratch_);
  if (!has_name(target_)) return;
  if (!overwrite_)
    fail(target_.string(), ": appeared while the output was written; nothing was replaced");
  check_replaceable(target_, OutputKind::kFolder, overwrite_);
}

void AtomicDirectory::place() {
  // What has appeared since prepare has not been looked at.
  if (!overwrite_ && has_name(target_))
    fail(target_.string(), ": appeared while the output was written; nothing was replaced");
  placement_.place(scratch_, target_);
}

void AtomicDirectory::settle() {
  scratch_.clear();
  parents_.keep();
  sync_folder(target_.parent_path());
  std::error_code error;
  if (!placement_.old().empty()) fs::remove_all(placement_.old(), error);
  lock_.reset();
}

void FilePlacement::place(const fs::path& finished, const fs::path& target) {
  finished_ = finished;
  target_ = target;
  if (has_name(target)) {
    if (exchange(finished, target)) {
      old_ = finished;
      is_placed_ = true;
      return;
    }
    const fs::path aside = finished.string() + ".old";
    if (::rename(target.c_str(), aside.c_str()) != 0)
      fail_errno(target, "cannot move the old output aside");
    old_ = aside;
  }
  if (::rename(finished.c_str(), target.c_str()) != 0) {
    const int code = errno;
    if (!old_.empty()) ::rename(old_.c_str(), target.c_str());
    old_.clear();
    errno = code;
    fail_errno(target, "cannot rename the finished output");
  }
  is_placed_ = true;
}

void FilePlacement::take_back() noexcept {
  if (!is_placed_) return;
  is_placed_ = false;
  if (old_ == finished_) {
    exchange(finished_, target_);
  } else {
    ::rename(target_.c_str(), finished_.c_str());
    if (!old_.empty()) ::rename(old_.c_str(), target_.c_str());
  }
  old_.clear();
}

void StagedOutputs::commit() {
  for (StagedOutput* output : outputs_) output->prepare();
  size_t placed = 0;
  try {
    for (; placed < outputs_.size(); ++placed) outputs_[placed]->place();
  } catch (...) {
    while (placed > 0) outputs_[--placed]->take_back();
    throw;
  }
  for (StagedOutput* output : outputs_) output->settle();
}

AtomicFile::AtomicFile(const fs::path& target, bool overwrite)
    : target_(checked_target(target, OutputKind::kFile, overwrite)),
      scratch_(made_scratch_file(target_)),
      overwrite_(overwrite) {}

AtomicFile::~AtomicFile() {
  if (!scratch_.empty()) ::unlink(scratch_.c_str());
}

void AtomicFile::commit() {
  StagedOutputs alone;
  alone.add(*this);
  alone.commit();
}

void AtomicFile::prepare() {
  check_files_in_use();
  check_replaceable(target_, OutputKind::kFile, overwrite_);
}

void AtomicFile::settle() {
  scratch_.clear();
  if (!placement_.old().empty()) ::unlink(placement_.old().c_str());
  sync_folder(target_.parent_path());
}

void write_file_atomically(const fs::path& target, std::string_view content, bool overwrite) {
  write_file_atomically(target, overwrite,
                        [&](const fs::path& file) { write_text_file(file, content); });
}

void write_file_atomically(const fs::path& target, bool overwrite,
                           const std::function<void(const fs::path& file)>& write) {
  AtomicFile file(target, overwrite);
  write(file.path());
  file.commit();
}

}  // namespace kvcal
