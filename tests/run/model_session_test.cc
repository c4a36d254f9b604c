#include "run/model_session.h"

#include "eval/generate.h"
#include "run/support/text_checkpoint.h"
#include "support/catch.h"

using namespace kvcal;
using kvcal::test::KeptLines;
using kvcal::test::message_of;
using kvcal::test::TextCheckpoint;
using kvcal::test::write_file;

namespace {

SessionOptions options_of(const TextCheckpoint& files) {
  return {.model = files.path(), .device = test::reference_device()};
}

}  // namespace

TEST_CASE("model session: texts are transformers' greedy ones, up to a stop") {
  const TextCheckpoint files;
  KeptLines told;
  ModelSession session(options_of(files), told);
  const Json expected = parse_json(read_text(test::model_fixture("llama") / "expected.json"));
  const auto prompt = expected.at("greedy_prompt").get<std::vector<TokenId>>();
  const auto greedy = expected.at("greedy").get<std::vector<TokenId>>();
  const Tokenizer& tokenizer = *session.model().tokenizer;
  const std::string whole = tokenizer.decode(greedy, true);
  const std::vector<BatchPrompt> prompts{{prompt, std::ssize(greedy)}, {prompt, 3}, {prompt, 0}};
  // In the dtype of the cache that transformers had.
  SessionOptions exact = options_of(files);
  exact.cache.kv_cache_dtype = "float32";
  ModelSession in_float(exact, told);
  for (const int64_t batch_size : {0, 1, 2}) {
    const auto texts = in_float.continue_texts(prompts, {.batch_size = batch_size}, told);
    REQUIRE(texts.size() == 3);
    CHECK(texts[0] == whole);
    CHECK(texts[1] == tokenizer.decode(std::span(greedy).first(3), true));
    CHECK(texts[2].empty());
    CHECK(told.last == std::pair<std::string, bool>("generate", true));
  }
  const std::string stop = tokenizer.decode(std::span(greedy).subspan(5, 1), true);
  const auto cut =
      in_float.continue_texts(std::span(prompts).first(1), {.stops = {stop}}, told).at(0);
  CHECK(cut == whole.substr(0, whole.find(stop)));
  CHECK(cut.size() < whole.size());
  CHECK(session.cache_type() == KvDType::kFloat16);
}

TEST_CASE("model session: ids, scores and the description of a model") {
  const TextCheckpoint files;
  KeptLines told;
  SessionOptions options = options_of(files);
  options.cache.kv_cache_dtype = "fp8_e4m3";
  options.cache.unit_scales = true;
  ModelSession session(options, told);
  const std::string text = "The sea was calm";
  const auto plain = session.encode(text, false);
  CHECK(plain == session.model().tokenizer->encode(text, false));
  CHECK(session.encode(text, {}) == session.model().tokenizer->encode(text, true));
  const Json info = to_json(session);
  auto with_bos = plain;
  with_bos.insert(with_bos.begin(), info.at("bos_token_id").get<TokenId>());
  CHECK(session.encode(text, true) == with_bos);
  CHECK(info.at("max_length") == 128);
  CHECK(info.at("vocab_size") == 160);
  CHECK(info.at("kv_cache_dtype") == "fp8_e4m3");
  CHECK(info.at("compute_dtype") == "float32");
  CHECK(info.at("chat_template") ==
        read_text(test::tests_folder() / "cli" / "data" / "chat_template.jinja"));

  const std::vector<ContinuationIds> texts{{{1}, plain}, {plain, {1}}};
  const auto together = session.score(texts, 0);
  for (size_t i = 0; i < texts.size(); ++i)
    CHECK(session.score(std::span(&texts[i], 1), 1).at(0).log_probability ==
          together.at(i).log_probability);
  CHECK(session.score({}, 0).empty());
}

TEST_CASE("model session: what cannot run is refused before and told after loading") {
  const TextCheckpoint files;
  KeptLines told;
  SessionOptions options = options_of(files);
  options.cache = {.scales = "scales.json", .unit_scales = true};
  CHECK(message_of([&] { ModelSession(options, told); }) ==
        "--unit-scales and --scales exclude each other");
  write_file(files.folder / "model" / "generation_config.json",
             R"({"num_beams": 4, "min_p": 0.1, "top_k": 7})");
  ModelSession session(options_of(files), told);
  REQUIRE(told.warnings.size() == 1);
  CHECK(told.warnings[0] ==
        "generation_config.json: 'num_beams' is not followed, so texts may differ from "
        "transformers'");

  // What changes sampled texts alone is told where one is sampled.
  CHECK(to_json(session).at("top_k") == 7);
  CHECK(to_json(session).at("top_p").is_null());
  const std::vector<BatchPrompt> prompts(2, {{1, 5, 9}, 12});
  const auto greedy = session.continue_texts(prompts, {}, told);
  CHECK(told.warnings.size() == 1);
  const auto sampled =
      session.continue_texts(prompts, {.sampling = {.temperature = 2.0, .seed = 4}}, told);
  REQUIRE(told.warnings.size() == 2);
  CHECK(told.warnings[1].starts_with("generation_config.json: 'min_p' is not followed"));
  CHECK(greedy[0] == greedy[1]);
  CHECK(sampled[0] != sampled[1]);
}
