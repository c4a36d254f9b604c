#include "datasets/dataset.h"
#include "datasets/readers/dataset_files.h"

namespace kvcal {
namespace {

std::string text_at(const Dataset& dataset, int64_t index) {
  return std::get<std::string>(dataset.record(index).content);
}

TEST_CASE("plain text: a record is a paragraph, whatever the breaks") {
  const test::ScratchFolder scratch;
  for (const std::string line_break : {"\n", "\r\n"}) {
    std::string content =
        "\xef\xbb\xbf\n \t\n  One line \nand another.\n\n\n = Title = \n \nLast, caf\xc3\xa9 "
        "\xf0\x9f\x8d\xb5";
    for (size_t at = content.find('\n'); at != std::string::npos && line_break != "\n";
         at = content.find('\n', at + 2))
      content.replace(at, 1, line_break);
    const auto path = scratch.write("a.txt", content);
    const auto dataset = open_dataset(path);
    REQUIRE(dataset->size() == 3);
    CHECK(text_at(*dataset, 0) == "  One line \nand another.");
    CHECK(text_at(*dataset, 1) == " = Title = ");
    CHECK(text_at(*dataset, 2) == "Last, caf\xc3\xa9 \xf0\x9f\x8d\xb5");
    CHECK(dataset->record(0).place == path.string() + ":3");
    CHECK(dataset->record(1).place == path.string() + ":7");
    CHECK(dataset->record(2).place == path.string() + ":9");
  }
}

TEST_CASE("plain text: asked for as one, it is the file") {
  const test::ScratchFolder scratch;
  CHECK(open_dataset(scratch.write("a.txt", "\n one \n\n\n two\n"))->whole_text() ==
        "\n one \n\n\n two\n");
  CHECK(open_dataset(scratch.write("b.txt", "\xef\xbb\xbfone\r\n\r\ntwo\r\n"))->whole_text() ==
        "one\n\ntwo\n");
}

TEST_CASE("plain text: .text, .md and unknown names are text") {
  const test::ScratchFolder scratch;
  for (const char* name : {"a.text", "a.md", "A.TXT", "notes", "page.tex"}) {
    INFO(name);
    CHECK(text_at(*open_dataset(scratch.write(name, "hello\n")), 0) == "hello");
  }
  CHECK(text_at(*open_dataset(scratch.write("list.txt", "{\"text\": \"a\"}\n")), 0) ==
        "{\"text\": \"a\"}");
}

}  // namespace
}  // namespace kvcal
