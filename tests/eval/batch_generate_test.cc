#include "eval/generate.h"

#include <cmath>
#include <map>

#include "support/catch.h"
#include "support/model_fixture.h"

using namespace kvcal;
using kvcal::test::ModelFixture;

namespace {

std::vector<LayerKvScales> scales_of(const ModelConfig& config, KvDType dtype) {
  if (!is_fp8(dtype)) return {};
  return std::vector<LayerKvScales>(static_cast<size_t>(config.num_hidden_layers),
                                    {{Scale{0.05f}}, {Scale{0.02f}}, false});
}

/// Prompts and numbers of new tokens that all differ.
std::vector<BatchPrompt> prompts_of(const ModelFixture& fixture) {
  std::vector<BatchPrompt> prompts;
  for (size_t i = 0; i < 7; ++i) {
    BatchPrompt& prompt = prompts.emplace_back();
    for (size_t token = 0; token < 2 + 3 * i % 11; ++token)
      prompt.ids.push_back(fixture.ids[(5 * i + token) % fixture.ids.size()]);
    prompt.max_new_tokens = 3 + static_cast<int64_t>(4 * i % 9);
  }
  return prompts;
}

using Texts = std::map<size_t, std::vector<TokenId>>;

Texts write(Decoder& decoder, std::span<const BatchPrompt> prompts, KvDType dtype, int64_t slots,
            BatchOptions options = {}, BatchUse* use = nullptr) {
  KvCache cache =
      decoder.make_cache(dtype, scales_of(decoder.config(), dtype), longest_text(prompts), slots);
  Texts texts;
  options.on_text = [&](size_t prompt, std::vector<TokenId> ids) {
    CHECK(!texts.contains(prompt));
    texts[prompt] = std::move(ids);
  };
  const BatchUse found = generate_together(decoder, cache, prompts, options);
  if (use) *use = found;
  return texts;
}

}  // namespace

TEST_CASE("texts that are written together are those that are written alone") {
  for (const std::string name :
       {"llama", "gemma3_text", "mistral_window", "gpt_oss", "mixtral", "jamba", "bamba",
        "nemotron_h", "qwen3_next", "deepseek_v3", "llama_rope_dynamic", "phi3_longrope_short"})
    for (const KvDType dtype : {KvDType::kFloat32, KvDType::kFp8E4m3}) {
      INFO(name << " with " << name_of(dtype));
      ModelFixture fixture(name);
      Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
      const std::vector<BatchPrompt> prompts = prompts_of(fixture);
      Texts alone;
      for (size_t i = 0; i < prompts.size(); ++i) {
        KvCache cache = decoder.make_cache(dtype, scales_of(fixture.config, dtype), 64);
        alone[i] =
            generate(
                decoder, cache, prompts[i].ids,
                {.max_new_tokens = prompts[i].max_new_tokens, .sampling = {}, .stop_tokens = {}})
                .ids;
      }
      for (const int64_t slots : {1, 2, 3, 16})
        CHECK(write(decoder, prompts, dtype, slots) == alone);
      const std::vector<BatchPrompt> backwards(prompts.rbegin(), prompts.rend());
      const Texts found = write(decoder, backwards, dtype, 3);
      for (size_t i = 0; i < prompts.size(); ++i)
        CHECK(found.at(i) == alone.at(prompts.size() - 1 - i));
    }
}

TEST_CASE("a text that is written among others is transformers'") {
  for (const std::string& backend : test::backend_names()) {
    INFO(backend);
    ModelFixture fixture("llama", backend);
    Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
    std::vector<BatchPrompt> prompts = prompts_of(fixture);
    const auto expected = fixture.expected.at("greedy").get<std::vector<TokenId>>();
    prompts.push_back({fixture.expected.at("greedy_prompt").get<std::vector<TokenId>>(),
                       static_cast<int64_t>(expected.size())});
    CHECK(write(decoder, prompts, KvDType::kFloat32, 4).at(7) == expected);
  }
}

TEST_CASE("a slot takes the next prompt as soon as its text ends") {
  ModelFixture fixture("llama");
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  const std::vector<BatchPrompt> prompts(8, {.ids = {3, 4, 5}, .max_new_tokens = 6});
  BatchUse use;
  write(decoder, prompts, KvDType::kFloat32, 3, {}, &use);
  CHECK(use.prompt_tokens == 24);
  CHECK(use.new_tokens == 48);
  CHECK(use.num_steps == 3 * 5);  // three rounds; a text's first token comes with its prompt

  // One long text and four short ones in two slots: the short ones use the other slot by turns.
  std::vector<BatchPrompt> uneven(5, {.ids = {3, 4}, .max_new_tokens = 3});
  uneven[0].max_new_tokens = 9;
  write(decoder, uneven, KvDType::kFloat32, 2, {}, &use);
  CHECK(use.num_steps == 8);
}

TEST_CASE("what prompts have in common is run once, and changes no text") {
  for (const std::string name :
       {"llama", "gemma3_text", "deepseek_v3", "jamba", "llama_rope_dynamic"})
    for (const KvDType dtype : {KvDType::kFloat32, KvDType::kFp8E4m3}) {
      INFO(name << " with " << name_of(dtype));
      ModelFixture fixture(name);
      Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
      const std::span<const TokenId> head = std::span(fixture.ids).first(11);
      std::vector<BatchPrompt> prompts;
      for (TokenId i = 0; i < 5; ++i) {
        BatchPrompt& prompt = prompts.emplace_back(BatchPrompt{{head.begin(), head.end()}, 6});
        for (TokenId k = 0; k <= i % 3; ++k) prompt.ids.push_back(10 + 7 * i + k);
      }
      prompts.push_back(prompts.front());
      Texts alone;
      for (size_t i = 0; i < prompts.size(); ++i)
        alone[i] = write(decoder, std::span(prompts).subspan(i, 1), dtype, 1).at(0);
      for (const int64_t slots : {1, 3, 16}) CHECK(write(decoder, prompts, dtype, slots) == alone);
    }
}

TEST_CASE("only what a prompt has of its own is run, two tokens at least") {
  const auto tokens_run = [](const std::string& name, int64_t slots) {
    ModelFixture fixture(name);
    Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
    const std::span<const TokenId> head = std::span(fixture.ids).first(11);
    std::vector<BatchPrompt> prompts;
    for (TokenId i = 0; i < 3; ++i) {
      prompts.push_back({{head.begin(), head.end()}, 2});
      prompts.back().ids.insert(prompts.back().ids.end(), {10 + i, 20, 21});
    }
    prompts.push_back({{head.begin(), head.end()}, 2});
    BatchUse use;
    write(decoder, prompts, KvDType::kFloat32, slots, {}, &use);
    return use.prompt_tokens;
  };
  for (const int64_t slots : {1, 2, 8}) CHECK(tokens_run("llama", slots) == 14 + 3 + 3 + 2);
  // Its states are those behind a whole prompt.
  CHECK(tokens_run("jamba", 2) == 14 + 14 + 14 + 11);
}

TEST_CASE("texts end where they are told to, with the token that ends them") {
  ModelFixture fixture("llama");
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  const std::vector<BatchPrompt> prompts = prompts_of(fixture);
  const Texts whole = write(decoder, prompts, KvDType::kFloat32, 2);
  const TokenId stop = whole.at(4)[1];
  const auto is_end = [&](std::span<const TokenId> ids) { return ids.back() == stop; };
  size_t num_cut = 0;
  for (const auto& [index, ids] :
       write(decoder, prompts, KvDType::kFloat32, 2, {.is_end = is_end})) {
    const auto& all = whole.at(index);
    const auto end = std::find(all.begin(), all.end(), stop);
    CHECK(ids == std::vector<TokenId>(all.begin(), end == all.end() ? end : end + 1));
    if (ids.size() < all.size()) ++num_cut;
  }
  CHECK(num_cut > 0);
}

TEST_CASE("tokens that stand there already are less likely with a repetition penalty") {
  ModelFixture fixture("llama");
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  const std::vector<BatchPrompt> prompts(1, {.ids = {7, 7, 9}, .max_new_tokens = 20});
  constexpr float kPenalty = 1.3f;
  std::vector<TokenId> ids = prompts[0].ids;
  KvCache cache = decoder.make_cache(KvDType::kFloat32, {}, 64);
  std::vector<float> logits = decoder.step(ids, cache);
  for (int64_t i = 0; i < prompts[0].max_new_tokens; ++i) {
    for (size_t token = 0; token < logits.size(); ++token)
      if (std::find(ids.begin(), ids.end(), static_cast<TokenId>(token)) != ids.end())
        logits[token] *= logits[token] < 0 ? kPenalty : 1.0f / kPenalty;
    ids.push_back(
        static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    logits = decoder.step(std::span(ids).last(1), cache);
  }
  const Texts found =
      write(decoder, prompts, KvDType::kFloat32, 2, {.repetition_penalty = kPenalty});
  CHECK(found.at(0) == std::vector<TokenId>(ids.begin() + 3, ids.end()));
  CHECK(found != write(decoder, prompts, KvDType::kFloat32, 2));
}

TEST_CASE("texts that are sampled draw by their own seeds, whatever is written beside them") {
  ModelFixture fixture("llama");
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  const std::vector<BatchPrompt> prompts(5, {.ids = {7, 7, 9}, .max_new_tokens = 12});
  const SamplingOptions sampling{.temperature = 1.5, .top_p = 0.95, .top_k = 40, .seed = 3};
  const Texts found = write(decoder, prompts, KvDType::kFloat32, 2, {.sampling = sampling});
  for (size_t i = 0; i < prompts.size(); ++i) {
    GenerateOptions alone{.max_new_tokens = 12, .sampling = sampling, .stop_tokens = {}};
    alone.sampling.seed += i;
    KvCache cache = decoder.make_cache(KvDType::kFloat32, {}, 16);
    CHECK(found.at(i) == generate(decoder, cache, prompts[i].ids, alone).ids);
  }
  CHECK(found.at(0) != found.at(1));
  CHECK(found == write(decoder, prompts, KvDType::kFloat32, 5, {.sampling = sampling}));
  CHECK_THROWS_AS(write(decoder, prompts, KvDType::kFloat32, 2, {.sampling = {.top_p = 0.0}}),
                  Error);
}

TEST_CASE("prompts without tokens are refused, those without new tokens give none") {
  ModelFixture fixture("llama");
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  const std::vector<BatchPrompt> none{{.ids = {4}, .max_new_tokens = 2},
                                      {.ids = {}, .max_new_tokens = 2}};
  CHECK_THROWS_AS(write(decoder, none, KvDType::kFloat32, 2), Error);
  std::vector<BatchPrompt> some(3, {.ids = {4, 5}, .max_new_tokens = 2});
  some[1].max_new_tokens = 0;
  const Texts found = write(decoder, some, KvDType::kFloat32, 1);
  CHECK(found.size() == 3);
  CHECK(found.at(1).empty());
  CHECK(found.at(2).size() == 2);
}
