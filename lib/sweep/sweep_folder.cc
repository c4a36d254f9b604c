#include "sweep/sweep_folder.h"

#include <array>
#include <chrono>
#include <thread>

#include "core/folder.h"
#include "core/hash.h"
#include "core/interrupt.h"
#include "core/output.h"

namespace kvcal {
namespace {

constexpr std::string_view kLockName = "sweep.lock";
constexpr std::array<std::string_view, 5> kFolders{"cells", "calibrations", "checkpoints",
                                                   "statistics", "locks"};

constexpr const char* kSha256 = "sha256";

/// Of a piece's name and its content.
std::string sha256_of_piece(const fs::path& file, const Json& content) {
  return sha256_hex(file.filename().string() + "\n" + dump_json(content));
}

}  // namespace

SweepFolder::SweepFolder(const fs::path& path, Use use, Diagnostics& diagnostics)
    : path_(path), use_(use) {
  if (use == Use::kTask) return;
  check();
  if (use == Use::kLook) return;
  // The lock file marks the folder as a sweep's, so it is made first.
  make_folders(path_);
  lock(diagnostics);
  for (const std::string_view folder : kFolders) make_folders(path_ / folder);
  if (use == Use::kWhole) remove_stale();
}

void SweepFolder::check() const {
  const fs::file_type type = type_of(path_);
  if (type == fs::file_type::not_found) return;
  if (type != fs::file_type::directory) fail(path_.string(), ": is no folder");
  if (!paths_in(path_).empty() && !is_there(path_ / kLockName))
    fail(path_.string(), ": holds something else than a sweep's results; name a new folder");
  check_holds_no_links(path_);
}

void SweepFolder::lock(Diagnostics& diagnostics) {
  const fs::path file = path_ / kLockName;
  lock_.emplace(file, O_RDWR | O_CREAT);
  switch (try_lock(lock_->get(), use_ == Use::kWhole ? LOCK_EX : LOCK_SH)) {
    case Locked::kYes:
      return;
    case Locked::kCannot:
      diagnostics.warn(file.string() + ": cannot lock: " + std::strerror(errno) +
                       "; see that no other run uses the folder");
      return;
    case Locked::kNo:
      break;
  }
  fail(path_.string(), ": is in use by another run of sweep; wait for it, or name another folder");
}

/// Removes files that killed runs did not finish.
void SweepFolder::remove_stale() const {
  const auto clean = [&](const fs::path& folder) {
    for (const fs::path& path : paths_in(folder)) {
      const std::string name = path.filename().string();
      if (name.starts_with('.') &&
          (name.find(".partial-") != std::string::npos || name.ends_with(".kvcal-lock")))
        remove_tree(path);
    }
  };
  clean(path_);
  for (const std::string_view folder : kFolders) clean(path_ / folder);
}

/// The first characters of a fingerprint are enough to tell a sweep's pieces apart.
fs::path SweepFolder::piece(const char* kind, const std::string& fingerprint,
                            const char* ending) const {
  return path_ / kind / (fingerprint.substr(0, 24) + ending);
}

std::optional<Json> SweepFolder::read(const fs::path& file) const {
  if (!is_there(file)) return std::nullopt;
  return in_context(file.string(), [&] { return parse_json(read_text(file)); });
}

std::optional<Json> SweepFolder::read_if_sound(const fs::path& file) const {
  if (!is_there(file)) return std::nullopt;
  const std::string text = read_text(file);  // a file that a disk cannot read may be sound
  try {
    Json json = parse_json(text);
    if (json.is_object()) return json;
  } catch (const Error&) {
  }
  return std::nullopt;
}

std::optional<Json> SweepFolder::read_piece(const fs::path& file) const {
  std::optional<Json> content = read_if_sound(file);
  if (!content) return std::nullopt;
  const Json* found = find_field(*content, kSha256);
  const Json sha256 = found ? *found : Json();
  content->erase(kSha256);
  if (sha256 != sha256_of_piece(file, *content)) return std::nullopt;
  return content;
}

std::optional<Json> SweepFolder::result(const std::string& fingerprint) const {
  const auto kept = read_piece(cell(fingerprint));
  const Json* result = kept ? find_field(*kept, "result") : nullptr;
  return result && result->is_object() ? std::optional(*result) : std::nullopt;
}

void SweepFolder::write(const fs::path& file, const Json& content) const {
  const std::string text = dump_json(content);
  std::error_code error;
  if (fs::file_size(file, error) == text.size() && read_text(file) == text) return;
  write_file_atomically(file, text, true);
}

void SweepFolder::write_piece(const fs::path& file, Json content) const {
  content[kSha256] = sha256_of_piece(file, content);
  write(file, content);
}

void SweepFolder::remove_checkpoint(const std::string& fingerprint) const {
  const fs::path folder = checkpoint(fingerprint);
  const fs::path scratch = folder.parent_path() / ("." + folder.filename().string() + ".partial-" +
                                                   std::to_string(::getpid()));
  std::error_code error;
  fs::rename(folder, scratch, error);
  if (!error) remove_tree(scratch);
}

SweepFolder::PieceLock::PieceLock(const SweepFolder& folder, const std::string& fingerprint)
    : file_(folder.piece("locks", fingerprint, ""), O_RDWR | O_CREAT) {
  while (try_lock(file_.get(), LOCK_EX) == Locked::kNo) {
    throw_if_interrupted();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace kvcal
