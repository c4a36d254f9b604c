#include "datasets/data_files.h"

#include "core/hash.h"
#include "datasets/dataset.h"
#include "datasets/readers/dataset_files.h"

namespace kvcal {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> texts_of(const Dataset& dataset) {
  std::vector<std::string> texts;
  for (int64_t i = 0; i < dataset.size(); ++i)
    texts.push_back(std::get<std::string>(dataset.record(i).content));
  return texts;
}

std::string line(const std::string& text) {
  return "{\"text\": \"" + text + "\"}\n";
}

/// A folder of data files of several kinds, and of others that are left out.
struct Mixed {
  Mixed() {
    scratch.write("b.jsonl", line("b1") + line("b2"));
    scratch.write("B.json", "[" + line("B") + "]");
    scratch.write("a10.txt", "a10, one\n\na10, two\n");
    scratch.write("a9.ndjson", line("a9"));
    scratch.write("README.md", "# About\n");
    scratch.write("LICENSE", "free\n");
    scratch.write(".hidden.jsonl", "broken");
  }
  test::ScratchFolder scratch;
};

TEST_CASE("file set: a folder's files byte by byte in the order of their names") {
  const Mixed mixed;
  const auto dataset = open_dataset(mixed.scratch.path());
  CHECK(texts_of(*dataset) ==
        std::vector<std::string>{"B", "a10, one", "a10, two", "a9", "b1", "b2"});
  CHECK(dataset->record(4).place == (mixed.scratch.path() / "b.jsonl").string() + ":1");
  CHECK(dataset->whole_text() == "B\n\na10, one\n\na10, two\n\n\na9\n\nb1\n\nb2");
}

TEST_CASE("file set: a pattern takes the files that match") {
  const Mixed mixed;
  const auto texts = [&](const std::string& pattern) {
    return texts_of(*open_dataset(mixed.scratch.path() / pattern));
  };
  CHECK(texts("*.jsonl") == std::vector<std::string>{"b1", "b2"});
  CHECK(texts("a*") == std::vector<std::string>{"a10, one", "a10, two", "a9"});
  CHECK(texts("[ab]?.*json") == std::vector<std::string>{"a9"});
  // A file of that very name comes before what the pattern would match.
  mixed.scratch.write("[b].jsonl", line("brackets"));
  CHECK(texts("[b].jsonl") == std::vector<std::string>{"brackets"});
}

TEST_CASE("file set: patterns over folders") {
  const test::ScratchFolder scratch;
  for (const char* name : {"y", "x"}) {
    fs::create_directory(scratch.path() / name);
    scratch.write(std::string(name) + "/same.jsonl", line(name));
  }
  const auto dataset = open_dataset(scratch.path() / "*" / "same.jsonl");
  CHECK(texts_of(*dataset) == std::vector<std::string>{"x", "y"});
  std::string list;
  for (const char* name : {"x/same.jsonl", "y/same.jsonl"})
    list += name + std::string(1, '\0') + sha256_of_file(scratch.path() / name) + "\n";
  CHECK(dataset->sha256() == sha256_hex(list));
}

TEST_CASE("file set: the hash names files and contents, of one file it is the file's own") {
  const test::ScratchFolder scratch;
  const auto file = scratch.write("a.jsonl", line("a"));
  CHECK(open_dataset(scratch.path())->sha256() == sha256_of_file(file));
  scratch.write("b.jsonl", line("b"));
  const std::string both = open_dataset(scratch.path())->sha256();
  CHECK(both == open_dataset(scratch.path() / "*.jsonl")->sha256());
  CHECK(both == sha256_hex("a.jsonl" + std::string(1, '\0') + sha256_of_file(file) + "\nb.jsonl" +
                           std::string(1, '\0') + sha256_hex(line("b")) + "\n"));
  fs::rename(scratch.path() / "b.jsonl", scratch.path() / "c.jsonl");
  CHECK(open_dataset(scratch.path())->sha256() != both);
}

TEST_CASE("file set: dataset_files names what is read") {
  const Mixed mixed;
  const fs::path& folder = mixed.scratch.path();
  const auto names = [&](const fs::path& path) {
    std::vector<std::string> all;
    for (const fs::path& file : dataset_files(path))
      all.push_back(file.lexically_relative(folder).string());
    return all;
  };
  CHECK(names(folder) == std::vector<std::string>{"B.json", "a10.txt", "a9.ndjson", "b.jsonl"});
  CHECK(names(folder / "*.json") == std::vector<std::string>{"B.json"});
  CHECK(names(folder / "b.jsonl") == std::vector<std::string>{"b.jsonl"});
}

TEST_CASE("file set: of several splits one must be chosen") {
  const test::ScratchFolder scratch;
  scratch.write("train-00000-of-00002.jsonl", line("train 0"));
  scratch.write("train-00001-of-00002.jsonl", line("train 1"));
  scratch.write("test-00000-of-00001.jsonl", line("test"));
  CHECK(test::error_of(scratch.path(), [&] { open_dataset(scratch.path()); })
            .find(": holds several splits, 'test', 'train'; choose one with a pattern, ") !=
        std::string::npos);
  CHECK(texts_of(*open_dataset(scratch.path(), {.local_copy = {}, .split = "train"})) ==
        std::vector<std::string>{"train 0", "train 1"});
  CHECK(texts_of(*open_dataset(scratch.path() / "test*")) == std::vector<std::string>{"test"});
  CHECK(test::error_of(scratch.path().parent_path(),
                       [&] { open_dataset(scratch.path(), {.local_copy = {}, .split = "dev"}); }) ==
        scratch.path().filename().string() + ": holds no split 'dev'; found are 'test', 'train'");
}

TEST_CASE("file set: files that are named as splits are not mixed, others are") {
  const test::ScratchFolder scratch;
  scratch.write("train.jsonl", line("train"));
  scratch.write("part.jsonl", line("part"));
  CHECK(open_dataset(scratch.path())->size() == 2);
  scratch.write("test.jsonl.gz", "");
  CHECK(test::error_of(scratch.path(), [&] {
          open_dataset(scratch.path());
        }).find("holds several splits, 'test', 'train'") != std::string::npos);
}

TEST_CASE("file set: what is not understood is named") {
  const test::ScratchFolder scratch;
  const std::string name = scratch.path().filename().string();
  const auto error = [&](const fs::path& path) {
    return test::error_of(scratch.path().parent_path(), [&] { open_dataset(path); });
  };
  CHECK(error(scratch.path()) == name + ": holds no data file");
  CHECK(error(scratch.path() / "*.jsonl") == name + "/*.jsonl: no data file matches the pattern");
  fs::create_directory(scratch.path() / "data");
  fs::create_directory(scratch.path() / "more");
  CHECK(error(scratch.path()) == name + ": holds no data file but folders; give one of " + name +
                                     "/data, " + name + "/more");
  scratch.write("a-00000-of-00002.jsonl", line("a"));
  CHECK(error(scratch.path()) ==
        name + "/data: is a folder among data files; give the folder or files in it");
  fs::remove(scratch.path() / "data");
  fs::remove(scratch.path() / "more");
  CHECK(error(scratch.path()) == name +
                                     ": shard 1 of the 2 of 'a' is missing; give a pattern to "
                                     "read only a part of the shards");
  CHECK(open_dataset(scratch.path() / "a-*")->size() == 1);
  scratch.write("z.bin", "text\n");
  CHECK(
      error(scratch.path())
          .starts_with(
              name +
              "/z.bin: is no data file by its name, expected one of .jsonl, .ndjson, .json, .csv, "
              ".tsv, .txt, .text, .md, .parquet, .arrow, .feather, .ipc, each with .gz or .zst "
              "where "
              "it is packed; leave it out with a pattern such as '"));
}

TEST_CASE("file set: a link out of the folder is followed on demand alone") {
  const test::ScratchFolder scratch;
  const fs::path data = scratch.path() / "data", secret = scratch.write("secret", "key\n");
  fs::create_directories(data / "part");
  scratch.write("data/part/a.jsonl", line("a"));
  fs::create_symlink("part/a.jsonl", data / "within.jsonl");
  fs::rename(data / "part", scratch.path() / "part");
  fs::create_directory_symlink(scratch.path() / "part", data / "part");
  const std::string behind =
      ", outside of the data folder, expected a file in it; if you trust it, "
      "set KVCAL_FOLLOW_LINKS=1, or make a copy with 'cp -rL'";
  const auto error = [&](const std::string& path) {
    return test::error_of(scratch.path(), [&] { open_dataset(scratch.path() / path); });
  };
  CHECK(error("data/*.jsonl") == "data/within.jsonl: is a symbolic link to part/a.jsonl" + behind);
  CHECK(error("data/*/*") == "data/part/a.jsonl: leads to part/a.jsonl" + behind);
  fs::remove(data / "part");
  fs::rename(scratch.path() / "part", data / "part");
  CHECK(texts_of(*open_dataset(data / "*.jsonl")) == std::vector<std::string>{"a"});
  fs::create_directory_symlink("data", scratch.path() / "link");
  CHECK(texts_of(*open_dataset(scratch.path() / "link" / "*.jsonl")).size() == 1);

  fs::remove_all(data / "part");
  fs::remove(data / "within.jsonl");
  fs::create_symlink("../secret", data / "a.txt");
  const std::string refused = "data/a.txt: is a symbolic link to secret" + behind;
  CHECK(error("data") == refused);
  CHECK(error("data/*") == refused);
  REQUIRE(::setenv("KVCAL_FOLLOW_LINKS", "1", 1) == 0);
  CHECK(texts_of(*open_dataset(data)) == std::vector<std::string>{"key"});
  REQUIRE(::unsetenv("KVCAL_FOLLOW_LINKS") == 0);
  CHECK(error("data") == refused);
}

TEST_CASE("file set: links of a hub cache lead to its blobs") {
  const test::ScratchFolder scratch;
  const fs::path cache = scratch.path() / "datasets--a--b",
                 data = cache / "snapshots" / "1" / "data";
  fs::create_directories(data);
  fs::create_directories(cache / "blobs");
  scratch.write("datasets--a--b/blobs/abcd", line("a"));
  scratch.write("datasets--a--b/secret", line("key"));
  fs::create_symlink("../../../blobs/abcd", data / "a.jsonl");
  CHECK(texts_of(*open_dataset(data)) == std::vector<std::string>{"a"});
  CHECK(texts_of(*open_dataset(cache / "snapshots" / "1" / "*" / "a*")).size() == 1);
  fs::create_symlink("../../../secret", data / "b.jsonl");
  CHECK_THROWS_AS(open_dataset(data), Error);
}

TEST_CASE("file set: an error in one of the files names it") {
  const test::ScratchFolder scratch;
  scratch.write("a.jsonl", line("a"));
  scratch.write("b.jsonl", "broken\n");
  const auto dataset = open_dataset(scratch.path());
  CHECK(test::error_of(scratch.path(), [&] { dataset->record(1); }).starts_with("b.jsonl:1: "));
}

}  // namespace
}  // namespace kvcal
