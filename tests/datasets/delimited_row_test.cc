#include "datasets/dataset_reader.h"

#include "core/file.h"
#include "core/json.h"
#include "datasets/readers/dataset_files.h"

namespace kvcal {
namespace {

/// All rows as JSON; null where they cannot be read.
Json rows_of(const std::string& text, char delimiter) {
  Json rows = Json::array();
  std::vector<std::string> fields;
  try {
    for (size_t at = 0; at < text.size();) {
      at = read_row(text, at, delimiter, fields);
      rows.push_back(fields);
    }
  } catch (const Error&) {
    return nullptr;
  }
  return rows;
}

TEST_CASE("delimited rows: hard and random texts have the rows of Python's csv module") {
  const Json cases = parse_json(read_text(test::dataset_fixtures() / "delimited.json"));
  CHECK(cases.size() == 630);
  for (const Json& one : cases) {
    const std::string text = one.at("text").get<std::string>();
    INFO(one.at("text").dump());
    CHECK(rows_of(text, ',') == one.at("comma"));
    CHECK(rows_of(text, '\t') == one.at("tab"));
  }
}

TEST_CASE("delimited rows: a header names a key of records before a row of as many fields") {
  CHECK(delimiter_by_header("id,text\n1,a\n") == ',');
  CHECK(delimiter_by_header("id\ttext\n\n1\t\"a\nb\"\n") == '\t');
  CHECK(delimiter_by_header("prompt,response\r\na,b") == ',');
  CHECK(delimiter_by_header("text\nA line of it.\n") == ',');
  for (const char* text :
       {"", "text", "text\n\n", "id,body\n1,a\n", "id,text\n1\n", "the text, of old\nand, new\n",
        "id,\"text\n", "\ntext,id\n1,2\n", "id;text\n1;2\n"})
    CHECK_FALSE(delimiter_by_header(text));
}

}  // namespace
}  // namespace kvcal
