#include "core/output.h"

#include <cstdio>
#include <new>
#include <utility>

#include <sys/mman.h>

#include "core/error.h"
#include "core/file.h"
#include "core/file_in_use.h"
#include "core/files_read.h"

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

bool has_mark(const OpenFolder& folder) {
  for (const std::string_view name : {kManifestName, kMarkName})
    if (folder.type_of(std::string(name)) == fs::file_type::regular) return true;
  return false;
}

/// check_replaceable for a name in an open folder. target: what it is called in messages.
void check_entry(const OpenFolder& folder, const std::string& name, const fs::path& target,
                 OutputKind kind, bool overwrite) {
  const fs::file_type type = folder.type_of(name);
  if (type == fs::file_type::not_found) return;
  const bool is_folder = kind == OutputKind::kFolder;
  const bool is_of_kind = type == (is_folder ? fs::file_type::directory : fs::file_type::regular);
  if (is_of_kind && folder.is_mount(name))
    fail(target.string(), ": something is mounted there, so no output can take its place; name ",
         is_folder ? "a folder in it" : "another output");
  if (!overwrite) fail(target.string(), ": exists; pass --overwrite to replace it");
  if (!is_of_kind)
    fail(target.string(), ": is ", name_of(type), "; --overwrite replaces only ",
         is_folder ? "a folder" : "a regular file", " here");
  if (!is_folder) return;
  const OpenFolder old = folder.inside(name);
  const std::vector<std::string> inside = old.names();
  if (!inside.empty() && !has_mark(old))
    fail(target.string(), ": is a folder that kvcal did not write (it holds ", inside.front(),
         ", and neither ", kManifestName, " nor ", kMarkName,
         "); --overwrite replaces only its own outputs");
  if (const auto mount = old.mount_inside())
    fail(target.string(), ": holds ", mount->string(),
         ", where something is mounted; unmount it, or name another output");
}

}  // namespace

void check_replaceable(const fs::path& target, OutputKind kind, bool overwrite) {
  if (const auto entry = entry_at(target))
    check_entry(entry->folder, entry->name, target, kind, overwrite);
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

[[noreturn]] void fail_appeared(const fs::path& target) {
  fail(target.string(), ": appeared while the output was written; nothing was replaced");
}

fs::path checked_target(const fs::path& target, OutputKind kind, bool overwrite) {
  if (target.empty()) fail("the path of the output is empty");
  check_replaceable(target, kind, overwrite);
  return output_place(target);
}

/// Flushes the names in a folder and below it; its files are.
void sync_names(const OpenFolder& folder) {
  for (const std::string& name : folder.names())
    if (folder.type_of(name) == fs::file_type::directory) sync_names(folder.inside(name));
  folder.sync();
}

}  // namespace

AtomicOutput::Parents::Parents(const fs::path& folder, OutputKind kind) {
  const bool may_make = kind == OutputKind::kFolder;
  fs::path there = folder;
  std::vector<std::string> missing;
  while (may_make && there.has_relative_path() && own_type_of(there) == fs::file_type::not_found) {
    missing.push_back(there.filename().string());
    there = there.parent_path();
  }
  way_.emplace_back(there, may_make ? "cannot create folder" : "cannot create a file here");
  try {
    for (auto name = missing.rbegin(); name != missing.rend(); ++name) make(*name);
  } catch (...) {
    take_back();
    throw;
  }
}

void AtomicOutput::Parents::make(const std::string& name) {
  const bool is_made = innermost().make_folder(name);
  if (!is_made && errno != EEXIST) fail_errno(innermost() / name, "cannot create folder");
  OpenFolder made = innermost().inside(name);
  if (!is_made) way_.clear();  // made by another process, which so keeps the others too
  way_.push_back(std::move(made));
}

void AtomicOutput::Parents::take_back() {
  if (are_kept_) return;
  for (size_t i = way_.size(); i-- > 1;)
    if (::unlinkat(way_[i - 1].get(), way_[i].path().filename().c_str(), AT_REMOVEDIR) != 0)
      return;  // not empty: somebody else uses it by now
}

AtomicOutput::AtomicOutput(const fs::path& target, OutputKind kind, bool overwrite, Of of)
    : target_(checked_target(target, kind, overwrite)),
      kind_(kind),
      overwrite_(overwrite),
      of_(of),
      parents_(target_.parent_path(), kind),
      name_(target_.has_filename() ? target_.filename().string() : ".") {
  check_unread();
  const bool is_folder = kind == OutputKind::kFolder;
  lock_.emplace(folder(), name_,
                is_folder ? TargetLock::Taken::kRefused : TargetLock::Taken::kShared);
  make_scratch();
}

/// Makes one that no other process has, not even one with the same number in another container.
void AtomicOutput::make_scratch() {
  const bool is_folder = kind_ == OutputKind::kFolder;
  const std::string first = "." + name_ + ".partial-" + std::to_string(::getpid());
  for (int more = 0;; ++more) {
    const std::string scratch = more == 0 ? first : first + "-" + std::to_string(more);
    path_ = folder() / scratch;
    if (!folder().has(scratch)) lock_->record(scratch);  // first: a kill may come between
    if (is_folder ? folder().make_folder(scratch) : folder().make_file(scratch)) {
      scratch_ = scratch;
      break;
    }
    if (errno != EEXIST) fail_errno(path_, is_folder ? "cannot create folder" : "cannot create");
  }
  try {
    const auto status = folder().status_of(scratch_);
    if (status) scratch_identity_ = identity_of(*status);
    check_scratch();
  } catch (...) {
    folder().remove_tree(scratch_);
    throw;
  }
}

AtomicOutput::~AtomicOutput() {
  if (!scratch_.empty()) folder().remove_tree(scratch_);
}

void AtomicOutput::check_unread() const {
  if (of_ == Of::kUser) check_not_read(folder(), name_);
}

void AtomicOutput::check_scratch() const {
  struct stat status {};
  const bool is_found = ::lstat(path_.c_str(), &status) == 0;
  if (!is_found && errno != ENOENT && errno != ENOTDIR) fail_errno(path_, "cannot look at it");
  if (!is_found || identity_of(status) != scratch_identity_)
    fail(path_.string(), ": was moved or removed while the output was written there");
}

void AtomicOutput::commit() {
  StagedOutputs alone;
  alone.add(*this);
  alone.commit();
}

void AtomicOutput::prepare() {
  check_files_in_use();
  check_scratch();
  if (kind_ == OutputKind::kFolder) {
    mark_output(path_);
    sync_names(folder().inside(scratch_));
  }
  if (!overwrite_ && folder().has(name_)) fail_appeared(target_);
  check_entry(folder(), name_, target_, kind_, overwrite_);
  check_unread();
}

void AtomicOutput::settle() {
  scratch_.clear();
  parents_.keep();
  folder().sync();
  if (!placement_.old().empty()) folder().remove_tree(placement_.old());
  lock_.reset();
}

constexpr size_t kReserveBytes = size_t{512} << 10;

AtomicDirectory::Reserve::Reserve()
    : data_(::mmap(nullptr, kReserveBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
  if (data_ == MAP_FAILED) throw std::bad_alloc();
}

AtomicDirectory::Reserve::~Reserve() {
  ::munmap(data_, kReserveBytes);
}

constexpr std::string_view kCannotRename = "cannot rename the finished output";

void FilePlacement::place(const std::string& finished, const std::string& target,
                          bool may_replace) {
  finished_ = finished;
  target_ = target;
  is_placed_ = folder_.rename(finished, target, RENAME_NOREPLACE);
  if (is_placed_) return;
  const bool is_told = errno != EINVAL && errno != ENOSYS;  // else the file system has no such flag
  if (is_told && errno != EEXIST) fail_errno(folder_ / target, kCannotRename);
  if (is_told || folder_.has(target)) {
    // What has appeared since the output was prepared has not been looked at.
    if (!may_replace) fail_appeared(folder_ / target);
    is_placed_ = folder_.rename(finished, target, RENAME_EXCHANGE);
    if (is_placed_) {
      old_ = finished;
      return;
    }
    const std::string aside = finished + ".old";
    if (!folder_.rename(target, aside))
      fail_errno(folder_ / target, "cannot move the old output aside");
    old_ = aside;
  }
  is_placed_ = folder_.rename(finished, target);
  if (is_placed_) return;
  const int code = errno;
  if (!old_.empty()) folder_.rename(old_, target);
  old_.clear();
  errno = code;
  fail_errno(folder_ / target, kCannotRename);
}

void FilePlacement::take_back() noexcept {
  if (!std::exchange(is_placed_, false)) return;
  if (old_ == finished_) {
    folder_.rename(finished_, target_, RENAME_EXCHANGE);
  } else {
    folder_.rename(target_, finished_);
    if (!old_.empty()) folder_.rename(old_, target_);
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
