#include "datasets/dataset.h"
#include "datasets/readers/dataset_files.h"

namespace kvcal {
namespace {

std::string text_at(const Dataset& dataset, int64_t index) {
  return std::get<std::string>(dataset.record(index).content);
}

TEST_CASE("jsonl: blank lines, CRLF, a byte order mark and a last line without break") {
  const test::ScratchFolder scratch;
  const auto path =
      scratch.write("a.jsonl",
                    "\xef\xbb\xbf{\"text\": \"one\"}\r\n\r\n   \n  {\"text\": \"two\"}  \n"
                    "{\"text\": \"thr\\r\\nee \\u00e9\"}");
  const auto dataset = open_dataset(path);
  REQUIRE(dataset->size() == 3);
  CHECK(text_at(*dataset, 0) == "one");
  CHECK(text_at(*dataset, 1) == "two");
  CHECK(text_at(*dataset, 2) == "thr\r\nee \xc3\xa9");
  CHECK(dataset->record(0).place == path.string() + ":1");
  CHECK(dataset->record(1).place == path.string() + ":4");
  CHECK(dataset->record(2).place == path.string() + ":5");
}

TEST_CASE("jsonl: records may be asked for in any order, and only the asked one is judged") {
  const test::ScratchFolder scratch;
  const auto dataset = open_dataset(
      scratch.write("a.jsonl", "{\"text\": \"one\"}\nbroken\n{\"text\": \"three\"}\n"));
  CHECK(text_at(*dataset, 2) == "three");
  CHECK(text_at(*dataset, 0) == "one");
  CHECK_THROWS_AS(dataset->record(1), Error);
}

TEST_CASE("jsonl: the hash is the file's") {
  const test::ScratchFolder scratch;
  // printf '{"text": "abc"}\n' | sha256sum
  CHECK(open_dataset(scratch.write("a.jsonl", "{\"text\": \"abc\"}\n"))->sha256() ==
        "b3b44c015f2cfd9f6727c04576599da0309a65ffc71323b91e87b469177983c2");
}

TEST_CASE("records: the kind is the first key of input_ids, messages, conversations, text") {
  const test::ScratchFolder scratch;
  const auto dataset = open_dataset(scratch.write("a.jsonl", R"(
{"text": "t", "conversations": [], "messages": [], "input_ids": [1, 2147483647]}
{"text": "t", "conversations": [], "messages": [{"role": "user", "content": "m"}], "input_ids": null}
{"text": "t", "conversations": [{"from": "human", "value": "c"}], "messages": null}
{"id": 3, "conversations": null, "text": "t"}
{"input_ids": []}
)"));
  REQUIRE(dataset->size() == 5);
  CHECK(std::get<std::vector<TokenId>>(dataset->record(0).content) ==
        std::vector<TokenId>{1, 2147483647});
  CHECK(std::get<Json>(dataset->record(1).content) ==
        Json::parse(R"([{"role": "user", "content": "m"}])"));
  CHECK(std::get<Json>(dataset->record(2).content) ==
        Json::parse(R"([{"role": "user", "content": "c"}])"));
  CHECK(text_at(*dataset, 3) == "t");
  CHECK(std::get<std::vector<TokenId>>(dataset->record(4).content).empty());
}

TEST_CASE("records: messages keep what the template may use") {
  const test::ScratchFolder scratch;
  const std::string messages =
      R"([{"role": "user", "content": [{"type": "text", "text": "a"}], "name": "x"},)"
      R"( {"role": "assistant", "content": null, "tool_calls": [{"id": 1}]},)"
      R"( {"role": "anything", "content": ""}])";
  const auto dataset = open_dataset(scratch.write("a.jsonl", "{\"messages\": " + messages + "}"));
  CHECK(std::get<Json>(dataset->record(0).content) == Json::parse(messages));
}

TEST_CASE("records: a question and its answer are a conversation") {
  const test::ScratchFolder scratch;
  const auto dataset = open_dataset(scratch.write("a.jsonl", R"(
{"instruction": "do", "input": "it", "output": "done"}
{"instruction": "do", "input": "", "output": "done"}
{"instruction": "do", "output": "done", "history": []}
{"instruction": "", "input": null, "output": ""}
{"prompt": "p", "response": "r", "id": 1}
{"prompt": "p", "completion": "c"}
{"prompt": "p", "response": ""}
{"prompt": "p", "response": "r", "text": "t"}
{"content": "c", "prompt": "p"}
)"));
  const auto messages = [&](int64_t index) {
    std::string all;
    const Record record = dataset->record(index);
    for (const Json& one : std::get<Json>(record.content))
      all += one.at("role").get<std::string>() + "=" + one.at("content").get<std::string>() + ";";
    return all;
  };
  CHECK(messages(0) == "user=do\n\nit;assistant=done;");
  CHECK(messages(1) == "user=do;assistant=done;");
  CHECK(messages(2) == "user=do;assistant=done;");
  CHECK(messages(3).empty());
  CHECK(messages(4) == "user=p;assistant=r;");
  CHECK(messages(5) == "user=p;assistant=c;");
  CHECK(messages(6) == "user=p;");
  CHECK(text_at(*dataset, 7) == "t");
  CHECK(text_at(*dataset, 8) == "c");
}

TEST_CASE("records: messages may be ShareGPT turns, and arrays JSON in a text") {
  const test::ScratchFolder scratch;
  const auto dataset = open_dataset(scratch.write("a.jsonl", R"(
{"messages": [{"from": "human", "value": "a"}]}
{"messages": "[{\"role\": \"user\", \"content\": \"a\"}]"}
{"conversations": " [{\"from\": \"human\", \"value\": \"a\"}] "}
{"input_ids": "[1, 2]"}
{"messages": "", "text": "t"}
{"messages": ""}
)"));
  for (const int64_t index : {0, 1, 2})
    CHECK(std::get<Json>(dataset->record(index).content) ==
          Json::parse(R"([{"role": "user", "content": "a"}])"));
  CHECK(std::get<std::vector<TokenId>>(dataset->record(3).content) == std::vector<TokenId>{1, 2});
  CHECK(text_at(*dataset, 4) == "t");
  CHECK(text_at(*dataset, 5).empty());
}

TEST_CASE("records: every ShareGPT speaker has its role") {
  const test::ScratchFolder scratch;
  const std::vector<std::pair<std::string, std::string>> speakers{
      {"human", "user"},          {"user", "user"},         {"gpt", "assistant"},
      {"assistant", "assistant"}, {"chatgpt", "assistant"}, {"bing", "assistant"},
      {"bard", "assistant"},      {"model", "assistant"},   {"function_call", "assistant"},
      {"system", "system"},       {"tool", "tool"},         {"function", "tool"},
      {"observation", "tool"}};
  for (const auto& [speaker, role] : speakers) {
    INFO(speaker);
    for (const auto& [from, value] : {std::pair{"from", "value"}, std::pair{"role", "content"}}) {
      const Json record{{"conversations", {{{from, speaker}, {value, "hello"}, {"weight", 1}}}}};
      const auto dataset = open_dataset(scratch.write("a.jsonl", record.dump()));
      const Json expected{{{"role", role}, {"content", "hello"}}};
      CHECK(std::get<Json>(dataset->record(0).content) == expected);
    }
  }
}

}  // namespace
}  // namespace kvcal
