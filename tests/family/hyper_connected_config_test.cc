#include "family/model_config.h"

#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

namespace kvcal {
namespace {

Json config_of(const std::string& name) {
  return parse_json(read_text(test::model_fixture(name) / "config.json"));
}

TEST_CASE("hyper_connected_config: the indexer selects all while it may select every pool") {
  Json json = config_of("glm5_next");
  Json& text = json["text_config"];
  CHECK(parse_model_config(json).most_tokens == 64 + 3);
  text["index_kpool"] = 1;
  CHECK(parse_model_config(json).most_tokens == 64);
  text["index_kpool"] = 5;
  const auto refusal = [&] { return test::message_of([&] { parse_model_config(json); }); };
  CHECK(test::contains(refusal(), "key 'index_topk' is 64, expected a multiple of index_kpool 5"));
  text["index_kpool"] = 4;
  text["index_kpool_always_select_tail"] = false;
  CHECK(test::contains(refusal(), "key 'index_kpool_always_select_tail' is false"));
}

TEST_CASE("hyper_connected_config: the text model's keys may stand outside") {
  const Json json = config_of("glm5_next");
  Json flat = json["text_config"];
  flat["model_type"] = "glm5_next";
  flat["dtype"] = json["dtype"];
  ModelConfig read = parse_model_config(flat), expected = parse_model_config(json);
  CHECK(read.wrapper_type == "glm5_next");
  read.ties_by_file = expected.ties_by_file;  // nothing says it
  read.unread_keys = expected.unread_keys;
  CHECK(read == expected);
}

TEST_CASE("hyper_connected_config: decays have a floor unless both keys take it away") {
  Json json = config_of("glm5_next");
  Json& text = json["text_config"];
  Json& linear = text["linear_attn_config"];
  const auto floor = [&] { return parse_model_config(json).recurrent.decay_floor; };
  CHECK(floor() == -5.0f);
  linear["gate_lower_bound"] = -2.0;
  CHECK(floor() == -2.0f);
  linear["gate_lower_bound"] = nullptr;
  CHECK(floor() == -5.0f);
  linear["safe_gate"] = false;
  CHECK(floor() == 0.0f);
  linear.erase("gate_lower_bound");
  CHECK(floor() == -5.0f);
  text["linear_lower_bound"] = -3.0;
  CHECK(floor() == -3.0f);
  text["linear_lower_bound"] = nullptr;
  CHECK(floor() == 0.0f);
}

TEST_CASE("hyper_connected_config: hyper-connections need two streams") {
  Json json = config_of("glm5_next");
  Json& text = json["text_config"];
  const ModelConfig config = parse_model_config(json);
  CHECK(config.streams == 3);
  CHECK(config.connections.iterations == 5);
  CHECK(config.carried_width(20) == 3 * 24);
  text["hc_mult"] = 1;
  CHECK(test::contains(test::message_of([&] { parse_model_config(json); }),
                       "key 'hc_mult' is 1, expected 2 to 64"));
}

}  // namespace
}  // namespace kvcal
