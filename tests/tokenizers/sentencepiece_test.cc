#include <unistd.h>

#include "core/error.h"
#include "support/catch.h"
#include "tokenizer_fixtures.h"

using namespace kvcal;
using tokenizers::read_sentencepiece;

namespace {

std::string model(const std::string& name) {
  return read_text(test::tokenizer_fixtures() / name);
}

std::string message(const std::string& bytes, const std::string& config = "") {
  try {
    read_sentencepiece({.model = bytes, .config = config, .added = ""});
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("sentencepiece: a model alone gives that library's ids") {
  const Json expected = test::fixture_json("spm_expected.json");
  const std::vector<std::string> texts = test::hard_texts();
  for (const char* name : {"bpe", "unigram"}) {
    const std::string bytes = model(std::string("spm_") + name + ".model");
    const auto tokenizer = read_sentencepiece({.model = bytes, .config = "", .added = ""});
    REQUIRE(expected[name].size() == texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      INFO(name << ", text " << i << ": " << texts[i]);
      CHECK(tokenizer->encode(texts[i], false) == expected[name][i].get<std::vector<TokenId>>());
    }
  }
}

TEST_CASE("sentencepiece: tokenizer_config.json is followed as transformers 4 did") {
  const std::string bytes = model("spm_bpe.model");
  const Json cases = test::fixture_json("spm_legacy.json");
  for (const auto& [name, entry] : cases["configs"].items()) {
    const std::string config = entry["config"].dump();
    const auto tokenizer = read_sentencepiece({.model = bytes, .config = config, .added = ""});
    for (size_t i = 0; i < cases["texts"].size(); ++i) {
      const auto text = cases["texts"][i].get<std::string>();
      INFO(name << ": " << text);
      CHECK(tokenizer->encode(text, false) == entry["rows"][i][0].get<std::vector<TokenId>>());
      CHECK(tokenizer->encode(text, true) == entry["rows"][i][1].get<std::vector<TokenId>>());
    }
  }
}

TEST_CASE("sentencepiece: decoding gives the text back") {
  const std::string bytes = model("spm_bpe.model");
  const auto tokenizer =
      read_sentencepiece({.model = bytes,
                          .config = R"({"bos_token": "<s>", "eos_token": "</s>"})",
                          .added = R"({"<new>": 700})"});
  for (const std::string text : {"Hello, world!", "naïve 漢字 😀", "two  spaces\n\ttab"}) {
    const std::vector<TokenId> ids = tokenizer->encode(text, true);
    CHECK(tokenizer->decode(ids, true) == text);
    CHECK(tokenizer->decode(ids, false) == "<s>" + text);
  }
  CHECK(tokenizer->vocab_size() == 701);
  CHECK(tokenizer->token_to_id("<new>") == 700);
  CHECK(tokenizer->id_to_token(700) == "<new>");
  CHECK(tokenizer->token_to_id("</s>") == 2);
  CHECK_FALSE(tokenizer->token_to_id("no such token").has_value());
  CHECK_FALSE(tokenizer->id_to_token(699).has_value());
  CHECK(tokenizer->decode(std::vector<TokenId>{-5, 699, 5000}, false).empty());
}

TEST_CASE("sentencepiece: broken models are errors") {
  const std::string bytes = model("spm_unigram.model");
  CHECK(message("").find("not a sentencepiece model: it has no pieces") == 0);
  CHECK(message("garbage").find("not a sentencepiece model") == 0);
  CHECK(message(std::string("\x0a\x00", 2)) != "no error");
  // One piece, whose text is a zero byte and a letter.
  CHECK(message(std::string("\x0a\x04\x0a\x02\x00\x61", 6)).find("holds a zero byte") !=
        std::string::npos);
  // Cut anywhere, or with any one byte changed, it must not crash; most cuts are inside a field.
  size_t errors = 0;
  for (size_t size = 0; size < bytes.size(); size += 97)
    errors += message(bytes.substr(0, size)) != "no error" ? 1 : 0;
  CHECK(errors > bytes.size() / 97 / 2);
  CHECK(
      message(bytes, "{\"legacy\": 1}").find("tokenizer_config.json: key 'legacy' is an integer") ==
      0);
  CHECK(message(bytes, "{\"added_tokens_decoder\": {\"x\": {}}}").find("expected a token id") !=
        std::string::npos);
}

TEST_CASE("sentencepiece: an unknown piece may have another text than the trainer's unk_piece") {
  // Pieces "<odd>" of type unknown, "<s>" and "</s>"; the trainer's unk_piece is "<unk>".
  const std::string bytes("\x0a\x09\x0a\x05<odd>\x18\x02\x0a\x05\x0a\x03<s>\x0a\x06\x0a\x04</s>",
                          26);
  for (const char* config : {"", R"({"legacy": false})"}) {
    const auto tokenizer = read_sentencepiece({.model = bytes, .config = config, .added = ""});
    CHECK(tokenizer->id_to_token(0) == "<odd>");
    // Without legacy, an unknown start of a text is one with the unknown token put before it, as
    // in transformers.
    const bool is_legacy = *config == '\0';
    CHECK(tokenizer->encode("x", false) == std::vector<TokenId>(is_legacy ? 1 : 0, 0));
  }
}

TEST_CASE("sentencepiece: a character map that points outside itself is an error") {
  std::string bytes = model("spm_unigram.model");
  size_t errors = 0, tried = 0;
  // The map is the largest field; damage units of its trie.
  for (size_t at = bytes.size() - 5000; at < bytes.size() - 1000; at += 61, ++tried) {
    std::string damaged = bytes;
    for (size_t i = 0; i < 4; ++i) damaged[at + i] = static_cast<char>(0xff);
    errors += message(damaged) != "no error" ? 1 : 0;
  }
  CHECK(tried > 50);
  CHECK(errors > 0);
}

TEST_CASE(
    "make_tokenizer takes tokenizer.json, else tokenizer.model, else says what it looked for") {
  const fs::path folder =
      fs::temp_directory_path() / ("kvcal_tokenizer_" + std::to_string(getpid()));
  fs::create_directories(folder);
  const auto failure = [&] {
    try {
      make_tokenizer(folder);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  CHECK(failure() ==
        folder.string() +
            ": found neither tokenizer.json, tokenizer.model, vocab.json with merges.txt, nor "
            "tekken.json");
  fs::copy_file(test::tokenizer_fixtures() / "spm_bpe.model", folder / "tokenizer.model");
  CHECK(make_tokenizer(folder)->token_to_id("</s>") == 2);
  write_file_atomically(folder / "tokenizer.json", "{}", true);
  CHECK(failure() ==
        (folder / "tokenizer.json").string() + ": key 'model' is missing, expected an object");
  fs::remove_all(folder);
}
