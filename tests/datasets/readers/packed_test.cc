// Text packed with gzip and zstd. Fixtures: reference/make_data.py.
#include <fstream>

#include "core/file.h"
#include "core/hash.h"
#include "datasets/dataset.h"
#include "datasets/dataset_reader.h"
#include "datasets/readers/dataset_files.h"
#include "support/folders.h"

namespace kvcal {
namespace {

const std::filesystem::path kFolder = test::tests_folder() / "fixtures" / "data" / "packed";

std::vector<Json> messages_of(const std::filesystem::path& path) {
  const auto dataset = open_dataset(path);
  std::vector<Json> all;
  for (int64_t i = 0; i < dataset->size(); ++i)
    all.push_back(std::get<Json>(dataset->record(i).content));
  return all;
}

TEST_CASE("packed: gzip and zstd give the records of the text, by content and not by name") {
  const std::vector<Json> expected = messages_of(kFolder / "rows.jsonl");
  REQUIRE(expected.size() == 12);
  for (const char* name :
       {"rows.jsonl.gz", "members.jsonl.gz", "rows.jsonl.zst", "frames.jsonl.zst",
        "named_as_text.jsonl", "by_content", "array.json.gz"}) {
    INFO(name);
    CHECK(messages_of(kFolder / name) == expected);
  }
}

TEST_CASE("packed: places and hash are the packed file's") {
  const auto path = kFolder / "members.jsonl.gz";
  const auto dataset = open_dataset(path);
  CHECK(dataset->record(3).place == path.string() + ":4");
  CHECK(dataset->sha256() == sha256_of_file(path));
}

TEST_CASE("packed: plain text, whole and in paragraphs") {
  const auto dataset = open_dataset(kFolder / "paragraphs.txt.gz");
  REQUIRE(dataset->size() == 2);
  CHECK(std::get<std::string>(dataset->record(0).content) == "one\nline");
  CHECK(dataset->whole_text() == "one\nline\n\ntwo\n");
}

TEST_CASE("packed: a descriptor's local copy may be packed") {
  const test::ScratchFolder scratch;
  std::filesystem::copy_file(kFolder / "rows.jsonl.zst", scratch.path() / "copy.jsonl.zst");
  const auto path = scratch.write("d.yaml",
                                  "name: a\nsource: a/b\nlicence: MIT\nsplits: [x]\nsplit: x\n"
                                  "path: copy.jsonl.zst\nrecord:\n  messages: messages\n");
  CHECK(messages_of(path) == messages_of(kFolder / "rows.jsonl"));
}

TEST_CASE("packed: data that end early anywhere are refused") {
  const test::ScratchFolder scratch;
  for (const char* name : {"rows.jsonl.gz", "rows.jsonl.zst"}) {
    const std::string whole = read_text(kFolder / name);
    for (size_t size = 4; size < whole.size(); ++size) {
      const auto path = scratch.write(name, whole.substr(0, size));
      const std::string message = test::error_of(scratch.path(), [&] { open_dataset(path); });
      std::filesystem::remove(path);
      if (message.find(" data is cut short: it ends after " + std::to_string(size) + " bytes") ==
          std::string::npos)
        FAIL(name << " of " << size << " bytes: " << message);
    }
  }
  const auto path =
      scratch.write("a.jsonl.gz", read_text(kFolder / "rows.jsonl.gz").substr(0, 380));
  CHECK(test::error_of(scratch.path(), [&] { open_dataset(path); }) ==
        "a.jsonl.gz: the gzip data is cut short: it ends after 380 bytes, in line 13 of what it "
        "holds (2316 bytes unpacked)");
}

TEST_CASE("packed: a changed byte never passes for the text") {
  const test::ScratchFolder scratch;
  const std::string whole = read_text(kFolder / "rows.jsonl.gz");
  // Behind the header, whose time and name change nothing.
  for (size_t at = 10; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 0x10);
    const auto path = scratch.write("a.jsonl.gz", changed);
    CHECK_FALSE(test::error_of(scratch.path(), [&] { messages_of(path); }).empty());
    std::filesystem::remove(path);
  }
}

TEST_CASE("packed: what follows the data, other archives and packed tables are refused") {
  const test::ScratchFolder scratch;
  const std::string gzip = read_text(kFolder / "rows.jsonl.gz");
  const auto error = [&](std::string_view name, const std::string& content) {
    const auto path = scratch.write(name, content);
    return test::error_of(scratch.path(), [&] { open_dataset(path); });
  };
  CHECK(error("a.jsonl.gz", gzip + "more") ==
        "a.jsonl.gz: the gzip data is damaged near byte 382, in line 13 of what it holds: what "
        "follows a member is not another one");
  CHECK(error("b.jsonl.zst", read_text(kFolder / "rows.jsonl.zst") + "more") ==
        "b.jsonl.zst: the zstd data is damaged near byte 397, in line 13 of what it holds: Unknown "
        "frame descriptor");
  CHECK(error("c.jsonl.xz",
              "\xfd"
              "7zXZ" +
                  std::string(1, '\0')) ==
        "c.jsonl.xz: is compressed with xz; unpack it first, or use gzip or zstd");
  const std::string text = "{\"text\": \"a\"}\n";
  CHECK(error("e.jsonl.gz", text) == "e.jsonl.gz: is not packed, its name says gzip data");
  CHECK(error("f.jsonl.zst", text) == "f.jsonl.zst: is not packed, its name says zstd data");
  CHECK(error("g.txt.gzip", "words") == "g.txt.gzip: is not packed, its name says gzip data");
  CHECK(error("h.jsonl.zst", gzip) == "h.jsonl.zst: is gzip data, its name says zstd data");
  CHECK(error("d.parquet.gz", gzip) ==
        "d.parquet.gz: is a packed table, which cannot be read in place; unpack it first");
}

TEST_CASE("packed: text that is far larger than its file is refused") {
  // A line of 1 MiB 300 times, as one would make to fill a disk.
  const test::ScratchFolder scratch;
  const std::string member = read_text(kFolder / "long_line.gz");
  std::string bomb;
  for (int i = 0; i < 300; ++i) bomb += member;
  const auto path = scratch.write("bomb.jsonl.gz", bomb);
  CHECK(test::error_of(scratch.path(), [&] { open_dataset(path); }) ==
        "bomb.jsonl.gz: its " + std::to_string(bomb.size()) +
            " bytes unpack to more than 268435456, the limit; at most 200 "
            "times a file's size is taken for text, from its begin to any place");
}

}  // namespace
}  // namespace kvcal
