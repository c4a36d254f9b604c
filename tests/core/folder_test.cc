#include "core/folder.h"

#include <cstdlib>

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
  CHECK_FALSE(is_there(scratch / "loop"));
  CHECK(is_folder(scratch.path()));
  CHECK_FALSE(is_folder(scratch / "file"));
  CHECK_FALSE(is_folder(scratch / "missing"));
  const std::string name(300, 'n');  // longer than names may be
  CHECK(message_of([&] { is_there(scratch / name); }) ==
        (scratch / name).string() + ": cannot find out what it is: File name too long");
}

TEST_CASE("folder: the own type of a name is not that of what a link leads to") {
  const ScratchFolder scratch;
  write_file(scratch / "file", "");
  fs::create_symlink("file", scratch / "link");
  fs::create_symlink("loop", scratch / "loop");
  fs::create_symlink("nowhere", scratch / "dangling");
  CHECK(own_type_of(scratch / "file") == fs::file_type::regular);
  CHECK(own_type_of(scratch.path()) == fs::file_type::directory);
  for (const char* name : {"link", "loop", "dangling"})
    CHECK(own_type_of(scratch / name) == fs::file_type::symlink);
  CHECK(type_of(scratch / "link") == fs::file_type::regular);
  for (const char* name : {"missing", "file/below", "dangling/below"})
    CHECK(own_type_of(scratch / name) == fs::file_type::not_found);
  const std::string name(300, 'n');
  for (const fs::path& path : {scratch / name, scratch / "loop/below"})
    CHECK(message_of([&] {
            own_type_of(path);
          }).starts_with(path.string() + ": cannot find out what it is: "));
}

TEST_CASE("folder: what the system cannot do is told from what is not there") {
  const ScratchFolder scratch;
  const std::string name(300, 'n');
  CHECK_THROWS_AS(paths_in(scratch / name), SystemError);
  try {
    paths_in(scratch / "missing");
    FAIL("an error was expected");
  } catch (const Error& error) {
    CHECK(dynamic_cast<const SystemError*>(&error) == nullptr);
  }
}

TEST_CASE("folder: an open one stays the same when its path leads elsewhere") {
  const ScratchFolder scratch;
  write_file(scratch / "a" / "b" / "c", "1");
  write_file(scratch / "a" / "file", "22");
  fs::create_directory_symlink("b", scratch / "a" / "link");
  const OpenFolder open(scratch / "a");
  fs::rename(scratch / "a", scratch / "moved");
  write_file(scratch / "a" / "other", "");
  CHECK(open.names() == std::vector<std::string>{"b", "file", "link"});
  CHECK(open.inside("b").names() == std::vector<std::string>{"c"});
  CHECK(open.status_of("file")->st_size == 2);
  CHECK(open.type_of("link") == fs::file_type::symlink);
  CHECK_FALSE(open.has("other"));
  CHECK(message_of([&] { open.inside("link"); }) ==
        (scratch / "a" / "link").string() + ": cannot open the folder: Not a directory");
  CHECK(open.make_folder("made"));
  CHECK_FALSE(open.make_file("file"));
  CHECK(open.rename("file", "made/file"));
  open.remove_tree("link");
  open.remove_tree("b");
  CHECK(test::contents_of(scratch / "moved") ==
        std::map<std::string, std::string>{{"made/file", "22"}});
  CHECK(message_of([&] { OpenFolder none(scratch / "a" / "other"); }) ==
        (scratch / "a" / "other").string() + ": cannot open the folder: Not a directory");
}

TEST_CASE("folder: the entry of a path is the name itself, without a slash behind it") {
  const ScratchFolder scratch;
  fs::create_directory(scratch / "folder");
  fs::create_directory_symlink("folder", scratch / "link");
  for (const char* name : {"link", "link/"}) {
    const auto entry = entry_at(scratch / name);
    REQUIRE(entry);
    CHECK(entry->folder.type_of(entry->name) == fs::file_type::symlink);
  }
  CHECK_FALSE(entry_at(scratch / "none"));
  CHECK(entry_at("/")->folder.type_of(entry_at("/")->name) == fs::file_type::directory);
  CHECK(entry_at(".")->name == ".");
}

TEST_CASE("folder: for temporary files, as the environment names it") {
  const ScratchFolder scratch;
  write_file(scratch / "file", "");
  const char* variable = std::getenv("TMPDIR");
  const std::string before = variable ? variable : "";
  const auto with = [&](const fs::path& named) {
    ::setenv("TMPDIR", named.c_str(), 1);
    return message_of([] { temporary_folder(); });
  };
  CHECK(with(scratch / "missing") ==
        (scratch / "missing").string() +
            ": cannot be the folder for temporary files: No such file or directory");
  CHECK(with(scratch / "file") ==
        (scratch / "file").string() + ": cannot be the folder for temporary files: is no folder");
  ::setenv("TMPDIR", scratch.path().c_str(), 1);
  CHECK(temporary_folder() == scratch.path());
  if (variable)
    ::setenv("TMPDIR", before.c_str(), 1);
  else
    ::unsetenv("TMPDIR");
}
