#include "core/error.h"
#include "support/catch.h"
#include "tokenizer_fixtures.h"

using namespace kvcal;

namespace {

std::string message_of(const std::string& text) {
  try {
    tokenizers::read_tokenizer_json(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// The message for a small sound file with one top-level value replaced.
std::string with(const std::string& key, const std::string& value) {
  Json json = parse_json(
      R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})");
  json[key] = parse_json(value);
  return message_of(json.dump());
}

/// The message for BPE with one of its fields replaced.
std::string with_model(const std::string& key, const std::string& value) {
  Json model =
      parse_json(R"({"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]})");
  model[key] = parse_json(value);
  return with("model", model.dump());
}

bool begins(const std::string& text, const std::string& start) {
  INFO(text);
  CHECK(text.substr(0, start.size()) == start);
  return text.starts_with(start);
}

}  // namespace

TEST_CASE("tokenizer.json: an unknown type is named with its place") {
  CHECK(with("normalizer", "null") == "no error");
  CHECK(begins(with("normalizer", R"({"type": "Uppercase"})"),
               "normalizer: unknown type 'Uppercase' (did you mean 'Lowercase'?)"));
  CHECK(begins(
      with("pre_tokenizer",
           R"({"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}, {"type": "X"}]})"),
      "pre_tokenizer.pretokenizers[1]: unknown type 'X'; known are "));
  CHECK(begins(
      with(
          "pre_tokenizer",
          R"({"type": "Sequence", "pretokenizers": [{"type": "Sequence", "pretokenizers": [{}]}]})"),
      "pre_tokenizer.pretokenizers[0].pretokenizers[0]: key 'type' is missing"));
  CHECK(begins(with("post_processor", R"({"type": "Y"})"), "post_processor: unknown type 'Y'"));
  CHECK(begins(with("decoder", R"({"type": "Sequence", "decoders": [{"type": "Z"}]})"),
               "decoder.decoders[0]: unknown type 'Z'"));
  CHECK(begins(with("model", R"({"type": "Transducer"})"), "model: unknown type 'Transducer'"));
  CHECK(begins(with("normalizer", R"({"type": "Sequence"})"),
               "normalizer: key 'normalizers' is missing"));
  CHECK(begins(with("normalizer", R"(["NFC"])"),
               "normalizer: expected an object with key 'type', found an array"));
  CHECK(begins(with("version", R"("2.0")"), "version '2.0' is unknown"));
}

TEST_CASE("tokenizer.json: components with wrong fields") {
  CHECK(begins(
      with(
          "pre_tokenizer",
          R"({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": false})"),
      "pre_tokenizer: invalid regular expression '('"));
  CHECK(begins(
      with(
          "pre_tokenizer",
          R"({"type": "Split", "pattern": {"Glob": "*"}, "behavior": "Isolated", "invert": false})"),
      "pre_tokenizer: key 'pattern' has neither 'String' nor 'Regex'"));
  CHECK(begins(
      with(
          "pre_tokenizer",
          R"({"type": "Split", "pattern": {"String": "x"}, "behavior": "Shuffled", "invert": false})"),
      "pre_tokenizer: unknown behavior 'Shuffled'"));
  CHECK(begins(with("pre_tokenizer", R"({"type": "Metaspace", "replacement": "ab"})"),
               "pre_tokenizer: key 'replacement' is 'ab', expected one character"));
  CHECK(begins(with("pre_tokenizer",
                    R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"})"),
               "pre_tokenizer: unknown prepend_scheme 'last'"));
  CHECK(begins(with("pre_tokenizer", R"({"type": "FixedLength", "length": 0})"),
               "pre_tokenizer: key 'length' is 0"));
  CHECK(begins(with("pre_tokenizer", R"({"type": "Digits"})"),
               "pre_tokenizer: key 'individual_digits' is missing"));
  CHECK(begins(with("normalizer", R"({"type": "Precompiled", "precompiled_charsmap": "!!"})"),
               "normalizer: key 'precompiled_charsmap' is not base64"));
  CHECK(begins(
      with("normalizer", R"({"type": "Precompiled", "precompiled_charsmap": "//////////8="})"),
      "normalizer: the character map gives its trie 4294967295 bytes"));
  CHECK(begins(with("normalizer", R"({"type": "Replace", "pattern": {"String": "a"}})"),
               "normalizer: key 'content' is missing"));
  CHECK(begins(with("decoder", R"({"type": "Strip", "content": " ", "start": -1, "stop": 0})"),
               "decoder: keys 'start' and 'stop' are -1 and 0"));
  CHECK(begins(
      with(
          "post_processor",
          R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}], "special_tokens": {}})"),
      "post_processor: the template's token '<s>' is not in 'special_tokens'"));
  CHECK(begins(with("post_processor",
                    R"({"type": "TemplateProcessing", "single": [{"Sequence": {"id": "B"}}]})"),
               "post_processor: template for one text uses sequence 'B'"));
  CHECK(begins(
      with("post_processor", R"({"type": "BertProcessing", "cls": ["a", -1], "sep": ["b", 2]})"),
      "post_processor: id of cls is -1"));
  std::string many = R"({"type": "Whitespace"})";
  for (int i = 0; i < 100; ++i) many += R"(, {"type": "Whitespace"})";
  CHECK(begins(with("pre_tokenizer", R"({"type": "Sequence", "pretokenizers": [)" + many + "]}"),
               "pre_tokenizer.pretokenizers[64]: more than 64"));
}

TEST_CASE("tokenizer.json: steps that multiply a text are stopped") {
  const auto error_of = [](const std::string& key, const std::string& list, const std::string& step,
                           int count) {
    std::string steps = step;
    for (int i = 1; i < count; ++i) steps += "," + step;
    Json json = parse_json(
        R"({"model": {"type": "BPE", "vocab": {"a": 0, "\u00e9": 1}, "merges": [], "unk_token": "a"}})");
    json[key] = parse_json(R"({"type": "Sequence", ")" + list + "\": [" + steps + "]}");
    try {
      const auto tokenizer = tokenizers::read_tokenizer_json(json.dump());
      tokenizer->decode(tokenizer->encode("a\xc3\xa9", true), false);
    } catch (const Error& error) {
      return error.message();
    }
    return std::string("no error");
  };
  const std::string doubles = R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})";
  const std::string twice =
      R"({"type": "TemplateProcessing", "special_tokens": {}, "single": [{"Sequence": {"id": "A"}}, {"Sequence": {"id": "A"}}]})";
  const std::string limit = "the tokenizer makes more than ";
  CHECK(error_of("normalizer", "normalizers", doubles, 8) == "no error");
  CHECK(begins(error_of("normalizer", "normalizers", doubles, 60), limit));
  CHECK(begins(error_of("normalizer", "normalizers", doubles, 65),
               "normalizer.normalizers[64]: more than 64 normalizers"));
  const std::string bytes =
      R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false})";
  CHECK(begins(error_of("pre_tokenizer", "pretokenizers", bytes, 60), limit));
  CHECK(begins(error_of("decoder", "decoders", doubles, 60), limit));
  CHECK(error_of("post_processor", "processors", twice, 2) == "no error");
  CHECK(begins(error_of("post_processor", "processors", twice, 16), limit));
}

TEST_CASE("tokenizer.json: models with wrong content") {
  CHECK(begins(with_model("merges", R"(["a b", "a c"])"),
               "model: merges[1]: token 'c' is not in the vocabulary"));
  CHECK(begins(with_model("merges", R"(["b a"])"),
               "model: merges[0]: token 'ba' is not in the vocabulary"));
  CHECK(
      begins(with_model("merges", R"(["a b c"])"), "model: merges[0]: 'a b c' is not two tokens"));
  CHECK(begins(with_model("merges", R"([["a"]])"), "model: merges[0]: found an array"));
  CHECK(begins(with_model("merges", "7"), "model: key 'merges' is an integer"));
  CHECK(begins(with_model("vocab", R"({"a": -1})"),
               "model: id of vocab['a'] is -1, expected an integer from 0 to 2147483647"));
  CHECK(
      begins(with_model("vocab", R"({"a": 2147483648})"), "model: id of vocab['a'] is 2147483648"));
  CHECK(begins(with_model("vocab", R"({"a": 1.5})"), "model: id of vocab['a'] is 1.5"));
  CHECK(begins(with_model("vocab", R"(["a"])"), "model: key 'vocab' is an array"));
  CHECK(begins(with_model("dropout", "0.1"), "model: key 'dropout' is 0.1"));
  CHECK(begins(with_model("end_of_word_suffix", '"' + std::string(65, 'a') + '"'),
               "model: continuing_subword_prefix or end_of_word_suffix has 65 bytes"));
  CHECK(begins(with("model", R"({"type": "Unigram", "unk_id": 0, "vocab": [[")" +
                                 std::string(4097, 'a') + R"(", 0.0]]})"),
               "model: vocab[0] has 4097 bytes"));
  CHECK(begins(
      with("model", R"({"type": "WordPiece", "vocab": {}, "max_input_chars_per_word": 257})"),
      "model: key 'max_input_chars_per_word' is 257"));
  CHECK(begins(with_model("continuing_subword_prefix", R"("####")"),
               "model: merges[0]: 'b' is shorter"));
  CHECK(begins(with("model", R"({"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 1})"),
               "model: key 'unk_id' is 1, the vocabulary has 1 token"));
  CHECK(begins(with("model", R"({"type": "Unigram", "vocab": [["a"]], "unk_id": 0})"),
               "model: vocab[0] is not [\"text\", score]"));
  CHECK(begins(message_of(R"({"model": {"vocab": {"a": 0, "a": 1}}})"), "key 'a' appears twice"));
  CHECK(begins(message_of("{"), "not valid JSON at line 1"));
  CHECK(begins(message_of("[]"), "expected an object"));
  CHECK(begins(message_of("{}"), "key 'model' is missing"));
}

TEST_CASE("tokenizer.json: added tokens with wrong fields") {
  CHECK(begins(with("added_tokens", R"([{"id": -1, "content": "x"}])"),
               "added_tokens: [0]: id of 'x' is -1"));
  CHECK(begins(with("added_tokens", R"([{"content": "x"}])"),
               "added_tokens: [0]: key 'id' is missing"));
  CHECK(begins(with("added_tokens", R"([{"id": 99999999999, "content": "x"}])"),
               "added_tokens: [0]: id of 'x' is 99999999999"));
  CHECK(begins(with("added_tokens", R"([{"id": 1}])"),
               "added_tokens: [0]: key 'content' is missing"));
  CHECK(begins(with("added_tokens", "{}"), "added_tokens: found an object"));
  // As the tokenizers package does: "missing field `single_word`".
  const Json whole = parse_json(R"({"id": 0, "content": "x", "single_word": false, "lstrip": false,
                                    "rstrip": false, "normalized": false, "special": true})");
  for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized", "special"}) {
    Json token = whole;
    token.erase(flag);
    CHECK(with("added_tokens", Json::array({token}).dump()) ==
          "added_tokens: [0]: key '" + std::string(flag) + "' is missing, expected true or false");
  }
  CHECK(
      begins(with("added_tokens", "[{\"id\": 1, \"content\": \"" + std::string(5000, 'x') + "\"}]"),
             "added_tokens: [0]: key 'content' has 5000 bytes"));
}

TEST_CASE("tokenizer.json: huge ids and ids used twice take no memory and no crash") {
  const auto tokenizer = tokenizers::read_tokenizer_json(
      R"({"model": {"type": "BPE", "vocab": {"a": 2147483647, "b": 5, "c": 5}, "merges": []}})");
  CHECK(tokenizer->vocab_size() == int64_t{1} << 31);
  CHECK(tokenizer->encode("abc", false) == std::vector<TokenId>{2147483647, 5, 5});
  CHECK(tokenizer->decode(std::vector<TokenId>{2147483647, 5}, false).size() == 3);
}

TEST_CASE("tokenizer.json: text that a model cannot express is an error when it comes") {
  const auto word_level = tokenizers::read_tokenizer_json(
      R"({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "<unk>"}})");
  CHECK(word_level->encode("a", false) == std::vector<TokenId>{0});
  CHECK_THROWS_AS(word_level->encode("b", false), Error);
  const auto unigram =
      tokenizers::read_tokenizer_json(R"({"model": {"type": "Unigram", "vocab": [["a", -1.0]]}})");
  CHECK(unigram->encode("aa", false) == std::vector<TokenId>{0, 0});
  CHECK_THROWS_AS(unigram->encode("ab", false), Error);
  const auto bpe = tokenizers::read_tokenizer_json(
      R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "unk_token": "?"}})");
  CHECK_THROWS_AS(bpe->encode("ab", false), Error);
}

TEST_CASE("tokenizer.json: long and strange inputs stay bounded") {
  for (const char* name : {"smollm2", "o200k", "deepseek", "kimi", "llama2", "t5_new",
                           "bert_uncased", "added", "albert"}) {
    INFO(name);
    const auto tokenizer = test::variant_tokenizer(name);
    for (const std::string& unit :
         {std::string(" "), std::string("\n"), std::string("a"), std::string("'"),
          std::string("\xcc\x81"), std::string("\xe6\xbc\xa2"), std::string("<"), std::string("1"),
          std::string("\xff"), std::string(1, '\0'), std::string("\xf0\x9f\x91\xa8\xe2\x80\x8d")}) {
      std::string text;
      while (text.size() < 200'000) text += unit;
      const std::vector<TokenId> ids = tokenizer->encode(text, false);
      CHECK(ids.size() <= text.size() * 3 + 2);
    }
  }
}
