#include "core/output.h"

#include <new>
#include <string>
#include <utility>

#include <sys/mman.h>
#include <sys/stat.h>

#include "core/error.h"
#include "core/file.h"
#include "core/file_in_use.h"
#include "core/files_read.h"
#include "core/folder.h"
#include "core/posix_file.h"
#include "core/process.h"

namespace kvcal {
namespace {

std::string_view name_of(fs::file_type type) {
  switch (type) {
    case fs::file_type::regular:
      return "a file";
    case fs::file_type::directory:
      return "a folder";
    case fs::file_type::symlink:
      return "a symbolic link";
    case fs::file_type::block:
    case fs::file_type::character:
      return "a device";
    case fs::file_type::fifo:
      return "a named pipe";
    case fs::file_type::socket:
      return "a socket";
    default:
      return "something that is neither a file nor a folder";
  }
}

bool has_mark(const fs::path& folder) {
  for (const std::string_view name : {kManifestName, kMarkName})
    if (own_type_of(folder / name) == fs::file_type::regular) return true;
  return false;
}

}  // namespace

void check_replaceable(const fs::path& target, OutputKind kind, bool overwrite) {
  // A name with a slash at its end would be what a link leads to.
  const fs::path place = target.has_filename() ? target : target.parent_path();
  const fs::file_type type = own_type_of(place);
  if (type == fs::file_type::not_found) return;
  if (!overwrite) fail(target.string(), ": exists; pass --overwrite to replace it");
  const bool is_folder = kind == OutputKind::kFolder;
  if (type != (is_folder ? fs::file_type::directory : fs::file_type::regular))
    fail(target.string(), ": is ", name_of(type), "; --overwrite replaces only ",
         is_folder ? "a folder" : "a regular file", " here");
  if (!is_folder) return;
  const std::vector<fs::path> inside = paths_in(place);
  if (!inside.empty() && !has_mark(place))
    fail(target.string(), ": is a folder that kvcal did not write (it holds ",
         inside.front().filename().string(), ", and neither ", kManifestName, " nor ", kMarkName,
         "); --overwrite replaces only its own outputs");
}

void check_holds_no_links(const fs::path& folder) {
  for (const fs::path& path : paths_in(folder)) {
    const fs::file_type type = own_type_of(path);
    if (type == fs::file_type::directory)
      check_holds_no_links(path);
    else if (type != fs::file_type::regular && type != fs::file_type::not_found)
      fail(path.string(), ": is ", name_of(type), ", and kvcal keeps only its own files here");
  }
}

void mark_output(const fs::path& folder) {
  if (own_type_of(folder / kManifestName) != fs::file_type::not_found) return;
  write_text_file(
      folder / kMarkName,
      "kvcal wrote this folder. While this file is here, --overwrite may replace the folder.\n");
}

namespace {

/// Whether the name exists, also as a broken link.
bool has_name(const fs::path& path) {
  return own_type_of(path) != fs::file_type::not_found;
}

/// ".name.partial-<pid>" beside the target.
fs::path scratch_beside(const fs::path& target) {
  return target.parent_path() /
         ("." + target.filename().string() + ".partial-" + std::to_string(::getpid()));
}

/// Makes a file or folder beside the target that no other process has, not even one with the same
/// number in another container. make: creates it, or sets errno; error: start of the message then.
fs::path made_scratch(const fs::path& target, TargetLock& lock, std::string_view error,
                      bool (*make)(const fs::path& scratch)) {
  const fs::path name = scratch_beside(target);
  for (int more = 0;; ++more) {
    fs::path scratch = name;
    if (more > 0) scratch += "-" + std::to_string(more);
    if (!has_name(scratch)) lock.record(scratch);  // before it is there: a kill may come between
    if (make(scratch)) return scratch;
    if (errno != EEXIST) fail_errno(scratch, error);
  }
}

fs::path made_scratch_folder(const fs::path& target, TargetLock& lock) {
  return made_scratch(target, lock, "cannot create folder",
                      [](const fs::path& scratch) { return ::mkdir(scratch.c_str(), 0777) == 0; });
}

fs::path made_scratch_file(const fs::path& target, TargetLock& lock) {
  return made_scratch(target, lock, "cannot create", [](const fs::path& scratch) {
    return Descriptor(scratch, O_WRONLY | O_CREAT | O_EXCL, 0666).get() >= 0;
  });
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

fs::path checked_target(const fs::path& target, OutputKind kind, bool overwrite) {
  if (target.empty()) fail("the path of the output is empty");
  check_replaceable(target, kind, overwrite);
  return output_place(target);
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
  check_not_read(target_);
  scratch_ = made_scratch_folder(target_, *lock_);
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
  if (!scratch_.empty()) remove_tree(scratch_);
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
  check_not_read(target_);
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
  if (!placement_.old().empty()) remove_tree(placement_.old());
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

AtomicFile::AtomicFile(const fs::path& target, bool overwrite, Of of)
    : target_(checked_target(target, OutputKind::kFile, overwrite)),
      overwrite_(overwrite),
      of_(of) {
  check_unread();
  lock_.emplace(target_, TargetLock::Taken::kShared);
  scratch_ = made_scratch_file(target_, *lock_);
}

void AtomicFile::check_unread() const {
  if (of_ == Of::kUser) check_not_read(target_);
}

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
  check_unread();
}

void AtomicFile::settle() {
  scratch_.clear();
  if (!placement_.old().empty()) ::unlink(placement_.old().c_str());
  sync_folder(target_.parent_path());
  lock_.reset();
}

void write_file_atomically(const fs::path& target, std::string_view content, bool overwrite) {
  write_file_atomically(target, overwrite,
                        [&](const fs::path& file) { write_text_file(file, content); });
}

void write_file_atomically(const fs::path& target, bool overwrite,
                           const std::function<void(const fs::path& file)>& write) {
  AtomicFile file(target, overwrite, AtomicFile::Of::kProgram);
  write(file.path());
  file.commit();
}

}  // namespace kvcal
