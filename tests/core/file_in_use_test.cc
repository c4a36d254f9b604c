#include "core/file_in_use.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>

#include "core/file.h"
#include "core/interrupt.h"
#include "core/posix_file.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using test::contains;
using test::message_of;
using test::ScratchFolder;
using test::write_file;

namespace {

constexpr size_t kPage = 4096;

/// A lost page is remembered by the whole process, so it is lost in one of its own. How that
/// ended: its status, or 1000 and the signal.
int in_own_process(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

size_t nonzero(std::span<const std::byte> bytes) {
  return static_cast<size_t>(
      std::count_if(bytes.begin(), bytes.end(), [](std::byte b) { return b != std::byte{0}; }));
}

}  // namespace

TEST_CASE("file in use: a file cut while it is mapped is an error with its place, not a signal") {
  const ScratchFolder scratch;
  const fs::path path = scratch / "weights", other = scratch / "other";
  write_file(path, std::string(5 * kPage, 'x'));
  write_file(other, std::string(5 * kPage, 'y'));
  const int status = in_own_process([&] {
    handle_lost_pages();
    const MappedFile before(other);
    MappedFile first(path);
    const MappedFile file(std::move(first));
    if (nonzero(file.bytes()) != 5 * kPage ||
        message_of([] { throw_if_file_changed(); }) != "no error")
      return 2;
    fs::resize_file(path, 2 * kPage);
    if (nonzero(file.bytes().first(2 * kPage)) != 2 * kPage) return 3;
    if (nonzero(file.bytes().subspan(3 * kPage)) != 0) return 4;
    const std::string expected = path.string() +
                                 ": was cut, or cannot be read any longer, while it was in use: "
                                 "at byte " +
                                 std::to_string(3 * kPage);
    if (message_of([] { throw_if_interrupted(); }) != expected) return 5;
    // An error that follows from it gives way, and nothing appears that was made of zeros.
    if (message_of([] { unless_file_changed([] { fail("all weights are zero"); }); }) != expected)
      return 6;
    AtomicDirectory output(scratch / "out", false);
    if (message_of([&] { output.commit(); }) != expected) return 7;
    if (message_of([&] { write_file_atomically(scratch / "a", "1", false); }) != expected) return 8;
    return nonzero(before.bytes()) == 5 * kPage ? 0 : 9;
  });
  CHECK(status == 0);
  CHECK(!fs::exists(scratch / "out"));
  CHECK(!fs::exists(scratch / "a"));
}

TEST_CASE("file in use: what was lost is told when its file is no longer mapped") {
  const ScratchFolder scratch;
  const fs::path path = scratch / "weights";
  write_file(path, std::string(2 * kPage, 'x'));
  const int status = in_own_process([&] {
    handle_lost_pages();
    {
      const MappedFile file(path);
      fs::resize_file(path, 0);
      if (nonzero(file.bytes()) != 0) return 2;
    }
    const MappedFile next(scratch / "weights");
    if (!contains(message_of([] { throw_if_file_changed(); }), path.string())) return 3;
    forget_changed_files();
    return message_of([] { throw_if_file_changed(); }) == "no error" ? 0 : 4;
  });
  CHECK(status == 0);
}

TEST_CASE("file in use: one that is cut within a page, written over or replaced is noticed") {
  const ScratchFolder scratch;
  struct Change {
    std::function<void(const fs::path&)> make;
    bool replaces = false;
  };
  const Change changes[] = {
      {[](const fs::path& path) { fs::resize_file(path, 90); }},
      {[](const fs::path& path) { write_file(path, std::string(100, 'y')); }},
      {[](const fs::path& path) { write_file_atomically(path, "y", true); }, true},
  };
  for (const Change& change : changes) {
    for (const bool is_closed : {false, true}) {
      const fs::path path = scratch / "weights", grows = scratch / "grows";
      write_file(path, std::string(100, 'x'));
      write_file(grows, std::string(100, 'x'));
      fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::minutes(1));
      const int status = in_own_process([&] {
        const MappedFile journal(grows, true);
        auto file = std::make_unique<MappedFile>(path);
        write_file(grows, "xx");
        check_files_in_use();
        change.make(path);
        if (is_closed) file.reset();
        const std::string message =
            message_of([&] { is_closed ? throw_if_file_changed() : check_files_in_use(); });
        if (is_closed && change.replaces) return message == "no error" ? 0 : 3;
        return message == path.string() + ": was changed while it was in use" ? 0 : 2;
      });
      CHECK(status == 0);
    }
  }
}

TEST_CASE("file in use: one that is taken away is still there for who has it") {
  const ScratchFolder scratch;
  const fs::path path = scratch / "weights";
  write_file(path, "x");
  const int status = in_own_process([&] {
    const MappedFile file(path);
    fs::remove(path);
    check_files_in_use();
    return nonzero(file.bytes()) == 1 ? 0 : 2;
  });
  CHECK(status == 0);
}

TEST_CASE("file in use: of mappings that nobody watches SIGBUS ends the process as ever") {
  const ScratchFolder scratch;
  const fs::path path = scratch / "file";
  write_file(path, std::string(kPage, 'x'));
  const int status = in_own_process([&] {
    handle_lost_pages();
    const Descriptor file(path, O_RDONLY);
    const void* data = ::mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE, file.get(), 0);
    fs::resize_file(path, 0);
    return static_cast<int>(nonzero({static_cast<const std::byte*>(data), kPage}));
  });
  CHECK(status == 1000 + SIGBUS);
}
