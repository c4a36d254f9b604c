// The draft layer in a calibration: one more layer with scales, and no Linear more.
#include <algorithm>
#include <cmath>

#include "calib/calibrator.h"
#include "calib/plan/resolve_plan.h"
#include "calib/scales/derive.h"
#include "calib/statistics/observed_statistics.h"
#include "forward/layerwise.h"
#include "recipe/recipe.h"
#include "stored/read_model_config.h"
#include "support/catch.h"
#include "support/model_fixture.h"

using namespace kvcal;

namespace {

constexpr const char* kCache = R"(s_stage: {g_modifiers: {QuantizationModifier: {
  kv_cache_scheme: {type: float, strategy: attn_head, observer: static_minmax}}}})";
constexpr const char* kAll = R"(s_stage: {g_modifiers: {QuantizationModifier: {ignore: [lm_head],
  kv_cache_scheme: {type: float, strategy: attn_head, observer: static_minmax},
  config_groups: {g: {targets: [Linear], weights: {type: float, num_bits: 8, strategy: tensor},
    input_activations: {type: float, num_bits: 8, strategy: tensor, observer: static_minmax}}}}}})";

struct DraftRun {
  explicit DraftRun(const std::string& name)
      : model_dir(test::draft_fixture(name)), config(read_model_config(model_dir)) {
    find_draft_layer(model_dir, config, silent);
    weights.emplace(model_dir, config);
    expected = parse_json(read_text(fs::path(test::draft_fixture(name)) / "expected.json"));
    ids = expected["ids"].get<std::vector<TokenId>>();
  }

  Calibration calibrated(const char* recipe, const CalibrationOptions& options,
                         Statistics* kept = nullptr) {
    plan = resolve_plan(parse_recipe(recipe), config, silent, unrun_modules(model_dir, config));
    samples = {{0, ids}};
    const std::vector<std::span<const TokenId>> spans{ids};
    const auto backend = test::make_backend("cpu", 2);
    LayerwiseForward forward(config, *weights, *backend, spans,
                             {.observation = observation_of(plan, options)}, silent);
    return calibrate(forward, config, plan, samples, options, kept, silent);
  }

  SilentDiagnostics silent;
  ModelDir model_dir;
  ModelConfig config;
  std::optional<Weights> weights;
  Json expected;
  std::vector<TokenId> ids;
  std::vector<Sample> samples;
  QuantPlan plan;
};

Json recorded(const std::string& engine) {
  return parse_json(
      read_text(test::tests_folder() / "fixtures" / "engines" / ("drafts_" + engine + ".json")));
}

/// "self_attn.k_proj.k_scale", as the records name K's scale.
std::string recorded_name(std::string module) {
  module = module.substr(module.find("self_attn"));
  const size_t at = module.find("{}");
  if (at != std::string::npos) module.replace(at, 2, "k");
  return module + ".k_scale";
}

std::string text_of(const Json& seen) {
  return seen.is_string() ? seen.get<std::string>() : std::string();
}

}  // namespace

TEST_CASE("draft: its scales are those of its K and V, under the names that engines read") {
  const std::pair<const char*, const char*> drafts[] = {
      {"glm4_moe", "model.layers.2.self_attn.attn"},
      {"deepseek_v3", "model.layers.2.self_attn.{}_proj"},
      {"qwen3_next", "mtp.layers.0.self_attn.attn"},
      {"qwen3_5", "mtp.layers.0.self_attn"}};
  const Json vllm = recorded("vllm"), sglang = recorded("sglang");
  for (const auto& [name, scales_at] : drafts) {
    INFO(name);
    DraftRun run(name);
    const bool is_latent = run.config.architecture->has_latent_attention;
    const Calibration found =
        run.calibrated(kCache, {.kv_forward = KvForward::kExact, .derive = {.ties_latent = false}});
    CHECK(found.num_hidden_layers == run.config.num_hidden_layers);
    const AttentionCalibration& draft = found.layers.back();
    CHECK(draft.layer == run.config.num_hidden_layers);
    CHECK(found.is_draft(draft));
    CHECK_FALSE(found.is_draft(found.layers.front()));
    CHECK_FALSE(draft.reads_cache_of);
    CHECK(draft.scales_at == scales_at);
    CHECK(found.layers.front().scales_at.empty());
    // The engines' own loaders of drafts (reference/*_draft_scales.py).
    const std::string key = recorded_name(draft.scales_at);
    if (!vllm["drafts"][name]["class"].is_null() && !is_latent)
      CHECK(vllm["drafts"][name]["names"].at(key)["draft"] == true);
    if (is_latent)  // starts, with 1.0 as in the model's own layers
      CHECK(text_of(vllm["drafts"][name]["names"].at(key)["draft"]).starts_with("holds"));
    const Json& seen = sglang["drafts"][name]["names"].at(key)["draft"];
    if (std::string_view(name) == "glm4_moe")  // drops every name, as of the model's own layers
      CHECK(text_of(seen).starts_with("holds"));
    else
      CHECK(seen == true);
    const Json& heads = run.expected["draft"]["k_head_amax"];
    REQUIRE(draft.k.scales.size() == heads.size());
    for (size_t head = 0; head < heads.size(); ++head)
      CHECK(test::relative_error(draft.k.scales[head].value, heads[head].get<double>() / 448.0) <=
            1e-4);
    CHECK(is_latent == found.is_latent);
  }
}

TEST_CASE("draft: its Linears stay ignored by name, and those of the model keep their scales") {
  for (const char* name : {"glm4_moe", "qwen3_5"}) {
    INFO(name);
    DraftRun run(name), without(name);
    without.config.layers.pop_back();
    without.weights.emplace(without.model_dir, without.config);
    const Calibration found = run.calibrated(kAll, {});
    const Calibration plain = without.calibrated(kAll, {});
    CHECK(found.layers.size() == plain.layers.size() + 1);
    CHECK(found.plan.ignore == plain.plan.ignore);
    CHECK(std::ranges::find(found.plan.ignore,
                            run.config.attention_module(run.config.num_hidden_layers) +
                                ".k_proj") != found.plan.ignore.end());
    REQUIRE(found.linears.size() == plain.linears.size());
    for (size_t i = 0; i < found.linears.size(); ++i)
      CHECK(found.linears[i].input_scale.value == plain.linears[i].input_scale.value);
    for (size_t i = 0; i < plain.layers.size(); ++i)
      CHECK(found.layers[i].k.scales[0].value == plain.layers[i].k.scales[0].value);
  }
}

TEST_CASE("draft: statistics and rounds of an exact forward give its scales again") {
  DraftRun run("glm4_moe");
  Statistics kept;
  const CalibrationOptions options{.kv_forward = KvForward::kExact, .observes_all = true};
  const Calibration found = run.calibrated(kCache, options, &kept);
  const Calibration again = derive(kept, run.plan, run.config, options.derive, run.silent);
  ExactRounds rounds(run.config, observation_of(run.plan, options));
  const std::vector<std::span<const TokenId>> spans{run.ids};
  const auto backend = test::make_backend("cpu", 2);
  LayerwiseForward forward(run.config, *run.weights, *backend, spans, {}, run.silent);
  rounds.add(forward, 1);
  const Calibration rounded =
      derive(rounds.statistics(run.samples), run.plan, run.config, options.derive, run.silent);
  for (const Calibration* other : {&again, &rounded}) {
    REQUIRE(other->layers.size() == found.layers.size());
    CHECK(other->layers.back().k.scales[0].value == found.layers.back().k.scales[0].value);
    CHECK(other->layers.back().v.scales[1].value == found.layers.back().v.scales[1].value);
  }
}
