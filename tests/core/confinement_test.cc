#include "core/process.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <thread>

#include "core/file.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using kvcal::test::ScratchFolder;
using kvcal::test::write_file;

namespace {

/// Status of a child that runs body: confinement is for good.
int status_in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

/// Version of the kernel's Landlock; under 1: it has none.
long landlock_version() {
  constexpr long kCreateRuleset = 444;
  constexpr int kAskVersion = 1;
  return ::syscall(kCreateRuleset, nullptr, 0, kAskVersion);
}

/// What confine takes here from a process that may do nothing.
bool takes(bool Confined::*what) {
  return status_in_child([&] { return confine({}).*what ? 1 : 0; }) == 1;
}

bool can_write(const fs::path& path) {
  try {
    write_file_atomically(path, "x", true);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// errno of a connection to a port that nobody listens at; 0: it was made.
int connecting_error() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(1);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int result = ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const int error = result == 0 ? 0 : errno;
  ::close(socket);
  return error;
}

}  // namespace

TEST_CASE("confinement: only what is named can be written, all can be read") {
  CHECK(takes(&Confined::writing) == (landlock_version() >= 1));
  if (landlock_version() < 1) return;
  const ScratchFolder scratch;
  write_file(scratch / "in" / "weights", "1");
  write_file(scratch / "file", "1");
  fs::create_directory(scratch / "out");
  const int result = status_in_child([&] {
    const Confined confined =
        confine({.writable = {scratch / "out", scratch / "file", scratch / "absent"}});
    if (!confined.writing) return 1;
    if (read_text(scratch / "in" / "weights") != "1") return 2;
    if (can_write(scratch / "in" / "weights") || can_write(scratch / "new")) return 3;
    if (!can_write(scratch / "out" / "a")) return 4;
    fs::create_directories(scratch / "out" / "b" / "c");
    fs::rename(scratch / "out" / "a", scratch / "out" / "b" / "c" / "a");
    fs::create_hard_link(scratch / "out" / "b" / "c" / "a", scratch / "out" / "linked");
    std::error_code error;
    if (fs::remove(scratch / "in" / "weights", error) || !error) return 5;
    fs::create_symlink(scratch / "in" / "weights", scratch / "out" / "link");
    try {
      FileWriter writer(scratch / "out" / "link");
      return 6;
    } catch (const Error&) {
    }
    FileWriter(scratch / "file").close();
    bool can_thread = true;
    std::thread([&] { can_thread = can_write(scratch / "thread"); }).join();
    return can_thread ? 7 : 0;
  });
  CHECK(result == 0);
  CHECK(read_text(scratch / "in" / "weights") == "1");
  CHECK(read_text(scratch / "out" / "linked") == "x");
  CHECK(read_text(scratch / "file").empty());
}

TEST_CASE("confinement: without leave no connection is made") {
  CHECK(takes(&Confined::connecting) == (landlock_version() >= 4));
  if (landlock_version() < 4) return;
  CHECK(status_in_child(
            [] { return confine({}).connecting && connecting_error() == EACCES ? 0 : 1; }) == 0);
  CHECK(status_in_child([] {
          const Confined confined = confine({.writable = {}, .may_connect = true});
          return confined.writing && !confined.connecting && connecting_error() == ECONNREFUSED ? 0
                                                                                                : 1;
        }) == 0);
}
