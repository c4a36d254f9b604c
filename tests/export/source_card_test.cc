#include "export/model_card.h"

#include "core/file.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;

TEST_CASE("source card: texts and lists of texts of the front matter, and the text below") {
  const SourceCard card = parse_source_card(
      "---\nlicense: apache-2.0\nlanguage:\n- en\n- no\ntags: [a, 'b: c']\n"
      "model-index:\n- name: x\n  results: []\n---\n\n# Title\n\n---\n\nText\n");
  REQUIRE(card.fields.size() == 3);
  CHECK(card.find("license")->values == std::vector<std::string>{"apache-2.0"});
  CHECK_FALSE(card.find("license")->is_list);
  CHECK(card.find("language")->values == std::vector<std::string>{"en", "no"});
  CHECK(card.find("tags")->values == std::vector<std::string>{"a", "b: c"});
  CHECK(card.find("model-index") == nullptr);
  CHECK(card.text == "# Title\n\n---\n\nText");
  CHECK(card.unread.empty());
  CHECK_FALSE(card.is_ours);
}

TEST_CASE("source card: line ends of other systems and a byte order mark") {
  const SourceCard card =
      parse_source_card("\xef\xbb\xbf---\r\nlicense: mit\r\n---\r\n# Title\r\n\rText\r\n");
  REQUIRE(card.find("license"));
  CHECK(card.find("license")->values.front() == "mit");
  CHECK(card.text == "# Title\n\nText");
}

TEST_CASE("source card: front matter that is no YAML map is kept as text") {
  for (const char* front : {"license: [mit", "- a\n- b", "a: &x 1\nb: *x", "a: 1\na: 2"}) {
    INFO(front);
    const SourceCard card = parse_source_card("---\n" + std::string(front) + "\n---\nText");
    CHECK(card.fields.empty());
    CHECK(card.unread == front);
    CHECK(card.text == "Text");
  }
}

TEST_CASE("source card: without front matter all is text") {
  for (const char* text :
       {"# Title", "Text\n---\na: b\n---", "---", "---\nnever ends", "----\na\n---"})
    CHECK(parse_source_card(text).text == text);
  CHECK(parse_source_card("").text.empty());
  CHECK(parse_source_card("---\n---\nText").text == "Text");
  CHECK(parse_source_card("---\n---\nText").unread.empty());
}

TEST_CASE("source card: what kvcal wrote is not the source's text") {
  const SourceCard card = parse_source_card(
      "---\ntags: [kvcal]\n---\n<!-- kvcal: begin -->\nours\n<!-- kvcal: end -->\n\n# Title\n");
  CHECK(card.is_ours);
  CHECK(card.text == "# Title");
  // A text that only quotes the mark is whole.
  CHECK(
      parse_source_card("Of <!-- kvcal: begin --> and <!-- kvcal: end -->").text.starts_with("Of"));
  CHECK(parse_source_card("<!-- kvcal: begin -->\nno end").text == "<!-- kvcal: begin -->\nno end");
}

TEST_CASE("source card: of a folder; what is no text or too long is not read") {
  const test::ScratchFolder folder;
  CHECK(read_source_card(folder.path()).text.empty());
  test::write_file(folder / "README.md", "Text");
  CHECK(read_source_card(folder.path()).text == "Text");
  test::write_file(folder / "README.md", "\xff");
  CHECK_FALSE(is_readable_card(folder.path()));
  CHECK(read_source_card(folder.path()).text.empty());
  test::write_file(folder / "README.md", std::string((size_t{1} << 20) + 1, 'a'));
  CHECK_FALSE(is_readable_card(folder.path()));
}
