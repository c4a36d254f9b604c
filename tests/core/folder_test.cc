#include "core/folder.h"

#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using test::message_of;
using test::ScratchFolder;
using test::write_file;

TEST_CASE("folder: entries are sorted, hidden ones and folders among them") {
  const ScratchFolder scratch;
  write_file(scratch / "b", "");
  write_file(scratch / ".a", "");
  make_folders(scratch / "c/d");
  make_folders(scratch / "c");
  CHECK(paths_in(scratch.path()) ==
        std::vector<fs::path>{scratch / ".a", scratch / "b", scratch / "c"});
  CHECK(paths_in(scratch / "c/d").empty());
  CHECK(message_of([&] { paths_in(scratch / "missing"); }) ==
        (scratch / "missing").string() + ": cannot list the folder: No such file or directory");
  CHECK(message_of([&] { make_folders(scratch / "b/e"); }) ==
        (scratch / "b/e").string() + ": cannot create folder: Not a directory");
}

TEST_CASE("folder: what is there, and what the system cannot tell") {
  const ScratchFolder scratch;
  write_file(scratch / "file", "");
  fs::create_symlink("loop", scratch / "loop");
  fs::create_symlink("nowhere", scratch / "dangling");
  CHECK(is_there(scratch / "file"));
  CHECK_FALSE(is_there(scratch / "missing"));
  CHECK_FALSE(is_there(scratch / "file/below"));
  CHECK_FALSE(is_there(scratch / "dangling"));
  CHECK(message_of([&] { is_there(scratch / "loop"); }) ==
        (scratch / "loop").string() +
            ": cannot find out whether it is there: Too many levels of symbolic links");
}
