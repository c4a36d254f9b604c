#include "core/folder.h"

#include <fstream>

#include "support/catch.h"
#include "support/scratch_folder.h"

namespace kvcal {
namespace {

TEST_CASE("folder: entries are sorted, hidden ones and folders among them") {
  const test::ScratchFolder scratch;
  scratch.write("b", "");
  scratch.write(".a", "");
  make_folders(scratch.path() / "c" / "d");
  make_folders(scratch.path() / "c");
  const std::vector<std::filesystem::path> expected{scratch.path() / ".a", scratch.path() / "b",
                                                    scratch.path() / "c"};
  CHECK(paths_in(scratch.path()) == expected);
  CHECK(paths_in(scratch.path() / "c" / "d").empty());
  CHECK(test::error_of(scratch.path(), [&] { paths_in(scratch.path() / "missing"); }) ==
        "missing: cannot list the folder: No such file or directory");
  CHECK(test::error_of(scratch.path(), [&] { make_folders(scratch.path() / "b" / "e"); }) ==
        "b/e: cannot create folder: Not a directory");
}

TEST_CASE("folder: what is there, and what the system cannot tell") {
  const test::ScratchFolder scratch;
  const auto file = scratch.write("file", "");
  std::filesystem::create_symlink("loop", scratch.path() / "loop");
  std::filesystem::create_symlink("nowhere", scratch.path() / "dangling");
  CHECK(is_there(file));
  CHECK_FALSE(is_there(scratch.path() / "missing"));
  CHECK_FALSE(is_there(file / "below"));
  CHECK_FALSE(is_there(scratch.path() / "dangling"));
  CHECK(test::error_of(scratch.path(), [&] { is_there(scratch.path() / "loop"); }) ==
        "loop: cannot find out whether it is there: Too many levels of symbolic links");
}

}  // namespace
}  // namespace kvcal
