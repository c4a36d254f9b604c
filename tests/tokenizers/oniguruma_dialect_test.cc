#include "core/error.h"
#include "support/catch.h"
#include "support/scratch_folder.h"
#include "tokenizer_fixtures.h"
#include "tokenizers/pattern.h"

using namespace kvcal;
using namespace kvcal::tokenizers;

namespace {

std::vector<std::string> matches(std::string_view expression, std::string_view text) {
  std::vector<std::string> all;
  make_regex(expression)->for_each(text, [&](Span match) {
    if (match.end > match.begin)
      all.emplace_back(text.substr(match.begin, match.end - match.begin));
  });
  return all;
}

std::string message(std::string_view expression) {
  try {
    make_pcre2_regex(expression);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("oniguruma: what Ruby's syntax reads otherwise than PCRE2") {
  const Json rows = test::fixture_json("regex.json");
  CHECK(rows.size() > 30);
  for (const Json& row : rows) {
    INFO(row.dump());
    CHECK(matches(row[0].get<std::string>(), row[1].get<std::string>()) ==
          row[2].get<std::vector<std::string>>());
  }
}

TEST_CASE("oniguruma: what has no equal is an error that shows the expression") {
  CHECK(message("(?~abc)") == "regular expression '(?~abc)': '(?~' is not supported");
  // tokenizers 0.22 refuses these, but for (*FAIL) and (*SKIP), which its Oniguruma has otherwise.
  for (const char* verb : {"(*ACCEPT)", "(*FAIL)", "a(*SKIP)b", "(*UTF8)a", "(*COMMIT)"})
    CHECK(message(verb) == "regular expression '" + std::string(verb) + "': '(*' is not supported");
  for (const char* group : {"(a)(?1)", "(?|a|b)", "(?<n>a)(?&n)", "(a)(?-1)", "(a)(?+1)", "(?)a",
                            "(?^i)a", "(?R)", "(?P>a)", "(?{a})", "(?"})
    CHECK(test::contains(message(group), " is not supported"));
  for (const char* group : {"(?<n>a)", "(?'n'a)", "(a)?(?(1)a|b)", "(?#x)a", "(?>a)", "(?i-m)a",
                            "(?i-m:a)", "(?-i)a", "(?=a)a", "(?<!b)a", "(?<=b)a", "(?!b)a"})
    CHECK(message(group) == "no error");
  CHECK(message("\\y") == "regular expression '\\y': \\y is not supported");
  CHECK(message("a)") == "regular expression 'a)': ')' at byte 1 closes nothing");
  CHECK(message("(a").find("invalid regular expression '(a': missing closing parenthesis") == 0);
  CHECK(message("[a").find("regular expression '[a': it ends too early") == 0);
  CHECK(message("\\p{Nonsense}").find("invalid regular expression '\\p{Nonsense}'") == 0);
  CHECK(message("*").find("invalid regular expression") == 0);
  CHECK(message(std::string(100, '[')).find("nest deeper than 50") != std::string::npos);
  CHECK(message(std::string(200, '(')).find("invalid regular expression") == 0);
  CHECK(message(std::string(100'000, 'a')).find("longer than the limit") != std::string::npos);
}

TEST_CASE("oniguruma: an expression that explodes is stopped") {
  const auto pattern = make_pcre2_regex("(a+)+$");
  const std::string text = std::string(200'000, 'a') + "b";
  CHECK_THROWS_AS(pattern->for_each(text, [](Span) {}), Error);
}

TEST_CASE("pattern: an empty match never stands right behind another") {
  std::vector<std::pair<size_t, size_t>> found;
  make_pcre2_regex("x*")->for_each("axb\xc3\xa9",
                                   [&](Span match) { found.emplace_back(match.begin, match.end); });
  CHECK(found == std::vector<std::pair<size_t, size_t>>{{0, 0}, {1, 2}, {3, 3}, {5, 5}});
}
