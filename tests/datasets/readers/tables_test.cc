// Parquet and Arrow files, judged by the JSON lines that hold the same records. The test programs
// of builds without Arrow leave these cases out (tests/CMakeLists.txt). Fixtures:
// reference/make_data.py.
#include <algorithm>
#include <fstream>
#include <map>
#include <random>
#include <set>

#include "core/file.h"
#include "core/hash.h"
#include "datasets/dataset.h"
#include "datasets/readers/dataset_files.h"
#include "support/folders.h"

namespace kvcal {
namespace {

namespace fs = std::filesystem;

const fs::path kFolder = test::tests_folder() / "fixtures" / "data";

/// A record's content, in a form that can be compared and shown.
std::string shown(const Record& record) {
  if (const auto* text = std::get_if<std::string>(&record.content)) return Json(*text).dump();
  if (const auto* messages = std::get_if<Json>(&record.content)) return messages->dump();
  return Json(std::get<std::vector<TokenId>>(record.content)).dump();
}

std::vector<std::string> records_of(const Dataset& dataset) {
  std::vector<std::string> all;
  for (int64_t i = 0; i < dataset.size(); ++i) all.push_back(shown(dataset.record(i)));
  return all;
}
std::vector<std::string> records_of(const fs::path& path) {
  return records_of(*open_dataset(path));
}

TEST_CASE("tables: every copy of a data set holds the records of its JSON lines", "[.][tables]") {
  int compared = 0;
  for (const auto& folder : fs::directory_iterator(kFolder / "same")) {
    const auto expected = records_of(folder.path() / "rows.jsonl");
    for (const auto& copy : fs::directory_iterator(folder)) {
      INFO(copy.path());
      CHECK(records_of(copy.path()) == expected);
      ++compared;
    }
  }
  CHECK(compared == 63);
}

TEST_CASE("tables: any order of reading gives the same, read ahead or not", "[.][tables]") {
  for (const char* name : {"messages/zstd_groups.parquet", "messages/pages.parquet",
                           "messages/stream.arrow", "messages/lz4.feather", "messages/saved"}) {
    INFO(name);
    const auto dataset = open_dataset(kFolder / "same" / name);
    const auto expected = records_of(kFolder / "same/messages/rows.jsonl");
    std::vector<int64_t> order;
    for (int64_t i = 0; i < dataset->size(); ++i) order.push_back(i);
    std::mt19937 random(7);
    for (int round = 0; round < 6; ++round) {
      std::shuffle(order.begin(), order.end(), random);
      if (round % 2 == 0) dataset->will_read(std::span(order).first(order.size() / 2));
      for (const int64_t index : order)
        CHECK(shown(dataset->record(index)) == expected.at(static_cast<size_t>(index)));
    }
  }
}

TEST_CASE("tables: a row is named by file and row", "[.][tables]") {
  const fs::path file = kFolder / "same/messages/zstd_groups.parquet";
  const auto dataset = open_dataset(file);
  CHECK(dataset->record(7).place == file.string() + ": row 7");
  CHECK(dataset->sha256() == sha256_of_file(file));
  const fs::path saved = kFolder / "same/messages/saved";
  CHECK(open_dataset(saved)->record(7).place ==
        (saved / "data-00001-of-00002.arrow").string() + ": row 1");
}

TEST_CASE("tables: shards of the hub, by folder and pattern", "[.][tables]") {
  const auto expected = records_of(kFolder / "same/text/rows.jsonl");
  CHECK(records_of(kFolder / "hub" / "train-*.parquet") == expected);
  CHECK(records_of(*open_dataset(kFolder / "hub", {.local_copy = {}, .split = "train"})) ==
        expected);
  CHECK(open_dataset(kFolder / "hub", {.local_copy = {}, .split = "test"})->size() == 1);
}

TEST_CASE("tables: a descriptor reads the columns that it names", "[.][tables]") {
  const test::ScratchFolder scratch;
  const auto text = [&](const std::string& record) {
    const auto path =
        scratch.write("d.yaml",
                      "name: a\nsource: a/b\nlicence: MIT\nsplits: [train]\nsplit: "
                      "train\npath: \"" +
                          (kFolder / "hub").string() + "/{split}-*.parquet\"\nrecord:\n  text: \"" +
                          record + "\"\n");
    return test::error_of(scratch.path(), [&] { open_dataset(path)->record(9); }) + "|" +
           (record.find("{id}") == std::string::npos ? shown(open_dataset(path)->record(2)) : "");
  };
  CHECK(text("{url}: {text}") == "|\"u2: stone river green north sea\"");
  CHECK(text("{id}") == "d.yaml: " + (kFolder / "hub/train-00000-of-00002.parquet").string() +
                            ": key 'id' is missing; found are 'text', 'url'|");
}

TEST_CASE("tables: a saved data set with splits", "[.][tables]") {
  const auto all = records_of(kFolder / "same/text/rows.jsonl");
  const auto part = [&](long begin, long end) {
    return std::vector<std::string>(all.begin() + begin, all.begin() + end);
  };
  CHECK(records_of(kFolder / "splits/train") == part(0, 6));
  CHECK(records_of(*open_dataset(kFolder / "splits", {.local_copy = {}, .split = "test"})) ==
        part(6, 9));
  CHECK(records_of(kFolder / "one_split") == part(0, 2));
  CHECK(test::error_of(kFolder, [&] { open_dataset(kFolder / "splits"); }) ==
        "splits/dataset_dict.json: the data set has 2 splits; give the folder of one: "
        "splits/train, splits/test");
  CHECK(test::error_of(
            kFolder,
            [&] { open_dataset(kFolder / "splits", {.local_copy = {}, .split = "tset"}); }) ==
        "splits/dataset_dict.json: unknown split 'tset' (did you mean 'test'?); found are "
        "splits/train, splits/test");
}

/// File name → the message it gets; one "name<tab>message" a line.
std::map<std::string, std::string> expected_messages() {
  std::map<std::string, std::string> rows;
  std::ifstream file(kFolder / ".." / "text" / "datasets" / "bad_tables.tsv");
  for (std::string line; std::getline(file, line);) {
    const size_t tab = line.find('\t');
    REQUIRE(tab != std::string::npos);
    rows[line.substr(0, tab)] = line.substr(tab + 1);
  }
  return rows;
}

TEST_CASE("tables: every bad file is refused with its message", "[.][tables]") {
  const auto expected = expected_messages();
  std::set<std::string> seen;
  for (const auto& entry : fs::directory_iterator(kFolder / "bad")) {
    const std::string name = entry.path().filename().string();
    INFO(name);
    seen.insert(name);
    REQUIRE(expected.count(name) == 1);
    CHECK(test::error_of(kFolder / "bad", [&] { records_of(entry.path()); }) == expected.at(name));
  }
  CHECK(seen.size() == expected.size());
}

/// Reads all of a file with this content; true where that is refused, false where it is read. The
/// file is removed, since some file systems are slow to write over one.
bool is_refused(const test::ScratchFolder& scratch, const std::string& name,
                const std::string& content) {
  const auto path = scratch.write(name, content);
  const std::string message = test::error_of(scratch.path(), [&] { records_of(path); });
  fs::remove(path);
  if (!message.empty() && message.find(name) == std::string::npos)
    FAIL("the message does not name the file: " << message);
  return !message.empty();
}

TEST_CASE("tables: files that are cut anywhere are refused", "[.][tables]") {
  const test::ScratchFolder scratch;
  for (const char* name : {"text/zstd_groups.parquet", "input_ids/stream.arrow",
                           "input_ids/lz4.feather", "text/large.arrow"}) {
    const std::string whole = read_text(kFolder / "same" / name);
    for (size_t size = 0; size < whole.size(); ++size) {
      if (!is_refused(scratch, fs::path(name).filename().string(), whole.substr(0, size)))
        FAIL(name << " cut to " << size << " bytes is read");
    }
  }
}

TEST_CASE("tables: files with changed bytes are read or refused, and nothing else", "[.][tables]") {
  const test::ScratchFolder scratch;
  int64_t refused = 0;
  for (const char* name :
       {"messages/zstd_groups.parquet", "messages/pages.parquet", "messages/encoded.parquet",
        "messages/stream.arrow", "messages/encoded.arrow", "messages/views.arrow",
        "messages/lz4.feather", "text/large.arrow", "input_ids/list_view.arrow",
        "tool_calls/datasets.parquet"}) {
    const std::string whole = read_text(kFolder / "same" / name);
    const std::string own = fs::path(name).filename().string();
    for (size_t at = 0; at<whole.size(); at += whole.size()> 3000 ? 3 : 1)
      for (const int change : {0x01, 0x80, 0xff}) {
        std::string changed = whole;
        changed[at] = static_cast<char>(changed[at] ^ change);
        refused += is_refused(scratch, own, changed);
      }
  }
  CHECK(refused > 1000);
}

TEST_CASE("tables: a build without Arrow says so and how to get it", "[.][no_tables]") {
  const auto error = [&](const char* name) {
    return test::error_of(kFolder, [&] { open_dataset(kFolder / name); });
  };
  CHECK(error("same/text/large.parquet") ==
        "same/text/large.parquet: is a Parquet file, which this build cannot read; make JSON "
        "lines of it with pyarrow alone: pip install pyarrow, then python -c \"import json, "
        "pyarrow.parquet as p; t = p.read_table('IN.parquet'); open('OUT.jsonl', 'w').writelines("
        "json.dumps(r, default=str) + chr(10) for r in t.to_pylist())\"; or build kvcal with "
        "Apache Arrow (docs/data.md)");
  CHECK(error("same/text/stream.arrow")
            .starts_with("same/text/stream.arrow: is an Arrow file, which this build cannot read"));
  CHECK(error("same/text/saved")
            .starts_with("same/text/saved/data-00000-of-00002.arrow: is an Arrow file"));
  CHECK(error("bad/cut.parquet") ==
        "bad/cut.parquet: the Parquet file is cut short: it does not end with 'PAR1'");
}

}  // namespace
}  // namespace kvcal
