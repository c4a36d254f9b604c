#include "quant/module_target.h"

#include "core/file.h"
#include "core/json.h"
#include "support/catch.h"
#include "support/folders.h"

#include <string>
#include <vector>

using namespace kvcal;

namespace {

std::string message_of(const std::string& pattern, const std::string& name = "model") {
  try {
    matches_target(pattern, name, "LlamaAttention");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("target: a class name or a full module name, exactly") {
  const std::string name = "model.layers.0.self_attn", class_name = "LlamaAttention";
  CHECK(matches_target("LlamaAttention", name, class_name));
  CHECK(matches_target("model.layers.0.self_attn", name, class_name));
  for (const char* other :
       {"llamaattention", "Attention", "self_attn", "model.layers.0", "layers.0.self_attn",
        "model.layers.0.self_attn.k_proj", "model.layers.0.*", ""}) {
    INFO(other);
    CHECK_FALSE(matches_target(other, name, class_name));
  }
}

TEST_CASE("target: a pattern matches from the start, not to the end, and never the class") {
  const std::string name = "model.layers.11.self_attn", class_name = "LlamaAttention";
  for (const char* pattern :
       {"re:.*self_attn$", "re:model", "re:model\\.layers\\.1", "re:.*layers\\.(1|11)\\.",
        "re:(?i)MODEL", "re:(?!lm_head)", "re:[^.]+\\.layers", "re:.{3,}", "re:()",
        "re:(?P<first>model)\\.(?:layers|blocks)", "re:\\w+\\.\\w+\\.\\d\\d\\."}) {
    INFO(pattern);
    CHECK(matches_target(pattern, name, class_name));
  }
  for (const char* pattern :
       {"re:self_attn", "re:layers", "re:model$", "re:.*layers\\.1\\.", "re:LlamaAttention",
        "re:MODEL", "re:.*mlp", "re:model\\.layers\\.1$"}) {
    INFO(pattern);
    CHECK_FALSE(matches_target(pattern, name, class_name));
  }
}

// The expectations are compressed-tensors' answers; reference/recipes_llmcompressor.py keeps
// them.
TEST_CASE("target: the answers of compressed-tensors' match_name") {
  const Json fixture =
      parse_json(read_text(test::tests_folder().string() + "/fixtures/recipe/matches.json"));
  const auto names = fixture.at("names").get<std::vector<std::string>>();
  REQUIRE(fixture.at("matches").size() > 30);
  for (const auto& [target, answers] : fixture.at("matches").items()) {
    REQUIRE(answers.size() == names.size());
    for (size_t i = 0; i < names.size(); ++i) {
      INFO(target << " on " << names[i]);
      CHECK(matches_target(target, names[i], "NoSuchClass") == answers[i].get<bool>());
    }
  }
}

TEST_CASE("target: words and digits are Unicode's, as in Python") {
  CHECK(matches_target("re:\\w+$", "modèle_ä", ""));
  CHECK(matches_target("re:\\d$", "\u0663", ""));  // ARABIC-INDIC DIGIT THREE
  CHECK(matches_target("re:^.$", "ä", ""));        // one character, two bytes
}

TEST_CASE("target: what Python's re would not take, or read in another way, is refused") {
  for (const char* pattern :
       {"re:(",       "re:[a",      "re:*a",     "re:a{2,1}",    "re:\\",    "re:\\h",
        "re:\\Qa\\E", "re:\\K",     "re:\\R",    "re:(?R)",      "re:(?1)",  "re:(?&a)",
        "re:(?|a|b)", "re:(?<a>b)", "re:(?P>a)", "re:(*ACCEPT)", "re:(?C1)", "re:[[:alpha:]]",
        "re:a{,3}",   "re:\\v",     "re:"}) {
    INFO(pattern);
    CHECK_THROWS_AS(check_target(pattern), Error);
  }
  CHECK_THROWS_AS(check_target(""), Error);
  CHECK_THROWS_AS(check_target("re:" + std::string(5000, 'a')), Error);
  CHECK_THROWS_AS(check_target("re:\xff"), Error);
  CHECK_THROWS_AS(check_target("re:" + std::string(1000, '(') + std::string(1000, ')')), Error);
}

TEST_CASE("target: what both take stays taken") {
  for (const char* pattern :
       {"re:[]a]+", "re:[^]a]+", "re:[[]", "re:(?:a|b)", "re:(?=a)", "re:(?<=a)b", "re:(?<!a)b",
        "re:(?P<n>a)(?P=n)", "re:(a)\\1", "re:(?#comment)a", "re:a{0,3}?", "re:\\x41", "re:\\.",
        "re:[\\w.]+", "re:a\\Z", "Linear", "model.layers.0.self_attn"}) {
    INFO(pattern);
    CHECK_NOTHROW(check_target(pattern));
  }
}

TEST_CASE("target: a message names pattern and place") {
  CHECK(message_of("re:.*(self_attn") ==
        "pattern 're:.*(self_attn' is no regular expression at character 13: missing closing "
        "parenthesis");
}

TEST_CASE("target: a pattern that explodes ends with an error") {
  const std::string message = message_of("re:(a+)+$", std::string(60, 'a') + "b");
  CHECK(message.find("pattern 're:(a+)+$'") != std::string::npos);
  CHECK(message.find("limit exceeded") != std::string::npos);
}
