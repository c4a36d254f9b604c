#include "core/target_lock.h"

#include <array>
#include <chrono>
#include <sstream>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/posix_file.h"
#include "core/process.h"

namespace kvcal {
namespace {

constexpr std::string_view kFirstWord = "process ";

std::string this_process() {
  return std::string(kFirstWord) + std::to_string(::getpid()) + " on " + host_name();
}

/// Reads nothing of an empty file, such as one that was just made: what cannot be read was there
/// before, and stays.
std::string text_of(int descriptor, const fs::path& file) {
  struct stat status {};
  if (::fstat(descriptor, &status) == 0 && status.st_size == 0) return {};
  std::array<std::byte, 4096> bytes;
  const size_t count = read_at(descriptor, bytes, 0, file);
  return {reinterpret_cast<const char*>(bytes.data()), count};
}

/// The holder, as it says of itself. It writes that at once, so the wait is short.
std::string holder(int descriptor, const fs::path& file) {
  constexpr std::chrono::milliseconds kPause{5};
  for (int tries = 0; tries < 100; ++tries) {
    const std::string text = text_of(descriptor, file);
    if (text.starts_with(kFirstWord)) return text.substr(0, text.find('\n'));
    std::this_thread::sleep_for(kPause);
  }
  return "another process";
}

bool is_of_this_user(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 && status.st_uid == ::geteuid();
}

/// Whether name is one that a run with this target gives to what it makes: ".TARGET.partial-12-1".
bool is_scratch_name(std::string_view name, const std::string& target) {
  const std::string prefix = "." + target + ".partial-";
  return name.starts_with(prefix) && name.size() > prefix.size() &&
         name.find_first_not_of("0123456789-", prefix.size()) == std::string_view::npos;
}

}  // namespace

TargetLock::TargetLock(const OpenFolder& folder, std::string target, Taken taken)
    : folder_(folder), target_(std::move(target)), file_("." + target_ + ".kvcal-lock") {
  if (take(taken)) write(this_process() + "\n");
}

bool TargetLock::take(Taken taken) {
  const fs::path path = folder_ / file_;
  for (;;) {
    OwnFile file(folder_, file_, O_RDWR | O_CREAT);
    const Locked locked = try_lock(file.get(), LOCK_EX);
    if (locked == Locked::kNo && taken == Taken::kShared) return false;
    if (locked == Locked::kNo)
      fail((folder_ / target_).string(), ": is being written by ", holder(file.get(), path),
           "; let it end, or give another output");
    const std::string before = text_of(file.get(), path);
    if (!before.empty() && !before.starts_with(kFirstWord))
      fail(path.string(), ": is no lock that kvcal wrote; remove it, or give another output");
    if (locked == Locked::kYes) {
      if (!is_still_at(file.get(), file_, folder_.get())) continue;
      if (is_of_this_user(file.get())) remove_left_behind(before);
    }
    descriptor_ = file.release();
    return true;
  }
}

TargetLock::~TargetLock() {
  if (descriptor_ < 0) return;
  ::unlinkat(folder_.get(), file_.c_str(),
             0);  // still held: nobody else has this name open and locked
  ::close(descriptor_);
}

void TargetLock::remove_left_behind(const std::string& lines) const {
  std::istringstream text(lines);
  std::string name;
  std::getline(text, name);  // the process
  while (std::getline(text, name))
    if (is_scratch_name(name, target_)) folder_.remove_tree(name);
}

void TargetLock::write(const std::string& text) {
  text_ = text;
  // A failure costs a name in a message, or leaves something behind after a kill: no reason to end.
  if (::ftruncate(descriptor_, 0) == 0)
    static_cast<void>(
        retried([&] { return ::pwrite(descriptor_, text_.data(), text_.size(), 0); }));
}

void TargetLock::record(const std::string& scratch) {
  if (descriptor_ >= 0) write(text_ + scratch + "\n");
}

}  // namespace kvcal
