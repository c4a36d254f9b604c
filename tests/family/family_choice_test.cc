// A model_type that no family has, run as a known one.
#include "family/family_choice.h"

#include "core/text.h"
#include "family/wrapper.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

namespace kvcal {
namespace {

Json fixture_config(const std::string& fixture) {
  return parse_json(read_text(test::model_fixture(fixture) / "config.json"),
                    {.has_python_constants = true});
}

Json renamed(const std::string& fixture) {
  Json config = fixture_config(fixture);
  config["model_type"] = "brandnew";
  return config;
}

std::string error_of(const Json& config, const FamilyChoice& family) {
  return test::message_of([&] { parse_model_config(config, family); });
}

}  // namespace

TEST_CASE("family choice: every key of every fixture is read by its family, or neutral") {
  for (const std::string& name : test::model_fixture_names()) {
    INFO(name << ": name the key in the family's known_keys where its resolve reads it, or in "
                 "neutral_keys.cc where it changes nothing in any family");
    CHECK(join(parse_model_config(fixture_config(name)).unread_keys, ", ") == "");
  }
}

TEST_CASE("family choice: an unknown type runs as the chosen family and keeps its name") {
  const ModelConfig known = parse_model_config(fixture_config("qwen3"));
  const ModelConfig config = parse_model_config(renamed("qwen3"), choose_family("Qwen3"));
  CHECK(config.model_type == "brandnew");
  CHECK(config.architecture == known.architecture);
  CHECK(config.chosen.text() == "--family qwen3");
  CHECK_FALSE(known.chosen);
  // A type of the chosen family itself needs no choice, and is none.
  CHECK_FALSE(parse_model_config(fixture_config("qwen3"), choose_family("qwen3")).chosen);
}

TEST_CASE("family choice: the text model of a wrapper") {
  Json config = fixture_config("llava");
  config["text_config"]["model_type"] = "brandnew";
  CHECK(test::contains(error_of(config, {}), "model_type 'brandnew' is not supported"));
  const ModelConfig parsed = parse_model_config(config, choose_family("llama"));
  CHECK(parsed.model_type == "brandnew");
  CHECK(parsed.wrapper_type == "llava");
  config["model_type"] = "brandnew_vl";
  CHECK(parse_model_config(config, choose_family("llama")).wrapper_type == "brandnew_vl");
}

TEST_CASE("family choice: names and types that are refused") {
  CHECK(test::message_of([] { choose_family("qwen33"); }) ==
        "unknown family 'qwen33' (did you mean 'qwen3'?); kvcal families lists the known");
  CHECK(error_of(fixture_config("llama"), choose_family("qwen3")) ==
        "model_type 'llama' is known and runs as the family llama; --family qwen3 is for types "
        "that are not known");
  Json refused = renamed("llama");
  refused["model_type"] = "ctrl";
  CHECK(error_of(refused, choose_family("llama")) ==
        "model_type 'ctrl' is not supported: its waves of positions are not run");
  CHECK(test::contains(error_of(renamed("llama"), {}), "; --family runs another type as one of"));
}

TEST_CASE("family choice: keys that the family does not read are refused by name") {
  Json config = renamed("llama");
  config["use_qk_norm"] = true;
  config["sliding_window"] = 64;
  config["gated_attention"] = nullptr;  // null is as absent
  CHECK(error_of(config, choose_family("llama")) ==
        "keys 'use_qk_norm', 'sliding_window': not read by the family llama that --family llama "
        "chose for model_type 'brandnew', and may change what the model computes; a --family-file "
        "may list keys that change nothing as known_keys");
  config = renamed("llama");
  config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2.0}, {"wobble", 1}};
  CHECK(test::contains(error_of(config, choose_family("llama")), "key 'rope_scaling.wobble': "));
  config = renamed("llama");
  config["is_encoder_decoder"] = false;
  CHECK_NOTHROW(parse_model_config(config, choose_family("llama")));
  config["is_encoder_decoder"] = true;
  CHECK(test::contains(error_of(config, choose_family("llama")), "key 'is_encoder_decoder': "));
  config = renamed("llama");
  config["lm_head_bias"] = false;
  CHECK_NOTHROW(parse_model_config(config, choose_family("llama")));
  config["lm_head_bias"] = true;
  CHECK(test::contains(error_of(config, choose_family("llama")), "key 'lm_head_bias': "));
  // Known types are as strict as they always were.
  Json known = fixture_config("llama");
  known["use_qk_norm"] = true;
  CHECK(parse_model_config(known).unread_keys == std::vector<std::string>{"use_qk_norm"});
}

TEST_CASE("family choice: a family's file may say which types it is for") {
  Architecture described = *choose_family("llama").architecture;
  described.model_types = {"othernew"};
  const FamilyChoice family{&described, "--family-file", "my.yaml", "1234"};
  CHECK(error_of(renamed("llama"), family) ==
        "model_type 'brandnew' is none of the model_types of --family-file my.yaml, which are "
        "othernew");
  described.model_types = {"brandnew"};
  CHECK(parse_model_config(renamed("llama"), family).architecture == &described);
  CHECK(test::contains(error_of(fixture_config("llama"), family), "is known and runs as"));
}

}  // namespace kvcal
