#include "state/state_folder.h"

#include "core/file.h"
#include "core/hash.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using kvcal::test::ScratchFolder;
using Open = StateFolder::Open;

namespace {

const Json kFingerprint = {{"model", "abc"}, {"samples", 64}};

void write_text(const fs::path& path, const std::string& text) {
  write_file_atomically(path, text, true);
}

}  // namespace

TEST_CASE("state folder: a checkpoint comes back as it was written") {
  const ScratchFolder scratch;
  const fs::path path = scratch.path() / "a" / "state";
  {
    const StateFolder folder(path, kFingerprint, Open::kResume);
    CHECK(!folder.found());
    folder.write(
        {.journal_bytes = 77, .hidden = Checkpoint::Hidden{.layer = 5, .slot = 1, .ranks = 3}});
  }
  {
    const StateFolder folder(path, kFingerprint, Open::kResume);
    REQUIRE(folder.found());
    CHECK(folder.found()->journal_bytes == 77);
    REQUIRE(folder.found()->hidden);
    CHECK(folder.found()->hidden->layer == 5);
    CHECK(folder.found()->hidden->slot == 1);
    CHECK(folder.found()->hidden->ranks == 3);
    CHECK(folder.found()->place() == "after layer 5");
    folder.write({.journal_bytes = 99, .hidden = {}});
  }
  StateFolder folder(path, kFingerprint, Open::kResume);
  CHECK(!folder.found()->hidden);
  folder.remove();
  CHECK(!fs::exists(path));
}

TEST_CASE("state folder: an earlier run's state is gone on with or replaced on purpose only") {
  const ScratchFolder scratch;
  const fs::path path = scratch.path() / "state";
  StateFolder(path, kFingerprint, Open::kNew).write({.journal_bytes = 1, .hidden = {}});
  CHECK_THROWS_WITH(StateFolder(path, kFingerprint, Open::kNew),
                    Catch::Contains("pass --resume to go on with it, or --overwrite"));
  CHECK(fs::exists(path / "state.json"));
  const StateFolder folder(path, kFingerprint, Open::kReplace);
  CHECK(!folder.found());
  CHECK(!fs::exists(path / "state.json"));
}

TEST_CASE("state folder: two runs cannot share one") {
  const ScratchFolder scratch;
  const StateFolder folder(scratch.path() / "state", kFingerprint, Open::kNew);
  CHECK_THROWS_WITH(StateFolder(scratch.path() / "state", kFingerprint, Open::kResume),
                    Catch::Contains("another run keeps its state there"));
  // But a rank of the same run reads along.
  CHECK_NOTHROW(StateFolder(scratch.path() / "state", kFingerprint, Open::kJoin));
}

TEST_CASE("state folder: another fingerprint is an error that says in what") {
  const ScratchFolder scratch;
  const fs::path path = scratch.path() / "state";
  StateFolder(path, kFingerprint, Open::kNew).write({.journal_bytes = 1, .hidden = {}});
  const Json other = {{"model", "abd"}, {"samples", 64}, {"device", "cpu"}};
  CHECK_THROWS_WITH(StateFolder(path, other, Open::kResume),
                    Catch::Contains("model: it was abc, now it is abd") &&
                        Catch::Contains("device: it was nothing, now it is cpu") &&
                        !Catch::Contains("samples:"));
  CHECK_THROWS_WITH(StateFolder(path, {{"model", "abc"}}, Open::kResume),
                    Catch::Contains("samples: it was 64, now it is nothing"));
}

TEST_CASE("state folder: other files are left alone") {
  const ScratchFolder scratch;
  const fs::path path = scratch.path() / "state";
  fs::create_directories(path);
  write_text(path / "thesis.txt", "years of work");
  for (const Open how : {Open::kNew, Open::kReplace, Open::kResume})
    CHECK_THROWS_WITH(StateFolder(path, kFingerprint, how),
                      Catch::Contains("is no folder for a run's state: it holds 'thesis.txt'"));
  CHECK(read_text(path / "thesis.txt") == "years of work");
}

TEST_CASE("state folder: links in it lead nowhere") {
  const ScratchFolder scratch;
  const fs::path path = scratch.path() / "state", model = scratch.path() / "model";
  fs::create_directories(path);
  fs::create_directories(model);
  write_text(model / "config.json", "{}");
  const auto refused = [&](const fs::path& link, const std::string& why) {
    for (const Open how : {Open::kNew, Open::kReplace, Open::kResume})
      CHECK_THROWS_WITH(StateFolder(path, kFingerprint, how), Catch::Contains(why));
    fs::remove(link);
  };
  for (const char* name : {"journal.bin", "state.json", "hidden-0"}) {
    fs::create_symlink("../model/config.json", path / name);
    refused(path / name, "is a symbolic link");
  }
  fs::create_directory_symlink("../model", path / "hidden-1");
  refused(path / "hidden-1", "hidden-1: is a symbolic link");
  fs::create_directories(path / "hidden-0");
  fs::create_symlink("../../model/config.json", path / "hidden-0" / "rank-00000.bin");
  refused(path / "hidden-0" / "rank-00000.bin", "rank-00000.bin: is a symbolic link");
  CHECK(read_text(model / "config.json") == "{}");
}

TEST_CASE("state folder: a file of its own has one name and is no link") {
  const ScratchFolder scratch;
  write_text(scratch.path() / "config.json", "{}");
  fs::create_hard_link(scratch.path() / "config.json", scratch.path() / "journal.bin");
  CHECK_THROWS_WITH(JournalWriter(scratch.path() / "journal.bin", 0),
                    Catch::Contains("journal.bin: is no regular file or has a second name"));
  fs::remove(scratch.path() / "journal.bin");
  fs::create_symlink("config.json", scratch.path() / "journal.bin");
  CHECK_THROWS_WITH(JournalWriter(scratch.path() / "journal.bin", 0),
                    Catch::Contains("journal.bin: is a link"));
  CHECK(read_text(scratch.path() / "config.json") == "{}");
}

TEST_CASE("state folder: a state.json that says nothing is an error") {
  const ScratchFolder scratch;
  const fs::path path = scratch.path() / "state";
  fs::create_directories(path);
  // With the hash of what it holds, where it is an object.
  const auto message = [&](const std::string& text) {
    std::string sealed = text;
    if (text.starts_with("{")) {
      Json state = parse_json(text);
      state["sha256"] = sha256_hex(dump_json(state));
      sealed = dump_json(state);
    }
    write_text(path / "state.json", sealed);
    try {
      StateFolder(path, kFingerprint, Open::kResume);
    } catch (const Error& error) {
      return error.message();
    }
    return std::string("none");
  };
  const std::string head =
      R"({"format": "kvcal state", "format_version": 3, "fingerprint": {"model": "abc", "samples": 64}, )";
  CHECK_THAT(message(""), Catch::Contains("state.json"));
  CHECK_THAT(message("[1]"), Catch::Contains("expected an object"));
  CHECK_THAT(message(R"({"format": "other", "format_version": 1})"),
             Catch::Contains("found format 'other'"));
  CHECK_THAT(message(R"({"format": "kvcal state", "format_version": 1})"),
             Catch::Contains("version 1, expected 'kvcal state', version 3"));
  CHECK_THAT(message(head + R"("journal_bytes": -1})"), Catch::Contains("'journal_bytes' is -1"));
  CHECK_THAT(message(head + R"("journal_bytes": 10, "hidden": 3})"), Catch::Contains("hidden"));
  CHECK_THAT(
      message(head + R"("journal_bytes": 10, "hidden": {"layer": 1, "slot": 2, "ranks": 1}})"),
      Catch::Contains("'slot' is 2"));
  CHECK(message(head + R"("journal_bytes": 10, "hidden": null})") == "none");
}

TEST_CASE("state folder: a state.json with any flipped bit, or cut, is an error") {
  const ScratchFolder scratch;
  const fs::path path = scratch.path() / "state";
  StateFolder(path, kFingerprint, Open::kNew)
      .write(
          {.journal_bytes = 10, .hidden = Checkpoint::Hidden{.layer = 3, .slot = 1, .ranks = 2}});
  const std::string text = read_text(path / "state.json");
  for (size_t at = 0; at + 1 < text.size(); ++at) {
    std::string flipped = text;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 7)));
    INFO("byte " << at << " of " << text);
    write_text(path / "state.json", flipped);
    CHECK_THROWS_AS(StateFolder(path, kFingerprint, Open::kResume), Error);
    write_text(path / "state.json", text.substr(0, at));
    CHECK_THROWS_AS(StateFolder(path, kFingerprint, Open::kResume), Error);
  }
  write_text(path / "state.json", text);
  CHECK(StateFolder(path, kFingerprint, Open::kResume).found()->hidden->layer == 3);
}
