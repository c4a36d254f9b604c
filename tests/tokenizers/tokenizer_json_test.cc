#include <ctime>
#include <thread>

#include "support/catch.h"
#include "tokenizer_fixtures.h"
#include "unicode/unicode.h"

using namespace kvcal;

namespace {

/// Times hold for optimized code without sanitizers only.
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__)
constexpr double kSecondsForMegabyte = 2.0;
#else
constexpr double kSecondsForMegabyte = 60.0;
#endif

std::string decoded_or(const Json& decoded, const std::string& text) {
  return decoded.is_null() ? text : decoded.get<std::string>();
}

/// One text of one variant; row: ids, ids with special tokens, decoded, decoded without special
/// tokens.
void check_row(const Tokenizer& tokenizer, const std::string& bytes, const std::string& text,
               const Json& row) {
  const auto plain = row[0].get<std::vector<TokenId>>();
  const auto special = row[1].is_null() ? plain : row[1].get<std::vector<TokenId>>();
  CHECK(tokenizer.encode(bytes, false) == plain);
  CHECK(tokenizer.encode(bytes, true) == special);
  CHECK(tokenizer.decode(special, false) == decoded_or(row[2], text));
  CHECK(tokenizer.decode(special, true) == decoded_or(row[3], text));
}

}  // namespace

TEST_CASE("tokenizer.json: ids and text of every kind of tokenizer equal those of the library") {
  const Json variants = test::fixture_json("variants.json");
  const std::vector<std::string> texts = test::hard_texts();
  size_t checked = 0;
  for (const auto& entry : fs::directory_iterator(test::tokenizer_fixtures())) {
    const std::string file = entry.path().filename().string();
    if (!file.starts_with("expected_")) continue;
    const Json expected = test::fixture_json(file);
    for (const auto& [name, rows] : expected.items()) {
      const auto tokenizer = test::variant_tokenizer(name);
      REQUIRE(rows.size() == texts.size());
      for (size_t i = 0; i < texts.size(); ++i) {
        INFO("variant " << name << ", text " << i << ": " << texts[i]);
        // The reference saw what errors="replace" makes of bytes that are no UTF-8.
        check_row(*tokenizer, texts[i], kvcal::unicode::replace_invalid(texts[i]), rows[i]);
      }
      ++checked;
    }
  }
  CHECK(checked == variants.size());
  CHECK(checked > 60);
}

TEST_CASE("tokenizer.json: a megabyte without spaces takes less than two seconds") {
  const std::string letters = test::generated_text(1'000'000, 7, "abcdefghijklmnopqrstuvwxyz");
  const std::string few = test::generated_text(1'000'000, 9, "aab");
  const Json long_rows = test::fixture_json("long.json");
  for (const auto& [name, kinds] : long_rows.items()) {
    const auto tokenizer = test::variant_tokenizer(name);
    for (const auto& [kind, expected] : kinds.items()) {
      INFO("variant " << name << ", text of " << kind);
      const std::clock_t start =
          std::clock();  // of the processor: what other programs take is not ours
      const std::vector<TokenId> ids = tokenizer->encode(kind == "letters" ? letters : few, false);
      const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
      CHECK(ids.size() == expected["count"].get<size_t>());
      CHECK(std::to_string(test::hash_of_ids(ids)) == expected["hash"].get<std::string>());
      CHECK(seconds < kSecondsForMegabyte);
    }
  }
}

TEST_CASE("tokenizer.json: threads share a tokenizer") {
  const auto tokenizer = test::variant_tokenizer("llama3");
  const std::vector<std::string> texts = test::hard_texts();
  const auto encode_all = [&] {
    std::vector<std::vector<TokenId>> ids;
    for (const std::string& text : texts) ids.push_back(tokenizer->encode(text, true));
    return ids;
  };
  const auto alone = encode_all();
  std::vector<std::vector<std::vector<TokenId>>> together(4);
  std::vector<std::thread> threads;
  for (auto& result : together) threads.emplace_back([&] { result = encode_all(); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : together) CHECK(result == alone);
}

TEST_CASE("tokenizer.json: tokens and ids are found both ways") {
  const auto tokenizer = test::variant_tokenizer("smollm2");
  REQUIRE(tokenizer->token_to_id("<|endoftext|>").has_value());
  const TokenId id = *tokenizer->token_to_id("<|endoftext|>");
  CHECK(tokenizer->id_to_token(id) == "<|endoftext|>");
  CHECK(tokenizer->vocab_size() == 703);
  CHECK_FALSE(tokenizer->token_to_id("no such token").has_value());
  CHECK_FALSE(tokenizer->id_to_token(703).has_value());
  CHECK_FALSE(tokenizer->id_to_token(-1).has_value());
  // Ids that stand for nothing are left out, as in the library.
  CHECK(tokenizer->decode(std::vector<TokenId>{-1, 703, 1 << 30}, false).empty());
}
