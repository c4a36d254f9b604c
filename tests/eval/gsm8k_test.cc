// GSM8K against what lm-evaluation-harness made of the same: reference/gsm8k_cases.py.
#include "eval/gsm8k.h"

#include "eval/generate.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using kvcal::test::contains;
using kvcal::test::message_of;
using kvcal::test::ModelFixture;
using kvcal::test::ScratchFolder;
using kvcal::test::write_file;

namespace {

const fs::path kFolder = test::tests_folder() / "fixtures" / "eval";
const fs::path kTokenizer = test::tests_folder() / "cli" / "data";

const Json& reference() {
  static const Json kReference = parse_json(read_text(kFolder / "gsm8k.json"));
  return kReference;
}

/// The fixture that the reference ran, with a tokenizer and that generation_config.json.
fs::path write_model(const ScratchFolder& scratch, const Json& generation_config) {
  const fs::path folder = scratch.path() / "model";
  fs::remove_all(folder);
  fs::create_directories(folder);
  for (const char* name : {"config.json", "model.safetensors"})
    fs::copy(test::model_fixture("llama") / name, folder / name);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
    fs::copy(kTokenizer / name, folder / name);
  write_file(folder / "generation_config.json", dump_json(generation_config));
  return folder;
}

GsmOptions options_of(const Json& settings, const fs::path& folder) {
  GsmOptions options{.dataset = kFolder / "gsm8k_questions.jsonl",
                     .fewshot_dataset = kFolder / "gsm8k_examples.jsonl",
                     .model_folder = folder};
  options.num_fewshot = settings.at("num_fewshot").get<int64_t>();
  options.max_gen_toks = settings.at("max_gen_toks").get<int64_t>();
  options.add_bos_token = optional_bool(settings, "add_bos_token");
  options.apply_chat_template = settings.at("apply_chat_template").get<bool>();
  options.fewshot_as_multiturn = settings.at("fewshot_as_multiturn").get<bool>();
  return options;
}

/// Keeps warnings.
class Warnings : public SilentDiagnostics {
 public:
  void warn(const std::string& message) override { messages.push_back(message); }
  std::vector<std::string> messages;
};

struct Setup {
  explicit Setup(const Json& generation_config = Json::object())
      : folder(write_model(scratch, generation_config)),
        fixture("llama"),
        tokenizer(make_tokenizer(folder)),
        decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32) {}
  GsmResult run(const GsmOptions& options) {
    return run_gsm8k(decoder, *tokenizer, KvDType::kFloat32, {}, options, warnings);
  }

  ScratchFolder scratch;
  fs::path folder;
  ModelFixture fixture;
  std::unique_ptr<Tokenizer> tokenizer;
  Decoder decoder;
  Warnings warnings;
};

}  // namespace

TEST_CASE("gsm8k: examples are drawn as Python draws them") {
  for (const Json& one : reference().at("draws")) {
    const auto population = one.at("population").get<int64_t>(),
               count = one.at("count").get<int64_t>();
    INFO(count << " of " << population);
    PythonRandom random(one.at("seed").get<uint64_t>());
    for (const Json& drawn : one.at("drawn"))
      CHECK(random.sample(population, count) == drawn.get<std::vector<int64_t>>());
  }
  PythonRandom random(0);
  CHECK_THROWS_AS(random.sample(3, 4), Error);
  CHECK_THROWS_AS(random.sample(3, -1), Error);
  CHECK_THROWS_AS(random.sample(int64_t{1} << 32, 1), Error);
}

TEST_CASE("gsm8k: the filters find what the harness's find") {
  for (const Json& one : reference().at("answers")) {
    const auto text = one.at("text").get<std::string>();
    INFO(text);
    CHECK(strict_answer(text) == one.at("strict").get<std::string>());
    CHECK(flexible_answer(text) == one.at("flexible").get<std::string>());
  }
}

TEST_CASE("gsm8k: an answer is right where the harness says so") {
  for (const Json& one : reference().at("matches")) {
    const auto extracted = one.at("extracted").get<std::string>(),
               answer = one.at("answer").get<std::string>();
    INFO(extracted << " for " << answer);
    CHECK(is_gsm_match(extracted, answer) == (one.at("match") == 1));
  }
}

TEST_CASE("gsm8k: texts end and are cut as in the harness") {
  const auto tokenizer = make_tokenizer(kTokenizer);
  const Json& all = reference().at("stops");
  const StopStrings stops(*tokenizer, all.at("stops").get<std::vector<std::string>>());
  for (const Json& one : all.at("cases")) {
    const auto ids = one.at("ids").get<std::vector<TokenId>>();
    const std::string text = tokenizer->decode(ids, true);
    INFO(text);
    size_t count = 1;
    while (count <= ids.size() && !stops.end(std::span(ids).first(count))) ++count;
    CHECK(count == (one.at("ended").is_null() ? ids.size() + 1 : one.at("ended").get<size_t>()));
    CHECK(stops.cut(text) == one.at("left").get<std::string>());
  }
  CHECK_FALSE(StopStrings(*tokenizer, {""}).end(std::vector<TokenId>{5, 6}));
}

TEST_CASE("gsm8k: prompts, texts and scores are those of the harness's hf backend") {
  for (const Json& one : reference().at("runs")) {
    const Json& settings = one.at("settings");
    INFO(settings.dump());
    Setup setup(settings.at("generation_config"));
    GsmOptions options = options_of(settings, setup.folder);
    for (const int64_t batch_size : {1, 2, 0}) {
      options.batch_size = batch_size;
      const GsmResult result = setup.run(options);
      CHECK(result.batch_size == (batch_size == 0 ? 3 : batch_size));
      REQUIRE(result.answers.size() == one.at("answers").size());
      for (size_t i = 0; i < result.answers.size(); ++i) {
        const Json& expected = one.at("answers").at(i);
        const GsmAnswer& answer = result.answers[i];
        CHECK(answer.doc_id == static_cast<int64_t>(i));
        CHECK(answer.prompt == expected.at("prompt").get<std::string>());
        CHECK(answer.text == expected.at("text").get<std::string>());
        CHECK(answer.strict == expected.at("strict").get<std::string>());
        CHECK(answer.flexible == expected.at("flexible").get<std::string>());
        CHECK(answer.is_strict_match == (expected.at("exact_match_strict") == 1));
        CHECK(answer.is_flexible_match == (expected.at("exact_match_flexible") == 1));
      }
    }
    // 128 positions hold the examples only in part, which is told.
    CHECK(setup.warnings.messages.empty() == (settings.at("num_fewshot") == 0));
  }
}

TEST_CASE("gsm8k: prompts are those of a chat template and of variables that a caller chooses") {
  Setup setup;
  GsmOptions options = options_of(reference().at("runs").at(0).at("settings"), setup.folder);
  options.apply_chat_template = true;
  options.limit = 1;
  options.num_fewshot = 0;
  const fs::path file = setup.scratch.path() / "own.jinja";
  // A template that takes parts gets the text as it is, as from the harness.
  write_file(file,
             "{{ mark }}{% for m in messages %}{{ m.content is string }}{% for p in m.content %}"
             "{% endfor %}{% endfor %}{{ add_generation_prompt }}");
  options.chat = {.template_file = file.string(), .variables = {{"mark", "!"}}};
  CHECK(setup.run(options).answers.at(0).prompt == "!TrueTrue");
}

TEST_CASE("gsm8k: means and standard errors are the harness's") {
  for (const Json& one : reference().at("errors")) {
    std::vector<bool> matches;
    for (const Json& score : one.at("scores")) matches.push_back(score == 1);
    const GsmScore score = gsm_score(matches);
    CHECK(score.exact_match == Approx(one.at("mean").get<double>()).epsilon(1e-14));
    CHECK(score.stderr_of_mean.value() == Approx(one.at("stderr").get<double>()).epsilon(1e-14));
  }
  CHECK_FALSE(gsm_score({true}).stderr_of_mean.has_value());
}

TEST_CASE("gsm8k: the numbers of a run are as they are counted by hand") {
  Setup setup(Json{{"eos_token_id", 2}});
  GsmOptions options = options_of(reference().at("runs").at(0).at("settings"), setup.folder);
  options.limit = 2;
  const GsmResult result = setup.run(options);
  const Json json = to_json(result);
  CHECK(json.at("num_questions") == 2);
  CHECK(json.at("num_fewshot") == 2);
  CHECK(json.at("exact_match_strict") == 0.0);
  CHECK(json.at("exact_match_strict_stderr") == 0.0);
  CHECK(json.at("tokens_generated") == result.use.new_tokens);
  CHECK(result.use.prompt_tokens == 2 * (128 - 16));
  CHECK(result.use.new_tokens <= 2 * 16);
  CHECK(to_json(result.answers[1]).at("text") == result.answers[1].text);
}

TEST_CASE("gsm8k: the cache's memory bounds how many questions go together") {
  Setup setup;
  GsmOptions options = options_of(reference().at("runs").at(1).at("settings"), setup.folder);
  const uint64_t each = KvCache::bytes_per_slot(setup.fixture.config, KvDType::kFloat32, {}, 127);
  options.cache_bytes = 2 * each;
  options.max_gen_toks = 60;
  CHECK(setup.run(options).batch_size >= 2);
  options.cache_bytes = 1;
  CHECK(setup.run(options).batch_size == 1);
  options.batch_size = 3;
  CHECK(setup.run(options).batch_size == 3);
}

TEST_CASE("gsm8k: a descriptor names both splits") {
  Setup setup;
  GsmOptions options = options_of(reference().at("runs").at(0).at("settings"), setup.folder);
  const GsmResult expected = setup.run(options);
  const fs::path folder = setup.scratch.path();
  fs::copy(kFolder / "gsm8k_questions.jsonl", folder / "words-test.jsonl");
  fs::copy(kFolder / "gsm8k_examples.jsonl", folder / "words-train.jsonl");
  write_file(folder / "words.yaml",
             "name: words\nsource: some/words\nlicence: MIT\nsplits: [train, test]\n"
             "split: train\npath: words-{split}.jsonl\n"
             "record:\n  text: \"{question} {answer}\"\n");
  options.dataset = folder / "words.yaml";
  options.fewshot_dataset.clear();
  const GsmResult found = setup.run(options);
  REQUIRE(found.answers.size() == 3);
  for (size_t i = 0; i < 3; ++i) CHECK(found.answers[i].prompt == expected.answers[i].prompt);
  fs::remove(folder / "words-test.jsonl");
  CHECK(contains(message_of([&] { setup.run(options); }), "words-test.jsonl is missing"));
}

TEST_CASE("gsm8k: what cannot be run is told") {
  Setup setup;
  const GsmOptions usual = options_of(reference().at("runs").at(0).at("settings"), setup.folder);
  const auto message = [&](const auto& change) {
    GsmOptions options = usual;
    change(options);
    return message_of([&] { setup.run(options); });
  };
  CHECK(contains(message([](GsmOptions& options) { options.num_fewshot = 8; }),
                 "wanted: 8 examples, there are 7"));
  CHECK(contains(message([](GsmOptions& options) { options.fewshot_dataset.clear(); }),
                 "no data set of worked examples (fewshot_dataset) is given, 2 are wanted"));
  CHECK(contains(message([](GsmOptions& options) { options.max_gen_toks = 128; }),
                 "the model has 128 positions, which do not hold 128 new tokens (max_gen_toks) and "
                 "a question"));
  const fs::path file = setup.scratch.path() / "text.jsonl";
  write_file(file, "{\"question\": \"a\", \"answer\": \"b\"}\n{\"question\": 3}\n");
  CHECK(contains(message([&](GsmOptions& options) { options.dataset = file; }), "text.jsonl:2: "));
  fs::remove(setup.folder / "chat_template.jinja");
  CHECK(contains(message([](GsmOptions& options) { options.apply_chat_template = true; }),
                 "has no chat template"));
  write_file(setup.folder / "tokenizer_config.json", "{}");
  CHECK(contains(message([](GsmOptions& options) { options.add_bos_token = true; }),
                 "the tokenizer has no bos_token"));
}

TEST_CASE("generation settings: what is followed, and what is not") {
  ScratchFolder scratch;
  const fs::path folder = write_model(scratch, {{"eos_token_id", {2, 9}},
                                                {"repetition_penalty", 1.05},
                                                {"num_beams", 1},
                                                {"min_length", 0},
                                                {"no_repeat_ngram_size", 3},
                                                {"bad_words_ids", Json::array()},
                                                {"suppress_tokens", {5}},
                                                {"top_p", 0.8},
                                                {"top_k", 20},
                                                {"min_p", 0.1},
                                                {"typical_p", 1.0}});
  const GenerationSettings settings = read_generation_settings(folder);
  CHECK(settings.stop_tokens == std::set<TokenId>{2, 9});
  CHECK(settings.repetition_penalty == 1.05f);
  CHECK(settings.not_followed ==
        std::vector<std::string>{"no_repeat_ngram_size", "suppress_tokens"});
  CHECK(settings.top_p == 0.8);
  CHECK(settings.top_k == 20);
  CHECK(settings.not_followed_sampling == std::vector<std::string>{"min_p"});
  CHECK(settings.bos_token == "<s>");
  CHECK(settings.eos_token == "<|im_end|>");
  write_file(folder / "generation_config.json", "{\"repetition_penalty\": 0}");
  CHECK(contains(message_of([&] { read_generation_settings(folder); }),
                 "generation_config.json: key 'repetition_penalty' is 0, expected more than 0"));
  fs::remove(folder / "generation_config.json");
  CHECK(read_generation_settings(folder).stop_tokens == std::set<TokenId>{2});
  CHECK(!read_generation_settings(folder).top_k);
}
