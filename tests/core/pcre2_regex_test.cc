#include "core/pcre2_regex.h"

#include "core/error.h"
#include "core/interrupt.h"
#include "support/catch.h"

using namespace kvcal;

namespace {

using Match = std::optional<std::pair<size_t, size_t>>;

RegexOptions limited() {
  return {.max_steps = 100'000, .max_depth = 10'000, .max_heap_kib = 16 * 1024};
}

}  // namespace

TEST_CASE("Pcre2Regex: where matches begin and end") {
  for (const bool is_jitted : {false, true}) {
    RegexOptions options = limited();
    options.is_jitted = is_jitted;
    const Pcre2Regex words("\\w+", options);
    CHECK(words.find("  gr\xc3\xbc\xc3\x9f e", 0) == Match({2, 8}));
    CHECK(words.find("ab cd", 2) == Match({3, 5}));
    CHECK(words.find("ab   cd", 2, 4) == std::nullopt);
    CHECK(words.find("ab   cd", 2, 5) == Match({5, 7}));
    CHECK(words.find("", 0) == std::nullopt);
  }
}

TEST_CASE("Pcre2Regex: anchored, and over several lines") {
  RegexOptions options = limited();
  CHECK(Pcre2Regex("^b$", options).find("a\nb", 0) == std::nullopt);
  options.is_multiline = true;
  CHECK(Pcre2Regex("^b$", options).find("a\nb", 0) == Match({2, 3}));
  options = limited();
  options.is_anchored = true;
  const Pcre2Regex anchored("b", options);
  CHECK(anchored.find("ab", 0) == std::nullopt);
  CHECK(anchored.find("ab", 1) == Match({1, 2}));
}

TEST_CASE("Pcre2Regex: what is no expression, no text, or takes too long") {
  try {
    const Pcre2Regex bad("a(b", limited());
    FAIL("it was taken");
  } catch (const RegexSyntaxError& error) {
    CHECK(error.offset == 3);
    CHECK(error.message().find("parenthesis") != std::string::npos);
  }
  CHECK_THROWS_AS(Pcre2Regex("a", limited()).find("\xff", 0), Error);
  CHECK_THROWS_AS(Pcre2Regex("(a+)+$", limited()).find(std::string(60, 'a') + "!", 0), Error);
}

TEST_CASE("Pcre2Regex: the work of a match is counted, limited, and the same at each run") {
  const std::string text(1000, 'a');
  for (const bool is_jitted : {false, true}) {
    RegexOptions options = limited();
    options.is_jitted = is_jitted;
    options.counts_work = true;
    const Pcre2Regex word("a+", options), each("[^b]*+[cd]", options);
    RegexWork work{.most = 1'000'000};
    CHECK(word.find(text, 0, std::string_view::npos, &work) == Match({0, 1000}));
    CHECK(work.done > 1000);
    CHECK(work.done < 1100);
    work.done = 0;
    CHECK(word.find(text, 990, std::string_view::npos, &work) == Match({990, 1000}));
    CHECK(work.done < 50);  // of this match alone
    RegexWork again{.most = 1'000'000};
    CHECK(each.find(text, 0, std::string_view::npos, &again) == std::nullopt);
    CHECK(again.done > 1000 * 1000 / 2);
    CHECK(again.done < 1000 * 1000);
    again = {.most = 100'000};
    CHECK_THROWS_WITH(each.find(text, 0, std::string_view::npos, &again),
                      "takes more than 100000 steps");
    CHECK(word.find(text, 0) == Match({0, 1000}));  // not counted
    request_interrupt();
    RegexWork large{.most = uint64_t{1} << 40};
    CHECK_THROWS_AS(each.find(std::string(10'000, 'a'), 0, std::string_view::npos, &large),
                    Interrupted);
    clear_interrupt();
    CHECK(large.done < 3'000'000);
  }
}
