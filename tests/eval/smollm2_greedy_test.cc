// A real chat model against transformers in float32: reference/smollm2.py.
#include "datasets/chat_template.h"
#include "eval/generate.h"
#include "support/catch.h"
#include "support/demo_model.h"
#include "support/folders.h"
#include "support/model_fixture.h"

using namespace kvcal;

TEST_CASE("SmolLM2: ten chat prompts give transformers' ids and 64 greedy tokens", "[slow]") {
  const ModelDir model_dir(test::demo_model());
  const ModelConfig config = read_model_config(model_dir);
  const Weights weights(model_dir, config);
  const auto backend = kBackends.at("cpu")({.num_threads = 2});
  Decoder decoder(config, weights, *backend, ComputeType::kFloat32);
  const auto tokenizer = make_tokenizer(model_dir.path());
  const auto chat = ChatFormat::from_folder(model_dir.path());
  REQUIRE(chat);
  const Json expected =
      parse_json(read_text(test::tests_folder() / "fixtures" / "smollm2" / "expected.json"))
          .at("greedy");
  REQUIRE(expected.size() == 10);
  for (const Json& row : expected) {
    const std::string prompt = row.at("prompt");
    INFO(prompt);
    Json messages = Json::array();
    messages.push_back({{"role", "user"}, {"content", prompt}});
    const std::vector<TokenId> ids = tokenizer->encode(chat->render(messages, true), false);
    CHECK(ids == row.at("prompt_ids").get<std::vector<TokenId>>());
    KvCache cache = decoder.make_cache(KvDType::kFloat32, {}, 256);
    GenerateOptions options;
    options.max_new_tokens = 64;
    CHECK(generate(decoder, cache, ids, options).ids == row.at("ids").get<std::vector<TokenId>>());
  }
}
