#include "core/file_in_use.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <string>

#include "core/error.h"

namespace kvcal {

/// One mapping and its state. A signal handler may read it at any time, so entries are never freed,
/// only reused; one that lost a page is kept.
struct FileInUse::Entry {
  std::atomic<uintptr_t> begin{0};
  std::atomic<size_t> size{0};  ///< 0: free
  std::atomic<Entry*> next{nullptr};
  std::string path;
  struct stat status {};
  bool may_grow = false;

  enum class Change { kSame, kReplaced, kChanged };
  /// Whether the file has changed; a removed or replaced file stays mapped.
  Change look() const {
    struct stat now {};
    if (may_grow || ::stat(path.c_str(), &now) != 0) return Change::kSame;
    if (now.st_dev != status.st_dev || now.st_ino != status.st_ino) return Change::kReplaced;
    const bool is_same = now.st_size == status.st_size &&
                         now.st_mtim.tv_sec == status.st_mtim.tv_sec &&
                         now.st_mtim.tv_nsec == status.st_mtim.tv_nsec;
    return is_same ? Change::kSame : Change::kChanged;
  }
};

/// Process-wide state, like the signal itself.
struct FilesInUse {
  using Entry = FileInUse::Entry;
  static inline std::mutex mutex;  ///< of who adds and takes away; the handler takes none
  static inline std::atomic<Entry*> entries{nullptr};
  static inline std::atomic<Entry*> lost{nullptr};  ///< the first that lost a page
  static inline std::atomic<size_t> lost_at{0};
  static inline std::atomic<bool> has_changed{false};
  static inline std::string changed;  ///< the first that was seen to change

  static Entry* free_entry() {
    for (Entry* entry = entries; entry; entry = entry->next)
      if (entry->size == 0) return entry;
    auto* entry = new Entry;
    entry->next = entries.load();
    entries = entry;
    return entry;
  }

  static Entry* holding(uintptr_t address) {
    for (Entry* entry = entries; entry; entry = entry->next) {
      const uintptr_t begin = entry->begin;
      if (address >= begin && address - begin < entry->size) return entry;
    }
    return nullptr;
  }

  static void remember(const Entry& entry) {
    if (has_changed) return;
    changed = entry.path;
    has_changed = true;
  }

  /// Maps zeros from the page of address to the end of its mapping: a cut file has lost them all.
  static bool replace(const Entry& entry, uintptr_t address) {
    const auto page = static_cast<uintptr_t>(::getpagesize());
    const uintptr_t from = address / page * page;
    return ::mmap(reinterpret_cast<void*>(from), entry.begin + entry.size - from, PROT_READ,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
  }

  static void on_signal(int number, siginfo_t* info, void*) {
    const int code = errno;
    const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
    Entry* entry = info->si_code > 0 ? holding(address) : nullptr;
    Entry* none = nullptr;
    // The address is set before the flag, so that a reader of the flag finds the address.
    if (entry && !lost) lost_at = address - entry->begin;
    if (entry) lost.compare_exchange_strong(none, entry);
    // Otherwise the system's default action happens when the instruction runs again.
    if (!entry || !replace(*entry, address)) ::signal(number, SIG_DFL);
    errno = code;
  }
};

FileInUse::FileInUse(const std::filesystem::path& file, const struct stat& status,
                     const std::byte* begin, bool may_grow) {
  const std::lock_guard lock(FilesInUse::mutex);
  entry_ = FilesInUse::free_entry();
  entry_->path = file.string();
  entry_->status = status;
  entry_->may_grow = may_grow;
  entry_->begin = reinterpret_cast<uintptr_t>(begin);
  entry_->size = static_cast<size_t>(status.st_size);
}

FileInUse::~FileInUse() {
  const std::lock_guard lock(FilesInUse::mutex);
  // A file that was replaced by rename was read as a whole.
  if (entry_->look() == Entry::Change::kChanged) FilesInUse::remember(*entry_);
  if (FilesInUse::lost == entry_) {
    entry_->begin = 0;  // its path is still to be told
  } else {
    entry_->size = 0;
  }
}

void handle_lost_pages() {
  struct sigaction action {};
  action.sa_sigaction = FilesInUse::on_signal;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

void throw_if_file_changed() {
  if (const FilesInUse::Entry* entry = FilesInUse::lost)
    fail(entry->path, ": was cut, or cannot be read any longer, while it was in use: at byte ",
         FilesInUse::lost_at.load());
  if (FilesInUse::has_changed) fail(FilesInUse::changed, ": was changed while it was in use");
}

void forget_changed_files() {
  const std::lock_guard lock(FilesInUse::mutex);
  FilesInUse::has_changed = false;
  if (FilesInUse::Entry* entry = FilesInUse::lost.exchange(nullptr); entry && entry->begin == 0)
    entry->size = 0;
}

void check_files_in_use() {
  {
    const std::lock_guard lock(FilesInUse::mutex);
    for (FilesInUse::Entry* entry = FilesInUse::entries; entry; entry = entry->next)
      if (entry->size != 0 && entry->look() != FilesInUse::Entry::Change::kSame)
        FilesInUse::remember(*entry);
  }
  throw_if_file_changed();
}

}  // namespace kvcal
