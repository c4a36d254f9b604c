#include "datasets/dataset.h"
#include "datasets/readers/dataset_files.h"

namespace kvcal {
namespace {

std::string text_at(const Dataset& dataset, int64_t index) {
  return std::get<std::string>(dataset.record(index).content);
}

TEST_CASE("csv: a row is a record, named by the line where it begins") {
  const test::ScratchFolder scratch;
  const auto path = scratch.write(
      "a.csv", "\xef\xbb\xbfid,text,\r\n1,\"one, \"\"1\"\"\r\nend\",x\r\n\r\n2,,\r3,three,");
  const auto dataset = open_dataset(path);
  REQUIRE(dataset->size() == 3);
  CHECK(text_at(*dataset, 2) == "three");
  CHECK(text_at(*dataset, 0) == "one, \"1\"\r\nend");
  CHECK(text_at(*dataset, 1).empty());
  CHECK(dataset->record(0).place == path.string() + ":2");
  CHECK(dataset->record(1).place == path.string() + ":5");
  CHECK(dataset->record(2).place == path.string() + ":6");
  CHECK(dataset->whole_text() == "one, \"1\"\r\nend\n\n\n\nthree");
}

TEST_CASE("csv: empty rows count as lines, however many they are") {
  const test::ScratchFolder scratch;
  std::string breaks;
  for (int i = 0; i < 40000; ++i) breaks += "\r\n";
  // The second way parts a pair where a step over empty rows ends.
  for (const std::string before : {"", "\n"}) {
    const auto path = scratch.write("a.csv", "text\n" + before + breaks + "one\n\r\rtwo");
    const auto dataset = open_dataset(path);
    REQUIRE(dataset->size() == 2);
    const auto first = 40002 + std::ssize(before);
    CHECK(dataset->record(0).place == path.string() + ":" + std::to_string(first));
    CHECK(dataset->record(1).place == path.string() + ":" + std::to_string(first + 3));
  }
}

TEST_CASE("csv: chats, pairs and ids are recognized by the header, under any name") {
  const test::ScratchFolder scratch;
  const Json chat =
      Json::parse(R"([{"role": "user", "content": "p"}, {"role": "assistant", "content": "r"}])");
  const std::string cell =
      R"("[{""role"": ""user"", ""content"": ""p""}, {""role"": ""assistant"", ""content"": ""r""}]")";
  for (const auto& [name, content] :
       {std::pair<std::string, std::string>{"a.csv", "messages,id\n" + cell + ",1\n"},
        {"a.tsv", "id\tmessages\n1\t" + cell + "\n"},
        {"b.csv", "prompt,response\np,r\n"},
        {"c.csv", "instruction,input,output\np,,r\n"},
        {"export", "response\tprompt\nr\tp\n"},
        {"d.CSV", "instruction,output\np,r\n"}}) {
    INFO(name);
    CHECK(std::get<Json>(open_dataset(scratch.write(name, content))->record(0).content) == chat);
  }
  const auto ids = open_dataset(scratch.write("ids.csv", "input_ids\n\"[5, 6]\"\n"));
  CHECK(std::get<std::vector<TokenId>>(ids->record(0).content) == std::vector<TokenId>{5, 6});
}

TEST_CASE("csv: another delimiter is named, and a header that needs one is answered with it") {
  const test::ScratchFolder scratch;
  const auto path = scratch.write("a.csv", "prompt;response\n\"p;1\";r, s\n");
  const auto error = [&](auto&& body) { return test::error_of(scratch.path(), body); };
  CHECK(error([&] { open_dataset(path); }) ==
        "a.csv:1: the header is one column, 'prompt;response'; where ';' parts its columns, add "
        "--delimiter ';'");
  const auto tabs = scratch.write("b.csv", "prompt\tresponse\np\tr\n");
  CHECK(error([&] { open_dataset(tabs); }).ends_with("add --delimiter tab"));
  const Json chat = Json::parse(
      R"([{"role": "user", "content": "p;1"}, {"role": "assistant", "content": "r, s"}])");
  const auto with = [](const std::string& delimiter) {
    return DatasetOverrides{.records = {.columns = {.delimiter = parse_delimiter(delimiter)}}};
  };
  CHECK(std::get<Json>(open_dataset(path, with(";"))->record(0).content) == chat);
  CHECK(open_dataset(tabs, with("tab"))->size() == 1);
  const test::ScratchFolder several;
  for (const char* name : {"a.csv", "b.csv"}) several.write(name, "prompt|response\np|r\n");
  CHECK(open_dataset(several.path(), with("|"))->size() == 2);
  CHECK(
      open_dataset(
          path,
          {.records = {.columns = {.prompt = "prompt", .response = "response", .delimiter = ";"}}})
          ->size() == 1);
  // A column whose name holds the character, where that is said.
  CHECK(error([&] { open_dataset(path, with(","))->record(0); }).find("--delimiter ';'") ==
        std::string::npos);
  const auto lines = scratch.write("c.jsonl", "{\"text\": \"t\"}\n");
  CHECK(error([&] { open_dataset(lines, with(";")); }) ==
        "c.jsonl: --delimiter is for CSV, in files that end in .csv or .tsv");
  for (const char* bad : {"", ";;", "\"", " "})
    CHECK(error([&] { parse_delimiter(bad); }).find("is no delimiter") != std::string::npos);
}

TEST_CASE("columns: named ones are read in place of those that are recognized") {
  const test::ScratchFolder scratch;
  const auto json = scratch.write(
      "a.json", R"([{"text": "no", "q": "p", "a": "r", "chat": [{"from": "gpt", "value": "v"}]}])");
  const auto csv = scratch.write("a.csv", "text,q,a\nno,p,r\n");
  const auto descriptor = scratch.write("d.yaml", "path: a.csv\nrecord: {text: \"{text}\"}\n");
  for (const auto& path : {json, csv, descriptor, scratch.path() / "*.[jc]*"}) {
    INFO(path.string());
    const auto content = [&](const RecordColumns& columns) {
      return open_dataset(path, {.records = {.columns = columns}})->record(0).content;
    };
    CHECK(std::get<std::string>(content({.text = "q"})) == "p");
    CHECK(std::get<Json>(content({.prompt = "q", .response = "a"})) ==
          Json::parse(
              R"([{"role": "user", "content": "p"}, {"role": "assistant", "content": "r"}])"));
    CHECK(std::get<Json>(content({.prompt = "q"})) ==
          Json::parse(R"([{"role": "user", "content": "p"}])"));
  }
  CHECK(
      std::get<Json>(
          open_dataset(json, {.records = {.columns = {.messages = "chat"}}})->record(0).content) ==
      Json::parse(R"([{"role": "assistant", "content": "v"}])"));
}

TEST_CASE("columns: those that do not go together or are not there are refused") {
  const test::ScratchFolder scratch;
  const auto csv = scratch.write("a.csv", "question,answer\np,r\n");
  const auto error = [&](const std::filesystem::path& path, const RecordColumns& columns) {
    return test::error_of(
        scratch.path(), [&] { open_dataset(path, {.records = {.columns = columns}})->record(0); });
  };
  CHECK(error(csv, {.text = "qestion"}) ==
        "a.csv:2: key 'qestion' is missing (did you mean 'question'?); found are 'question', "
        "'answer'");
  CHECK(error(csv, {.text = "a", .messages = "b"})
            .starts_with("columns of 2 kinds are named, expected one of --text-column"));
  CHECK(error(csv, {.response = "answer"})
            .starts_with("--response-column is given without --prompt-column"));
  CHECK(error(scratch.write("a.txt", "hello\n"), {.text = "a"})
            .starts_with("a.txt: is read as plain text, which has no columns"));
  CHECK(error(scratch.write("a.json", R"({"ids": [[1]]})"), {.text = "a"}) ==
        "a.json: holds token ids, expected objects with fields");
}

}  // namespace
}  // namespace kvcal
