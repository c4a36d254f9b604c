#include "datasets/dataset.h"
#include "datasets/readers/dataset_files.h"

namespace kvcal {
namespace {

std::vector<std::string> texts_of(const std::filesystem::path& path) {
  const auto dataset = open_dataset(path);
  std::vector<std::string> texts;
  for (int64_t i = 0; i < dataset->size(); ++i)
    texts.push_back(std::get<std::string>(dataset->record(i).content));
  return texts;
}

std::vector<std::vector<TokenId>> ids_of(const std::filesystem::path& path) {
  const auto dataset = open_dataset(path);
  std::vector<std::vector<TokenId>> ids;
  for (int64_t i = 0; i < dataset->size(); ++i)
    ids.push_back(std::get<std::vector<TokenId>>(dataset->record(i).content));
  return ids;
}

const std::vector<std::string> kTwo{"one", "t]w}o \" \\"};
const std::string kRecords = R"([{"text": "one"} , {"x": [{}], "text": "t]w}o \" \\"}])";

TEST_CASE("json: an array of records, and an object that holds one") {
  const test::ScratchFolder scratch;
  CHECK(texts_of(scratch.write("a.json", kRecords)) == kTwo);
  CHECK(texts_of(scratch.write("b.json", "\xef\xbb\xbf \r\n" + kRecords + "\r\n")) == kTwo);
  CHECK(texts_of(scratch.write("c.json", "{\"data\": " + kRecords + "}")) == kTwo);
  CHECK(texts_of(scratch.write(
            "d.json", "{\"version\": 1.5, \"tags\": [\"a\"], \"none\": [], \"rows\": " + kRecords +
                          ", \"by\": {\"a\": [[1]]}}")) == kTwo);
}

TEST_CASE("json: token ids under input_ids or ids") {
  const test::ScratchFolder scratch;
  const std::vector<std::vector<TokenId>> expected{{1, 2, 3}, {}, {4}};
  CHECK(ids_of(scratch.write("a.json", R"({"ids": [[1, 2, 3], [], [4]]})")) == expected);
  CHECK(ids_of(scratch.write("b.json", R"({"window": 3, "input_ids": [ [1,2,3],[],[4]]})")) ==
        expected);
  CHECK(ids_of(scratch.write("c.json",
                             R"([{"input_ids": [1,2,3]},{"input_ids": []},{"input_ids":[4]}])")) ==
        expected);
}

TEST_CASE("json: a single record, and JSON lines under this name") {
  const test::ScratchFolder scratch;
  CHECK(texts_of(scratch.write("a.json", "{\n \"text\": \"one\"\n}\n")) ==
        std::vector<std::string>{"one"});
  CHECK(ids_of(scratch.write("b.json", "{\"input_ids\": [7, 8]}")) ==
        std::vector<std::vector<TokenId>>{{7, 8}});
  CHECK(texts_of(scratch.write("c.json", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n")) ==
        std::vector<std::string>{"one", "two"});
  const auto chat = scratch.write("d.json", R"({"messages": [{"role": "user", "content": "a"}]})");
  CHECK(open_dataset(chat)->size() == 1);
}

TEST_CASE("json: a place is the line and the index of the record") {
  const test::ScratchFolder scratch;
  const auto path =
      scratch.write("a.json", "{\"data\": [\n{\"text\": \"a\"},\n\n{\"text\":\n\"b\"}]}");
  const auto dataset = open_dataset(path);
  CHECK(dataset->record(0).place == path.string() + ":2, record 0");
  CHECK(dataset->record(1).place == path.string() + ":4, record 1");
}

TEST_CASE("json: a mistake inside a record is named by the file's line") {
  const test::ScratchFolder scratch;
  const auto path =
      scratch.write("a.json", "[\n{\n\"text\": \"a\"},\n{\n\"id\": 1,\n\"text\": b\n}]");
  const auto dataset = open_dataset(path);
  CHECK(std::get<std::string>(dataset->record(0).content) == "a");
  CHECK(test::error_of(scratch.path(), [&] { dataset->record(1); }) ==
        "a.json:4, record 1: not valid JSON at line 6, column 9: syntax error while parsing value "
        "- invalid "
        "literal; last read: '\"text\": b'");
}

TEST_CASE("json: any cut of a valid file is an error or a shorter array, never a crash") {
  const test::ScratchFolder scratch;
  const std::string whole = "{\"a\": {\"b\": [1, \"\\\"\"]}, \"data\": " + kRecords + "}";
  for (size_t size = 0; size < whole.size(); ++size) {
    INFO(whole.substr(0, size));
    const auto path = scratch.write("cut.json", whole.substr(0, size));
    CHECK(test::error_of(scratch.path(), [&] { texts_of(path); }) != "");
  }
  CHECK(texts_of(scratch.write("whole.json", whole)) == kTwo);
}

TEST_CASE("json: any changed byte is an error or a file that still reads, never a crash") {
  const test::ScratchFolder scratch;
  const std::string whole = "{\"a\": 1, \"data\": " + kRecords + "}";
  int refused = 0, read = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const char c : {'{', '}', '[', ']', '"', '\\', ',', ':', '\0', '\xff', 'x', ' '}) {
      std::string changed = whole;
      changed[at] = c;
      const auto path = scratch.write("changed.json", changed);
      try {
        texts_of(path);
        ++read;
      } catch (const Error&) {
        ++refused;
      }
    }
  }
  CHECK(refused + read == static_cast<int>(12 * whole.size()));
  CHECK(refused > read);
}

}  // namespace

TEST_CASE("json: a mask beside token ids must hide none") {
  const test::ScratchFolder scratch;
  const std::vector<std::vector<TokenId>> expected{{1, 2, 3}, {4}};
  CHECK(ids_of(scratch.write("a.json", R"({"input_ids": [[1, 2, 3], [4]],
                                           "attention_mask": [[1, 1, true], [1]]})")) == expected);
  const auto refusal = [&](const char* name, const std::string& text) {
    const auto path = scratch.write(name, text);
    return test::error_of(scratch.path(), [&] { ids_of(path); });
  };
  CHECK(refusal("b.json", R"({"input_ids": [[1, 2, 3]], "attention_mask": [[0, 1, 1]]})") ==
        "b.json: key 'attention_mask', whose value begins at line 1: attention_mask[0][0] is 0, "
        "expected 1: masked tokens are not supported; leave padding out of the record");
  CHECK(ids_of(scratch.write("c.jsonl", R"({"input_ids": [1, 2, 3], "attention_mask": [1, 1, 1]})"
                                        "\n"
                                        R"({"input_ids": [4], "attention_mask": null})")) ==
        expected);
  CHECK(refusal("d.jsonl", R"({"input_ids": [1, 2], "attention_mask": [1, 0]})") ==
        "d.jsonl:1: attention_mask[1] is 0, expected 1: masked tokens are not supported; leave "
        "padding out of the record");
  CHECK(refusal("e.jsonl", R"({"input_ids": [1, 2], "attention_mask": [1]})") ==
        "e.jsonl:1: key 'attention_mask' has 1 value, expected one for each of 2 token ids");
  CHECK(refusal("f.csv", "input_ids,attention_mask\n\"[5, 6]\",\"[0, 1]\"\n") ==
        "f.csv:2: attention_mask[0] is 0, expected 1: masked tokens are not supported; leave "
        "padding out of the record");
}

}  // namespace kvcal
