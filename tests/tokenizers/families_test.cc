#include <unistd.h>

#include <fstream>

#include "core/error.h"
#include "support/catch.h"
#include "tokenizer_fixtures.h"

using namespace kvcal;

namespace {

/// A model folder that goes away with the test.
class TokenizerFolder {
 public:
  TokenizerFolder()
      : path_(fs::temp_directory_path() / ("kvcal_families_" + std::to_string(::getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~TokenizerFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
  }
  /// vocab.json and merges.txt of a small byte-level BPE.
  void write_vocabulary() const {
    const Json model = test::fixture_json("base_bytelevel.json")["model"];
    write("vocab.json", model["vocab"].dump());
    std::string merges = "#version: 0.2\r\n";
    for (const Json& merge : model["merges"]) merges += merge.get<std::string>() + "\n";
    write("merges.txt", merges);
  }
  std::unique_ptr<Tokenizer> read() const { return make_tokenizer(path_); }
  /// The message without the path of the folder.
  std::string error() const {
    try {
      make_tokenizer(path_);
    } catch (const Error& error) {
      return error.message().substr(path_.string().size());
    }
    return "no error";
  }

 private:
  fs::path path_;
};

/// row: ids, ids with special tokens, decoded, decoded without special tokens; null for what is as
/// expected.
void check_row(const Tokenizer& tokenizer, const std::string& text, const Json& row) {
  const auto plain = row[0].get<std::vector<TokenId>>();
  const auto special = row[1].is_null() ? plain : row[1].get<std::vector<TokenId>>();
  CHECK(tokenizer.encode(text, false) == plain);
  CHECK(tokenizer.encode(text, true) == special);
  CHECK(tokenizer.decode(special, false) == (row[2].is_null() ? text : row[2].get<std::string>()));
  CHECK(tokenizer.decode(special, true) == (row[3].is_null() ? text : row[3].get<std::string>()));
}

void check_rows(const Tokenizer& tokenizer, const Json& texts, const Json& rows) {
  REQUIRE(rows.size() == texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto text = texts[i].get<std::string>();
    INFO("text " << i << ": " << text);
    check_row(tokenizer, text, rows[i]);
  }
}

constexpr const char* kTekken =
    R"({"config": {"pattern": "\\S+|\\s+", "default_vocab_size": 258, "default_num_special_tokens": 2}, "vocab": [)";

/// A tekken.json with the 256 bytes as its vocabulary.
std::string tekken(const std::string& rest) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text = kTekken;
  for (size_t byte = 0; byte < 256; ++byte)
    text += std::string(byte > 0 ? "," : "") + "{\"rank\":" + std::to_string(byte) +
            ",\"token_bytes\":\"" + kDigits[byte >> 2] + kDigits[(byte & 3) << 4] +
            "==\",\"token_str\":null}";
  return text + "]" + rest + "}";
}

}  // namespace

TEST_CASE("tokenizer families: what each one publishes gives the library's ids and text") {
  const Json file = test::fixture_json("families.json");
  CHECK(file["families"].size() >= 16);
  for (const auto& [name, variant] : file["families"].items()) {
    INFO("family " << name);
    const auto tokenizer = tokenizers::read_tokenizer_json(test::variant_text(variant));
    check_rows(*tokenizer, file["texts"], variant["rows"]);
  }
}

TEST_CASE("tokenizer families: folders without tokenizer.json give transformers' ids and text") {
  const Json file = test::fixture_json("vocabulary_files.json");
  CHECK(file["folders"].size() == 5);
  for (const auto& [name, entry] : file["folders"].items()) {
    INFO("folder " << name);
    const TokenizerFolder folder;
    for (const auto& [path, content] : entry["files"].items()) folder.write(path, content.dump());
    if (!entry["files"].contains("tekken.json")) folder.write_vocabulary();
    check_rows(*folder.read(), file["texts"], entry["rows"]);
  }
}

TEST_CASE("tokenizer families: sentencepiece models with symbols give that library's ids") {
  const Json file = test::fixture_json("spm_families.json");
  CHECK(file["ids"].size() == 2);
  for (const auto& [name, rows] : file["ids"].items()) {
    const std::string bytes = read_text(test::tokenizer_fixtures() / ("spm_" + name + ".model"));
    const auto tokenizer =
        tokenizers::read_sentencepiece({.model = bytes, .config = "", .added = ""});
    REQUIRE(rows.size() == file["texts"].size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto text = file["texts"][i].get<std::string>();
      INFO(name << ", text " << i << ": " << text);
      CHECK(tokenizer->encode(text, false) == rows[i].get<std::vector<TokenId>>());
    }
  }
}

TEST_CASE("tokenizer folder: vocab.json and merges.txt need a class that says how text is split") {
  const TokenizerFolder folder;
  folder.write_vocabulary();
  const std::string need =
      "vocab.json and merges.txt do not say how text is split (a tokenizer.json would)";
  CHECK(folder.error() ==
        ": " + need + ", and neither tokenizer_config.json nor config.json names the tokenizer");
  folder.write("config.json", R"({"model_type": "opt"})");
  CHECK(folder.error().starts_with(": config.json: " + need + ": unknown model_type 'opt'"));
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "CohereTokenizer"})");
  CHECK(folder.error().starts_with(": tokenizer_config.json: " + need +
                                   ": unknown tokenizer_class 'CohereTokenizer'"));
}

TEST_CASE("tokenizer folder: wrong files beside vocab.json are named") {
  const TokenizerFolder folder;
  folder.write_vocabulary();
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer"})");
  folder.write("added_tokens.json", R"({"<a>": 900})");
  CHECK(folder.error() ==
        ": added_tokens.json: token '<a>' has the id 900, expected 700, the next free one");
  folder.write("added_tokens.json", R"({"<a>": -1})");
  CHECK(folder.error().starts_with(": added_tokens.json: id of '<a>' is -1"));
  folder.write("added_tokens.json", "[]");
  CHECK(folder.error() == ": added_tokens.json: found an array, expected an object");
  folder.write("added_tokens.json", "{}");
  folder.write("merges.txt", "a\n");
  CHECK(folder.error() ==
        ": vocab.json and merges.txt: merges[0]: 'a' is not two tokens with a space between");
  folder.write("merges.txt", "");
  folder.write("tokenizer_config.json",
               R"({"tokenizer_class": "GPT2Tokenizer", "added_tokens_decoder": {"x": {}}})");
  CHECK(folder.error() ==
        ": tokenizer_config.json: added_tokens_decoder['x']: expected a token id");
  folder.write("tokenizer_config.json",
               R"({"tokenizer_class": "Qwen2Tokenizer", "add_bos_token": true})");
  CHECK(folder.error() ==
        ": tokenizer_config.json: key 'add_bos_token' is true, but there is no bos_token");
  folder.write("tokenizer_config.json",
               R"({"tokenizer_class": "GPT2Tokenizer", "add_bos_token": true, "bos_token": ""})");
  CHECK(folder.error() ==
        ": tokenizer_config.json: key 'add_bos_token' is true, but bos_token is an empty text");
  folder.write("tokenizer_config.json",
               R"({"tokenizer_class": "GPT2Tokenizer", "bos_token": {"special": true}})");
  folder.write("added_tokens.json", R"({"<a>": 700})");
  CHECK(folder.error() == ": special tokens: key 'content' is missing, expected a string");
}

TEST_CASE("tokenizer folder: tiktoken ranks are refused by name") {
  const TokenizerFolder folder;
  CHECK(folder.error() ==
        ": found neither tokenizer.json, tokenizer.model, vocab.json with merges.txt, nor "
        "tekken.json");
  folder.write("qwen.tiktoken", "IQ== 0\n");
  CHECK(folder.error().starts_with(": qwen.tiktoken holds tiktoken ranks"));
  folder.write("tokenizer.model", "IQ== 0\nIg== 1\n");
  CHECK(folder.error().starts_with("/tokenizer.model: found tiktoken ranks"));
}

TEST_CASE("tekken.json: special tokens have the first ids, listed or not") {
  const auto unlisted = tokenizers::read_tekken(tekken(""));
  CHECK(unlisted->encode("<s>A<SPECIAL_1>", false) ==
        std::vector<TokenId>{1, 67, 62, 85, 82, 71, 69, 75, 67, 78, 97, 51, 64});
  CHECK(unlisted->vocab_size() == 258);
  const auto listed = tokenizers::read_tekken(
      tekken(R"(, "special_tokens": [{"rank": 0, "token_str": "<x>", "is_control": true}])"));
  CHECK(listed->encode("<x>A<SPECIAL_1>", true) == std::vector<TokenId>{0, 67, 1});
  CHECK(listed->decode(std::vector<TokenId>{0, 67, 1}, true) == "A");
}

TEST_CASE("tekken.json: wrong fields are named") {
  const auto message = [](std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    text.replace(at, from.size(), to);
    try {
      tokenizers::read_tekken(text);
    } catch (const Error& error) {
      return error.message();
    }
    return std::string("no error");
  };
  const std::string good = tekken("");
  CHECK(message(good, "258", "259") ==
        "config: key 'default_vocab_size' is 259: with 2 special tokens that leaves 257 of the 256 "
        "in 'vocab'");
  CHECK(
      message(good, ": 2}", ": -1}").starts_with("config: key 'default_num_special_tokens' is -1"));
  CHECK(message(good, "\"rank\":3", "\"rank\":4") == "vocab[3]: key 'rank' is 4, expected 3");
  CHECK(message(good, "Aw==", "A?==") == "vocab[3]: key 'token_bytes' is not base64");
  CHECK(message(good, "Aw==", "AA==") == "vocab[3] repeats an earlier token");
  CHECK(message(good, "Aw==", "====") == "vocab[3]: a token of 0 bytes, expected 1 to 1024");
  CHECK(message(good, "\"pattern\"", "\"patterns\"") ==
        "config: key 'pattern' is missing, "
        "expected a string");
  CHECK(message(tekken(R"(, "special_tokens": [{"rank": 7, "token_str": "<x>"}])"), "{", "{") ==
        "special token '<x>' has the rank 7, expected 0 to 1");
}
