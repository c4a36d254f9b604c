#include <set>

#include "datasets/dataset.h"
#include "datasets/descriptor.h"
#include "datasets/readers/dataset_files.h"
#include "support/folders.h"

namespace kvcal {
namespace {

std::string descriptor(const std::string& record, const std::string& path = "copy-{split}.jsonl") {
  return "name: known\nsource: someone/known\nlicence: MIT\nsplits: [train, test]\nsplit: "
         "train\npath: " +
         path + "\nrecord:\n" + record;
}

std::string first_text(const std::filesystem::path& path) {
  return std::get<std::string>(open_dataset(path)->record(0).content);
}

TEST_CASE("descriptor: a template is filled from the record's fields") {
  const test::ScratchFolder scratch;
  scratch.write("copy-train.jsonl", R"({"q": "2 {+} 2?", "a": "4", "two words": "x", "id": 5})");
  const auto text = [&](const std::string& field) {
    return first_text(scratch.write("d.yaml", descriptor("  text: " + field + "\n")));
  };
  CHECK(text("\"{q}\"") == "2 {+} 2?");
  CHECK(text("\"Q: {q}\\nA: {a}.\"") == "Q: 2 {+} 2?\nA: 4.");
  CHECK(text("\"{{{q}}} {two words}{a}{a}\"") == "{2 {+} 2?} x44");
}

TEST_CASE("descriptor: parts without content are left out, the rest is joined") {
  const test::ScratchFolder scratch;
  const auto path =
      scratch.write("d.yaml", descriptor("  text: [\"I: {instruction}\", \"{input}{more}\", "
                                         "\"{output}\"]\n  separator: \" | \"\n"));
  scratch.write("copy-train.jsonl", R"(
{"instruction": "do", "input": "it", "more": "", "output": "done"}
{"instruction": "do", "input": "", "more": null, "output": "done"}
{"instruction": null, "input": "", "more": "m", "output": ""}
{"instruction": null, "input": null, "more": null, "output": null}
)");
  const auto dataset = open_dataset(path);
  const std::vector<std::string> expected{"I: do | it | done", "I: do | done", "m", ""};
  REQUIRE(dataset->size() == 4);
  for (size_t i = 0; i < expected.size(); ++i)
    CHECK(std::get<std::string>(dataset->record(static_cast<int64_t>(i)).content) == expected[i]);
  const auto lines =
      scratch.write("e.yaml", descriptor("  text: [\"{instruction}\", \"{output}\"]\n"));
  CHECK(first_text(lines) == "do\ndone");
}

TEST_CASE("descriptor: messages, conversations and ids come from the named field") {
  const test::ScratchFolder scratch;
  scratch.write(
      "copy-train.jsonl",
      R"({"chat": [{"role": "user", "content": "a"}], "turns": [{"from": "gpt", "value": "b"}], )"
      R"("tokens": [5, 6], "text": "not this"})");
  const auto content = [&](const std::string& record) {
    return open_dataset(scratch.write("d.yaml", descriptor(record)))->record(0).content;
  };
  CHECK(std::get<Json>(content("  messages: chat\n")) ==
        Json::parse(R"([{"role": "user", "content": "a"}])"));
  CHECK(std::get<Json>(content("  conversations: turns\n")) ==
        Json::parse(R"([{"role": "assistant", "content": "b"}])"));
  CHECK(std::get<std::vector<TokenId>>(content("  input_ids: tokens\n")) ==
        std::vector<TokenId>{5, 6});
}

TEST_CASE("descriptor: split and local copy can be chosen by the caller") {
  const test::ScratchFolder scratch;
  scratch.write("copy-train.jsonl", R"({"q": "train"})");
  scratch.write("copy-test.jsonl", R"({"q": "test"})");
  const auto mine = scratch.write("mine.json", R"([{"q": "mine"}])");
  const auto path = scratch.write("d.yaml", descriptor("  text: \"{q}\"\n"));
  const auto first = [&](const DatasetOverrides& overrides) {
    return std::get<std::string>(open_dataset(path, overrides)->record(0).content);
  };
  CHECK(first({}) == "train");
  CHECK(first({.local_copy = {}, .split = "test"}) == "test");
  CHECK(first({.local_copy = mine, .split = {}}) == "mine");
  CHECK(test::error_of(scratch.path(), [&] { first({.local_copy = {}, .split = "tests"}); }) ==
        "d.yaml: line 5: unknown split 'tests' (did you mean 'test'?)");
  const auto fixed = scratch.write("f.yaml", descriptor("  text: \"{q}\"\n", "copy-train.jsonl"));
  CHECK(
      test::error_of(scratch.path(),
                     [&] { open_dataset(fixed, {.local_copy = {}, .split = "test"}); }) ==
      "f.yaml: line 6: key 'path' is 'copy-train.jsonl' without {split}, so split 'test' cannot be "
      "chosen");
  CHECK(test::error_of(scratch.path(), [&] {
          open_dataset(mine, {.local_copy = {}, .split = "test"});
        }) == "mine.json: only a descriptor (.yaml) or a folder takes a split");
}

TEST_CASE("descriptor: only what is used is needed, and all that is missing is named") {
  const test::ScratchFolder scratch;
  scratch.write("copy.jsonl", R"({"q": "a"})");
  CHECK(first_text(scratch.write("d.yaml", "path: copy.jsonl\nrecord: {text: \"{q}\"}\n")) == "a");
  const auto error = [&](const std::string& content, const DatasetOverrides& overrides = {}) {
    const auto path = scratch.write("d.yaml", content);
    return test::error_of(scratch.path(), [&] { open_dataset(path, overrides); });
  };
  CHECK(error("name: a\n") == "d.yaml: line 1: keys 'path', 'record' are missing");
  CHECK(error("path: c-{split}.jsonl\nhub: a.jsonl\n") ==
        "d.yaml: line 1: keys 'split', 'source', 'record' are missing");
  CHECK(error("record: {text: \"{q}\"}\n") == "d.yaml: line 1: key 'path' is missing");
  CHECK(error("name: a\n", {.local_copy = scratch.path() / "copy.jsonl",
                            .records = {.columns = {.text = "q"}}}) == "");
  CHECK(error("path: c.jsonl\nrecord: {text: \"{q}\"}\n") ==
        "d.yaml: the local copy c.jsonl is missing");
  CHECK(error("path: c-{split}.jsonl\nrecord: {text: \"{q}\"}\n", {.split = "x"}) ==
        "d.yaml: the local copy c-x.jsonl is missing");
}

TEST_CASE("descriptor: place and hash are the local copy's") {
  const test::ScratchFolder scratch;
  const auto copy = scratch.write("copy-train.jsonl", "\n{\"q\": \"a\"}\n");
  const auto dataset = open_dataset(scratch.write("d.yml", descriptor("  text: \"{q}\"\n")));
  CHECK(dataset->record(0).place == copy.string() + ":2");
  CHECK(dataset->sha256() == open_dataset(copy)->sha256());
}

TEST_CASE("descriptor: a file larger than any descriptor is refused") {
  const test::ScratchFolder scratch;
  const auto path = scratch.write("d.yaml", std::string(65537, '#'));
  CHECK(test::error_of(scratch.path(), [&] { open_dataset(path); }) ==
        "d.yaml: 65537 bytes, the limit is 65536");
}

/// A record of each data set as its owner publishes it (columns of the data set's page), and what
/// we make of it.
struct Known {
  std::string file, record, text;
};

TEST_CASE("descriptor: every one in datasets/ reads a record of its data set") {
  const auto folder = test::source_folder() / "datasets";
  const std::vector<Known> known{
      {"cnn_dailymail.yaml", R"({"article": "Long.", "highlights": "Short.", "id": "0"})", "Long."},
      {"gsm8k.yaml", R"({"question": "2 + 2?", "answer": "#### 4"})",
       "Question: 2 + 2?\nAnswer: #### 4"},
      {"open-platypus.yaml",
       R"({"input": "", "output": "B", "instruction": "A", "data_source": "s"})", "A\n\nB"},
      {"pile-val.yaml", R"({"text": "any", "meta": {"pile_set_name": "s"}})", "any"},
      {"ultrachat_200k.yaml",
       R"({"prompt": "p", "prompt_id": "0", "messages": [{"content": "p", "role": "user"}]})", ""},
      {"wikitext.yaml", R"({"text": " = Title = \n"})", " = Title = \n"},
  };
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".yaml") files.insert(entry.path().filename().string());
  CHECK(files.size() == known.size());
  const test::ScratchFolder scratch;
  for (const Known& each : known) {
    INFO(each.file);
    CHECK(files.count(each.file) == 1);
    const auto copy = scratch.write("copy.jsonl", each.record);
    for (const std::string& split : read_descriptor(folder / each.file, {}).splits) {
      const Record record =
          open_dataset(folder / each.file, {.local_copy = copy, .split = split})->record(0);
      if (const auto* text = std::get_if<std::string>(&record.content))
        CHECK(*text == each.text);
      else
        CHECK(std::get<Json>(record.content) == Json::parse(each.record)["messages"]);
    }
    // Copied, because whoever uses the data sets has their copies beside the originals.
    const auto lonely = scratch.path() / each.file;
    std::filesystem::copy_file(folder / each.file, lonely);
    const std::string missing = test::error_of(scratch.path(), [&] { open_dataset(lonely); });
    const DatasetDescriptor read = read_descriptor(folder / each.file, {});
    CHECK(missing.find(read.source) != std::string::npos);
    CHECK(missing.find(read.local_copy.filename().string()) != std::string::npos);
  }
}

}  // namespace
}  // namespace kvcal
