#include "core/output.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using kvcal::test::contains;
using kvcal::test::message_of;
using kvcal::test::ScratchFolder;
using kvcal::test::write_file;

namespace {

/// The refusal of an output in this place, with --overwrite; "no error" where there is none.
std::string refusal(const fs::path& target, OutputKind kind) {
  return message_of([&] { check_replaceable(target, kind, true); });
}

void make_socket(const fs::path& path) {
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  REQUIRE(path.string().size() < sizeof address.sun_path);
  path.string().copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  ::close(socket);
}

}  // namespace

TEST_CASE("replaceable: without overwrite nothing is replaced, not even a broken link") {
  const ScratchFolder scratch;
  write_file(scratch / "file", "x");
  fs::create_directory(scratch / "folder");
  fs::create_symlink("nowhere", scratch / "link");
  for (const OutputKind kind : {OutputKind::kFile, OutputKind::kFolder}) {
    for (const char* name : {"file", "folder", "link"})
      CHECK(message_of([&] { check_replaceable(scratch / name, kind, false); }) ==
            (scratch / name).string() + ": exists; pass --overwrite to replace it");
    check_replaceable(scratch / "new", kind, false);
    check_replaceable(scratch / "file" / "below", kind, false);
  }
}

TEST_CASE("replaceable: a file takes the place of a regular file alone") {
  const ScratchFolder scratch;
  write_file(scratch / "file", "x");
  check_replaceable(scratch / "file", OutputKind::kFile, true);
  fs::create_directory(scratch / "folder");
  fs::create_symlink("file", scratch / "link");
  REQUIRE(::mkfifo((scratch / "pipe").c_str(), 0600) == 0);
  make_socket(scratch / "socket");
  const std::string only = "; --overwrite replaces only a regular file here";
  CHECK(contains(refusal(scratch / "folder", OutputKind::kFile), "folder: is a folder" + only));
  CHECK(contains(refusal(scratch / "link", OutputKind::kFile), "link: is a symbolic link" + only));
  CHECK(contains(refusal(scratch / "pipe", OutputKind::kFile), "pipe: is a named pipe" + only));
  CHECK(contains(refusal(scratch / "socket", OutputKind::kFile), "socket: is a socket" + only));
  CHECK(refusal("/dev/null", OutputKind::kFile) == "/dev/null: is a device" + only);
}

TEST_CASE("replaceable: a folder takes the place of an empty or a marked one") {
  const ScratchFolder scratch;
  fs::create_directory(scratch / "empty");
  check_replaceable(scratch / "empty", OutputKind::kFolder, true);
  write_file(scratch / "theirs" / "thesis.txt", "years of work");
  CHECK(refusal(scratch / "theirs", OutputKind::kFolder) ==
        (scratch / "theirs").string() +
            ": is a folder that kvcal did not write (it holds thesis.txt, and neither "
            "kvcal_manifest.json nor .kvcal-output); --overwrite replaces only its own outputs");
  mark_output(scratch / "theirs");
  check_replaceable(scratch / "theirs", OutputKind::kFolder, true);
  write_file(scratch / "ours" / kManifestName, "{}");
  check_replaceable(scratch / "ours", OutputKind::kFolder, true);
  mark_output(scratch / "ours");
  CHECK_FALSE(fs::exists(scratch / "ours" / kMarkName));
}

TEST_CASE("replaceable: a mark that is a link is none, a link to an output is no output") {
  const ScratchFolder scratch;
  write_file(scratch / "ours" / kManifestName, "{}");
  fs::create_directory_symlink("ours", scratch / "link");
  for (const char* name : {"link", "link/"})
    CHECK(contains(refusal(scratch / name, OutputKind::kFolder), "is a symbolic link"));
  fs::create_directory(scratch / "theirs");
  fs::create_symlink("../ours/" + std::string(kManifestName), scratch / "theirs" / kManifestName);
  CHECK(contains(refusal(scratch / "theirs", OutputKind::kFolder), "did not write"));
  CHECK(contains(refusal("/dev/null", OutputKind::kFolder), "is a device"));
}

TEST_CASE("replaceable: a folder of the program's own holds files and folders alone") {
  const ScratchFolder scratch;
  write_file(scratch / "own" / "deep" / "file", "x");
  check_holds_no_links(scratch / "own");
  fs::create_symlink("file", scratch / "own" / "deep" / "link");
  CHECK(message_of([&] { check_holds_no_links(scratch / "own"); }) ==
        (scratch / "own" / "deep" / "link").string() +
            ": is a symbolic link, and kvcal keeps only its own files here");
}
