// Parquet and Arrow files, judged by the JSON lines that hold the same records. The test programs
// of builds without Arrow leave these cases out (tests/CMakeLists.txt). Fixtures:
// reference/make_data.py.
#include <sys/resource.h>
#include <unistd.h>

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
#include "support/scoped_variable.h"

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
  const test::ScopedVariable follows("KVCAL_FOLLOW_LINKS", "1");  // the table is in another folder
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

/// A limit of the system on the memory that this process may take from now on.
class MemoryLimit {
 public:
  explicit MemoryLimit(rlim_t more) {
    REQUIRE(::getrlimit(RLIMIT_DATA, &before_) == 0);
    std::ifstream statm("/proc/self/statm");
    rlim_t pages[6] = {};
    for (rlim_t& one : pages) statm >> one;
    const rlimit limit{pages[5] * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + more,
                       before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_DATA, &limit) == 0);
  }
  ~MemoryLimit() { ::setrlimit(RLIMIT_DATA, &before_); }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  rlimit before_{};
};

/// Damage that a change of single bytes does not do: other numbers of several bytes, counts that
/// need more bytes than before, parts that are missing, twice or elsewhere. The footer of Parquet
/// keeps its true length, so that what it says is believed.
std::string mutated(std::string content, std::mt19937& random) {
  const auto below = [&](size_t count) { return static_cast<size_t>(random()) % count; };
  const bool is_parquet = content.starts_with("PAR1");
  constexpr size_t kEnd = 8;  // the footer's length and a mark
  const size_t footer =
      is_parquet ? static_cast<unsigned char>(content[content.size() - kEnd]) +
                       256u * static_cast<unsigned char>(content[content.size() - kEnd + 1])
                 : 0;
  const bool is_in_footer = is_parquet && below(2) == 0;
  const size_t first = is_in_footer ? content.size() - kEnd - footer : 4;
  const size_t last = content.size() - kEnd - (is_parquet && !is_in_footer ? footer : 0);
  const size_t at = first + below(last - first), size = 1 + below(std::min<size_t>(last - at, 16));
  const std::string numbers[] = {
      std::string(1, '\0'),         "\x7f",
      "\xff\xff\xff\xff\x0f",       "\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
      "\x80\x80\x80\x80\x08",       "\xff\xff\xff\x7f",
      std::string("\0\0\0\x80", 4), "\xff\xff\xff\xff\xff\xff\xff\x7f",
      std::string(8, '\xff')};
  const std::string& number = numbers[below(std::size(numbers))];
  const size_t before = content.size();
  switch (below(5)) {
    case 0:
      content.replace(at, number.size(), number);
      break;
    case 1:
      content.replace(at, 1, number);
      break;
    case 2:
      content.erase(at, size);
      break;
    case 3:
      content.insert(at, content.substr(at, size));
      break;
    default:
      content.replace(at, size, content.substr(first + below(last - first), size));
  }
  if (is_in_footer && content.size() > kEnd) {
    const size_t now = footer + content.size() - before;
    content[content.size() - kEnd] = static_cast<char>(now & 0xff);
    content[content.size() - kEnd + 1] = static_cast<char>(now >> 8);
  }
  return content;
}

TEST_CASE("tables: wrong counts, offsets and pages are refused in bounded memory", "[.][tables]") {
  const test::ScratchFolder scratch;
  const MemoryLimit limit(rlim_t{1} << 30);
  int64_t refused = 0, tried = 0;
  for (const char* folder : {"messages", "extra_fields", "input_ids", "text", "tool_calls"}) {
    for (const auto& entry : fs::directory_iterator(kFolder / "same" / folder)) {
      const std::string own = entry.path().filename().string();
      if (own == "saved" || own == "rows.jsonl") continue;
      const std::string whole = read_text(entry.path());
      std::mt19937 seeded(static_cast<uint32_t>(57 + whole.size()));
      for (int i = 0; i < 200; ++i, ++tried) {
        INFO(own << ", change " << i);
        refused += is_refused(scratch, own, mutated(whole, seeded));
      }
    }
  }
  CHECK(tried > 5000);
  CHECK(refused > tried / 2);
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
