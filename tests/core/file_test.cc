#include "core/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "core/files_read.h"
#include "core/folder.h"
#include "core/interrupt.h"
#include "core/output.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using test::contains;
using test::contents_of;
using test::message_of;
using test::ScratchFolder;
using test::write_file;

using Contents = std::map<std::string, std::string>;

namespace {

/// contents_of without the marks of outputs.
Contents unmarked_in(const fs::path& folder) {
  Contents contents = contents_of(folder);
  std::erase_if(contents, [](const auto& file) { return file.first.ends_with(kMarkName); });
  return contents;
}

}  // namespace

TEST_CASE("file: a mapped file has the bytes, an empty one has none") {
  const ScratchFolder scratch;
  write_file(scratch / "a", "hello");
  write_file(scratch / "empty", "");
  const MappedFile file(scratch / "a");
  REQUIRE(file.bytes().size() == 5);
  CHECK(static_cast<char>(file.bytes()[1]) == 'e');
  file.will_need(file.bytes());
  file.drop(file.bytes());
  CHECK(static_cast<char>(file.bytes()[4]) == 'o');
  CHECK(MappedFile(scratch / "empty").path() == scratch / "empty");
  CHECK(read_text(scratch / "empty").empty());
  MappedFile first(scratch / "a");
  MappedFile second(std::move(first));
  CHECK(second.bytes().size() == 5);
  MappedFile third(scratch / "empty");
  third = std::move(second);
  CHECK(third.bytes().size() == 5);
}

TEST_CASE("file: what cannot be read is named with the reason") {
  const ScratchFolder scratch;
  const std::string root = scratch.path().string();
  CHECK(message_of([&] { MappedFile file(scratch / "none"); }) ==
        root + "/none: cannot open: No such file or directory");
  CHECK(message_of([&] { MappedFile file(scratch.path()); }) == root + ": is not a regular file");
  write_file(scratch / "a", "hello");
  CHECK(message_of([&] { MappedFile file(scratch / "a" / "b"); }) ==
        root + "/a/b: cannot open: Not a directory");
  CHECK(read_text(scratch / "a", 5) == "hello");
  CHECK(message_of([&] { read_text(scratch / "a", 4); }) == root + "/a: 5 bytes, the limit is 4");
  REQUIRE(::mkfifo((scratch / "pipe").c_str(), 0600) == 0);
  CHECK(message_of([&] { MappedFile file(scratch / "pipe"); }) ==
        root + "/pipe: is not a regular file");
}

TEST_CASE("file: a writer appends text and ranges of other files") {
  const ScratchFolder scratch;
  std::string large(9 << 20, 'x');  // more than one buffer
  for (size_t i = 0; i < large.size(); i += 4096) large[i] = static_cast<char>('a' + i / 4096 % 26);
  write_file(scratch / "large", large);
  FileWriter writer(scratch / "out");
  writer.write("head");
  CHECK(writer.position() == 4);
  writer.append_range(scratch / "large", 100, large.size() - 200);
  writer.append_range(scratch / "large", 0, 0);
  writer.write("tail");
  CHECK(writer.position() == large.size() - 192);
  writer.close();
  CHECK(read_text(scratch / "out") == "head" + large.substr(100, large.size() - 200) + "tail");
}

TEST_CASE("file: a writer says what is wrong") {
  const ScratchFolder scratch;
  const std::string root = scratch.path().string();
  CHECK(message_of([&] { FileWriter writer(scratch / "no" / "such"); }) ==
        root + "/no/such: cannot create: No such file or directory");
  CHECK(message_of([&] { FileWriter writer(scratch.path()); }) ==
        root + ": cannot create: Is a directory");
  CHECK(message_of([] {
          FileWriter writer("/dev/full");
          writer.write("x");
        }) == "/dev/full: cannot write: No space left on device");
  write_file(scratch / "a", "hello");
  CHECK(message_of([&] {
          FileWriter writer("/dev/full");
          writer.append_range(scratch / "a", 0, 5);
        }) == "/dev/full: cannot write: No space left on device");
  FileWriter writer(scratch / "out");
  CHECK(message_of([&] { writer.append_range(scratch / "a", 3, 4); }) ==
        root + "/a: ends 2 bytes early");
  CHECK(message_of([&] { writer.append_range(scratch / "none", 0, 1); }) ==
        root + "/none: cannot open: No such file or directory");
}

TEST_CASE("file: a text file holds the text alone, or its path is in the error") {
  const ScratchFolder scratch;
  write_text_file(scratch / "a", "longer than hello");
  write_text_file(scratch / "a", "hello");
  CHECK(read_text(scratch / "a") == "hello");
  write_text_file(scratch / "a", "");
  CHECK(read_text(scratch / "a").empty());
  CHECK(message_of([&] { write_text_file(scratch / "no" / "such", "x"); }) ==
        (scratch / "no" / "such").string() + ": cannot create: No such file or directory");
  CHECK(message_of([] { write_text_file("/dev/full", "x"); }) ==
        "/dev/full: cannot write: No space left on device");
}

TEST_CASE("file: a copy has the bytes, through links, and replaces what was there") {
  const ScratchFolder scratch;
  write_file(scratch / "a", "hello");
  write_file(scratch / "b", "longer than hello");
  fs::create_symlink("a", scratch / "link");
  kvcal::copy_file(scratch / "link", scratch / "b");
  CHECK(read_text(scratch / "b") == "hello");
  CHECK(!fs::is_symlink(scratch / "b"));
  CHECK_THROWS_AS(kvcal::copy_file(scratch / "none", scratch / "c"), Error);
  CHECK(!fs::exists(scratch / "c"));
}

TEST_CASE("file: a copy stores no more than the file, and reads the same") {
  const test::ScratchFolder scratch;
  // Bytes at the begin, in the middle and, in the second, at the end.
  for (const bool ends_with_bytes : {false, true}) {
    const fs::path source = scratch / "a", copy = scratch / "b";
    write_file(source, "begin");
    fs::resize_file(source, uint64_t{3} << 30);
    std::fstream file(source, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(int64_t{1} << 30) << "middle";
    if (ends_with_bytes) file.seekp(-3, std::ios::end) << "end";
    REQUIRE(file.flush());
    {
      FileWriter writer(copy);
      writer.append_range(source, 2, (uint64_t{3} << 30) - 2);
      writer.write(std::string_view("!"));
      CHECK(writer.position() == (uint64_t{3} << 30) - 1);
      writer.close();
    }
    CHECK(fs::file_size(copy) == (uint64_t{3} << 30) - 1);
    struct stat status {};
    REQUIRE(::stat(copy.c_str(), &status) == 0);
    CHECK(status.st_blocks * 512 < 1 << 20);
    const MappedFile mapped(copy);
    const std::string_view text(reinterpret_cast<const char*>(mapped.bytes().data()),
                                mapped.bytes().size());
    CHECK(text.starts_with(std::string_view("gin\0", 4)));
    CHECK(text.substr((size_t{1} << 30) - 3, 8) == std::string_view("\0middle\0", 8));
    CHECK(text.ends_with(ends_with_bytes ? std::string_view("\0end!", 5)
                                         : std::string_view("\0\0\0\0!", 5)));
  }
}

TEST_CASE("file: an interrupt stops a copy") {
  const ScratchFolder scratch;
  write_file(scratch / "a", "hello");
  FileWriter writer(scratch / "out");
  request_interrupt();
  CHECK_THROWS_AS(writer.append_range(scratch / "a", 0, 5), Interrupted);
  clear_interrupt();
  writer.append_range(scratch / "a", 0, 5);
  CHECK(writer.position() == 5);
}

TEST_CASE("atomic directory: appears whole at commit, and not before") {
  const ScratchFolder scratch;
  {
    AtomicDirectory output(scratch / "deep" / "out", false);
    write_file(output.path() / "a", "1");
    write_file(output.path() / "sub" / "b", "2");
    CHECK(!fs::exists(scratch / "deep" / "out"));
    CHECK(output.path().parent_path() == scratch / "deep");
    output.commit();
    CHECK(unmarked_in(scratch / "deep") == Contents{{"out/a", "1"}, {"out/sub/b", "2"}});
  }
  CHECK(unmarked_in(scratch / "deep") == Contents{{"out/a", "1"}, {"out/sub/b", "2"}});
}

TEST_CASE("atomic directory: without commit nothing is left, also after an exception") {
  const ScratchFolder scratch;
  CHECK(message_of([&] {
          AtomicDirectory output(scratch / "out", false);
          write_file(output.path() / "a", "1");
          fail("stop");
        }) == "stop");
  CHECK(contents_of(scratch.path()).empty());
}

TEST_CASE("atomic directory: folders made on the way to the target go with it") {
  const ScratchFolder scratch;
  fs::create_directory(scratch / "old");
  {
    AtomicDirectory output(scratch / "old" / "new" / "newer" / "out", false);
    CHECK(fs::exists(scratch / "old" / "new" / "newer"));
  }
  CHECK(fs::exists(scratch / "old"));
  CHECK_FALSE(fs::exists(scratch / "old" / "new"));
  {
    AtomicDirectory output(scratch / "new" / "out", false);
    write_file(scratch / "new" / "notes", "of somebody else");
  }
  CHECK(contents_of(scratch / "new") == Contents{{"notes", "of somebody else"}});
  CHECK(message_of([] { AtomicDirectory output("", false); }) == "the path of the output is empty");
}

TEST_CASE("atomic directory: an existing target is refused, or replaced at commit") {
  const ScratchFolder scratch;
  write_file(scratch / "out" / "old", "old");
  mark_output(scratch / "out");
  CHECK(message_of([&] { AtomicDirectory output(scratch / "out", false); }) ==
        (scratch / "out").string() + ": exists; pass --overwrite to replace it");
  {
    AtomicDirectory output(scratch / "out", true);
    write_file(output.path() / "new", "new");
    CHECK(read_text(scratch / "out" / "old") == "old");
  }
  CHECK(unmarked_in(scratch.path()) == Contents{{"out/old", "old"}});
  AtomicDirectory output(fs::path((scratch / "out").string() + "/"), true);
  write_file(output.path() / "new", "new");
  output.commit();
  CHECK(unmarked_in(scratch.path()) == Contents{{"out/new", "new"}});
}

TEST_CASE("atomic outputs: what a killed run wrote down goes with the next, all else stays") {
  const ScratchFolder scratch;
  for (const char* name : {".out.partial-11", ".out.partial-12-1", ".out.partial-7",
                           ".other.partial-11", "out.partial-11"})
    write_file(scratch / name / "weights", "1");
  write_file(scratch / ".out.partial-14", "a file");
  write_file(scratch / "victim" / "secret", "s");
  fs::create_directory_symlink(scratch / "victim", scratch / ".out.partial-12-1" / "link");
  fs::create_directory_symlink(scratch / "victim", scratch / ".out.partial-15");
  write_file(scratch / ".out.kvcal-lock",
             "process 11 on host\n.out.partial-11\n.out.partial-12-1\n.out.partial-14\n"
             ".out.partial-15\n.out.partial-16\n.other.partial-11\n../victim\nvictim\n"
             ".out.partial-1/../victim\n");
  const Contents left{{".other.partial-11/weights", "1"},
                      {".out.partial-7/weights", "1"},
                      {"out.partial-11/weights", "1"},
                      {"victim/secret", "s"}};
  { AtomicDirectory output(scratch / "out", false); }
  CHECK(contents_of(scratch.path()) == left);
  write_file(scratch / ".out.partial-14", "a file");
  write_file(scratch / ".out.kvcal-lock", "process 11 on host\n.out.partial-14\n");
  { AtomicFile output(scratch / "out", false); }
  CHECK(contents_of(scratch.path()) == left);
}

TEST_CASE("atomic outputs: what a lock of another user names stays") {
  const ScratchFolder scratch;
  write_file(scratch / ".out.partial-11" / "weights", "1");
  write_file(scratch / ".out.kvcal-lock", "process 11 on host\n.out.partial-11\n");
  // Only the administrator can give a file away.
  const bool is_given = ::chown((scratch / ".out.kvcal-lock").c_str(), 65534, 65534) == 0;
  { AtomicDirectory output(scratch / "out", false); }
  CHECK(fs::exists(scratch / ".out.partial-11") == is_given);
}

TEST_CASE("atomic outputs: a lock that kvcal did not write is refused and stays as it is") {
  const ScratchFolder scratch;
  const fs::path lock = scratch / ".out.kvcal-lock";
  const auto message = [&] {
    const std::string folder = message_of([&] { AtomicDirectory output(scratch / "out", false); });
    const std::string file = message_of([&] { AtomicFile output(scratch / "out", false); });
    CHECK(folder == file);
    return folder;
  };
  write_file(scratch / "victim", "precious");
  fs::create_hard_link(scratch / "victim", lock);
  CHECK(contains(message(), ".out.kvcal-lock: is no regular file or has a second name"));
  fs::remove(lock);
  fs::create_symlink("victim", lock);
  CHECK(contains(message(), ".out.kvcal-lock: is a link"));
  fs::remove(lock);
  write_file(lock, "notes");
  CHECK(contains(message(), ".out.kvcal-lock: is no lock that kvcal wrote; remove it"));
  CHECK(contents_of(scratch.path()) ==
        Contents{{".out.kvcal-lock", "notes"}, {"victim", "precious"}});
}

TEST_CASE("atomic outputs: a folder that is not there is named, not the lock in it") {
  const ScratchFolder scratch;
  const std::string none = (scratch / "none").string();
  CHECK(message_of([&] { AtomicFile output(scratch / "none" / "page.html", false); }) ==
        none + ": cannot create a file here: No such file or directory");
  const fs::path long_name = scratch / std::string(250, 'n');
  CHECK(message_of([&] { AtomicFile output(long_name, false); }) ==
        scratch.path().string() + ": cannot create a file here: File name too long");
  CHECK(contents_of(scratch.path()).empty());
}

TEST_CASE("atomic outputs: dots behind a link lead where the system says") {
  const ScratchFolder scratch;
  fs::create_directories(scratch / "e" / "f");
  fs::create_directory_symlink("e/f", scratch / "link");
  write_file(scratch / "data.jsonl", "precious");
  write_file(scratch / "e" / "data.jsonl", "old");
  CHECK(output_place(scratch / "link/../data.jsonl") == scratch / "e/data.jsonl");
  CHECK(output_place(scratch / "link/./new/") == scratch / "e/f/new");
  CHECK(output_place(scratch / "e/..") == scratch.path());
  CHECK(message_of([&] { output_place(scratch / "none/../out"); }) ==
        (scratch / "none/../out").string() + ": no such place, for " + (scratch / "none").string() +
            " is no folder");
  CHECK_THROWS_AS(AtomicDirectory(scratch / "none/../out", false), Error);
  CHECK_THROWS_AS(AtomicFile(scratch / "data.jsonl/../out", false), Error);
  CHECK_FALSE(fs::exists(scratch / "out"));
  CHECK(shortened(scratch / "e/../data.jsonl") == scratch / "data.jsonl");
  CHECK(shortened(scratch / "link/../data.jsonl") == scratch / "link/../data.jsonl");
  CHECK(shortened(scratch / "none/../data.jsonl") == scratch / "none/../data.jsonl");
  write_file_atomically(scratch / "link/../data.jsonl", "new", /*overwrite=*/true);
  {
    AtomicDirectory output(scratch / "link/../out", false);
    write_file(output.path() / "a", "1");
    output.commit();
  }
  CHECK(read_text(scratch / "data.jsonl") == "precious");
  CHECK(read_text(scratch / "e/data.jsonl") == "new");
  CHECK(read_text(scratch / "e/out/a") == "1");
  CHECK_FALSE(fs::exists(scratch / "out"));
}

TEST_CASE("atomic outputs: what is read is not replaced, by whatever name") {
  const ScratchFolder scratch;
  write_file(scratch / "data.jsonl", "precious");
  fs::create_hard_link(scratch / "data.jsonl", scratch / "other-name");
  fs::create_directories(scratch / "out" / "deep");
  write_text_file(scratch / "out" / kMarkName, "");
  fs::create_hard_link(scratch / "data.jsonl", scratch / "out" / "deep" / "data");
  const std::string name = (scratch / "data.jsonl").string();
  remember_files_read();
  CHECK(read_text(scratch / "data.jsonl") == "precious");
  for (const char* target : {"data.jsonl", "other-name"})
    CHECK(contains(message_of([&] { AtomicFile output(scratch / target, true); }),
                   std::string(target) + ": is " + name + ", which is read; name another output"));
  CHECK(contains(message_of([&] { AtomicDirectory output(scratch / "out", true); }),
                 "out: holds " + name + ", which is read"));
  // Read after the output was begun.
  write_file(scratch / "late", "precious");
  AtomicFile late(scratch / "late", true);
  CHECK(read_text(scratch / "late") == "precious");
  CHECK(contains(message_of([&] { late.commit(); }), "late, which is read"));
  CHECK(read_text(scratch / "late") == "precious");
  // The program's own files, and a command that begins anew.
  write_file_atomically(scratch / "late", "new", /*overwrite=*/true);
  remember_files_read();
  { AtomicFile output(scratch / "data.jsonl", true); }
  forget_files_read();
}

TEST_CASE("remove_tree follows no links") {
  const ScratchFolder scratch;
  write_file(scratch / "victim" / "secret", "s");
  write_file(scratch / "old" / "deep" / "er" / "a", "1");
  fs::create_directory_symlink(scratch / "victim", scratch / "old" / "deep" / "link");
  fs::create_directory_symlink(scratch / "victim", scratch / "link");
  remove_tree(scratch / "old");
  remove_tree(scratch / "link");
  remove_tree(scratch / "nothing");
  CHECK_FALSE(fs::exists(fs::symlink_status(scratch / "old")));
  CHECK_FALSE(fs::exists(fs::symlink_status(scratch / "link")));
  CHECK(contents_of(scratch.path()) == Contents{{"victim/secret", "s"}});
}

TEST_CASE("atomic directory: a second run to one target is refused by name, also to replace it") {
  const ScratchFolder scratch;
  const std::string target = (scratch / "out").string();
  {
    AtomicDirectory first(target, true);
    write_file(first.path() / "a", "1");
    for (const bool overwrite : {false, true}) {
      const std::string message = message_of([&] { AtomicDirectory second(target, overwrite); });
      CHECK(contains(message, target + ": is being written by process " +
                                  std::to_string(::getpid()) + " on "));
    }
    AtomicDirectory other(scratch / "out2", false);
    first.commit();
    AtomicDirectory after(target, true);
  }
  CHECK(unmarked_in(scratch.path()) == Contents{{"out/a", "1"}});
}

TEST_CASE("atomic directory: a folder that vanished and came again is no output") {
  const ScratchFolder scratch;
  AtomicDirectory output(scratch / "out", false);
  write_file(output.path() / "a", "1");
  fs::rename(output.path(), scratch / "moved");
  write_file(output.path() / "b", "2");
  CHECK(message_of([&] { output.commit(); }) ==
        output.path().string() + ": was moved or removed while the output was written there");
  CHECK(!fs::exists(scratch / "out"));
}

TEST_CASE("target lock: of who asks at once one gets it, and its file goes") {
  const ScratchFolder scratch;
  const OpenFolder folder(scratch.path());
  std::atomic<int> inside{0}, most{0}, got{0}, refused{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 200; ++k) {
        try {
          const TargetLock lock(folder, "out", TargetLock::Taken::kRefused);
          most = std::max(most.load(), ++inside);
          ++got;
          --inside;
        } catch (const Error&) {
          ++refused;
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(most == 1);
  CHECK(got > 0);
  CHECK(got + refused == 1600);
  CHECK(contents_of(scratch.path()).empty());
}

TEST_CASE("atomic directory: a target that is a file, or comes in between, stays as it is") {
  const ScratchFolder scratch;
  write_file(scratch / "file", "mine");
  CHECK(message_of([&] { AtomicDirectory output(scratch / "file", true); }) ==
        (scratch / "file").string() + ": is a file; --overwrite replaces only a folder here");
  CHECK(contains(message_of([&] { AtomicDirectory output(scratch / "file" / "out", false); }),
                 "cannot create folder"));
  {
    AtomicDirectory output(scratch / "out", false);
    write_file(scratch / "out" / "theirs", "theirs");
    CHECK(message_of([&] { output.commit(); }) ==
          (scratch / "out").string() +
              ": appeared while the output was written; nothing was replaced");
  }
  CHECK(contents_of(scratch.path()) == Contents{{"file", "mine"}, {"out/theirs", "theirs"}});
}

TEST_CASE("atomic file: appears whole, is refused or replaced") {
  const ScratchFolder scratch;
  write_file_atomically(scratch / "a", "one", false);
  CHECK(message_of([&] { write_file_atomically(scratch / "a", "two", false); }) ==
        (scratch / "a").string() + ": exists; pass --overwrite to replace it");
  CHECK(contents_of(scratch.path()) == Contents{{"a", "one"}});
  write_file_atomically(scratch / "a", "two", true);
  CHECK(contents_of(scratch.path()) == Contents{{"a", "two"}});
  fs::create_directory(scratch / "folder");
  write_file(scratch / "folder" / "x", "x");
  CHECK(contains(message_of([&] { write_file_atomically(scratch / "folder", "y", true); }),
                 "is a folder; --overwrite replaces only a regular file here"));
  CHECK(contents_of(scratch.path()) == Contents{{"a", "two"}, {"folder/x", "x"}});
  CHECK_THROWS_AS(write_file_atomically(scratch / "no" / "such", "y", true), Error);
}

TEST_CASE("atomic file: an unfinished file of a process with the same number stays") {
  const ScratchFolder scratch;
  const std::string other = ".a.partial-" + std::to_string(::getpid());
  write_file(scratch / other, "of another container");
  write_file_atomically(scratch / "a", "one", false);
  CHECK(contents_of(scratch.path()) == Contents{{"a", "one"}, {other, "of another container"}});
}

TEST_CASE("scratch mapping: is memory, and leaves no file") {
  const ScratchFolder scratch;
  ScratchMapping mapping(scratch.path(), 10000);
  REQUIRE(mapping.size() == 10000);
  mapping.data()[9999] = std::byte{7};
  CHECK(contents_of(scratch.path()).empty());
  const ScratchMapping moved(std::move(mapping));
  CHECK(moved.data()[9999] == std::byte{7});
  CHECK(ScratchMapping(scratch.path(), 0).size() == 0);
  CHECK_THROWS_AS(ScratchMapping(scratch / "none", 1), Error);
}
