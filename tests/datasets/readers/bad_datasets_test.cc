#include <fstream>
#include <map>
#include <set>

#include "datasets/dataset.h"
#include "datasets/readers/dataset_files.h"

namespace kvcal {
namespace {

/// File name → the message it gets; one "name<tab>message" a line.
std::map<std::string, std::string> expected_messages(const std::filesystem::path& table) {
  std::map<std::string, std::string> rows;
  std::ifstream file(table);
  for (std::string line; std::getline(file, line);) {
    const size_t tab = line.find('\t');
    REQUIRE(tab != std::string::npos);
    rows[line.substr(0, tab)] = line.substr(tab + 1);
  }
  return rows;
}

void read_all(const std::filesystem::path& path) {
  const auto dataset = open_dataset(path);
  for (int64_t i = 0; i < dataset->size(); ++i) dataset->record(i);
}

TEST_CASE("data sets: every bad file is refused with its message") {
  const auto folder = test::dataset_fixtures() / "bad";
  const auto expected = expected_messages(test::dataset_fixtures() / "bad_messages.tsv");
  std::set<std::string> seen;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    INFO(name);
    seen.insert(name);
    CHECK(expected.count(name) == 1);
    const std::string message = test::error_of(folder, [&] { read_all(entry.path()); });
    if (expected.count(name) == 1) CHECK(message == expected.at(name));
  }
  CHECK(seen.size() == expected.size());
}

TEST_CASE("data sets: a missing file is named") {
  const auto folder = test::dataset_fixtures();
  for (const char* name :
       {"nowhere.jsonl", "nowhere.json", "nowhere.txt", "nowhere.yaml", "nowhere"})
    CHECK(test::error_of(folder, [&] { read_all(folder / name); }) ==
          std::string(name) + ": cannot open: No such file or directory");
}

TEST_CASE("data sets: deep JSON is refused wherever it stands") {
  const test::ScratchFolder scratch;
  const std::string deep = std::string(100'000, '[');
  const auto error = [&](std::string_view name, const std::string& content) {
    const auto path = scratch.write(name, content);
    return test::error_of(scratch.path(), [&] { read_all(path); });
  };
  CHECK(error("a.jsonl", "{\"text\": " + deep) == "a.jsonl:1: JSON nests deeper than 128 levels");
  CHECK(error("b.json", "[\n{\"text\": " + deep + "}]") ==
        "b.json: line 2: JSON nests deeper than 128 levels");
  CHECK(error("c.json", "{\"ids\": " + deep) ==
        "c.json: line 1: JSON nests deeper than 128 levels");
  CHECK(error("d.json", deep) == "d.json: line 1: expected a record, '{', found '['");
}

TEST_CASE("data sets: a record longer than the limit is refused, as many blank lines are not") {
  const test::ScratchFolder scratch;
  constexpr size_t kTooLong = kDefaultRecordBytes + 1;
  const std::string advice = "; --max-record-bytes sets another";
  const auto error = [&](std::string_view name, std::string_view start, char rest) {
    const auto path = scratch.write(name, start);
    std::ofstream(path, std::ios::binary | std::ios::app) << std::string(kTooLong, rest);
    return test::error_of(scratch.path(), [&] { open_dataset(path); });
  };
  CHECK(error("a.jsonl", "{}\n", 'x') ==
        "a.jsonl:2: the line has 8.001 MiB, the limit is 8 MiB" + advice);
  CHECK(error("b.txt", "one\n\n", 'x') ==
        "b.txt:3: the paragraph is longer than 8 MiB; separate records by a blank line, or "
        "set --max-record-bytes");
  CHECK(error("c.json", "[{}, {\"text\": 1", '0') ==
        "c.json: the file ends inside the value that begins at line 1");
  CHECK(error("d.json", "{\"a\": 1", '0') ==
        "d.json: line 1: the value has 8.001 MiB, the limit is 8 MiB" + advice);
  CHECK(error("e.jsonl", "{}", '\n') == "");
  const auto path = scratch.write("f.jsonl", R"({"text": "one"})");
  CHECK(test::error_of(scratch.path(), [&] {
          open_dataset(path, {.records = {.max_bytes = 14}});
        }) == "f.jsonl:1: the line has 15 B, the limit is 14 B" + advice);
  CHECK(open_dataset(path, {.records = {.max_bytes = 15}})->size() == 1);
  // A line without an end in sight.
  for (const auto& [name, message] :
       {std::pair("g.jsonl", "the line has over 8 MiB, which is the limit" + advice),
        std::pair("g.txt", std::string("the paragraph is longer than 8 MiB"))}) {
    const auto endless = scratch.write(name, std::string(100, '{'));
    std::filesystem::resize_file(endless, uintmax_t{1} << 28);
    const std::string found = test::error_of(scratch.path(), [&] { open_dataset(endless); });
    CHECK(found.starts_with(name + (":1: " + message)));
  }
}

}  // namespace
}  // namespace kvcal
