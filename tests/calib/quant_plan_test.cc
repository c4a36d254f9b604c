#include "calib/quant_plan.h"

#include "support/catch.h"
#include "support/model_fixture.h"

using namespace kvcal;
using kvcal::test::ModelFixture;

namespace {

QuantPlan plan_of(const ModelFixture& fixture, const std::string& modifiers) {
  SilentDiagnostics silent;
  return resolve_plan(parse_recipe("s_stage: {" + modifiers + "}"), fixture.config, silent);
}
/// One modifier's fields.
QuantPlan planned(const ModelFixture& fixture, const std::string& fields) {
  return plan_of(fixture, "g_modifiers: {QuantizationModifier: {" + fields + "}}");
}

std::string refusal(const ModelFixture& fixture, const std::string& fields) {
  try {
    planned(fixture, fields);
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

std::vector<std::string> modules_of(const QuantPlan& plan) {
  std::vector<std::string> names;
  for (const PlannedLinear& linear : plan.linears) names.push_back(linear.module);
  return names;
}

const std::string kKv = "kv_cache_scheme: {type: float}";
const std::string kFp8 = "{type: float, num_bits: 8, strategy: tensor}";

}  // namespace

TEST_CASE("plan: a preset takes every Linear in checkpoint order, ignore goes before it") {
  const ModelFixture fixture("llama");
  const QuantPlan plan =
      planned(fixture, "scheme: FP8, targets: [Linear], ignore: ['re:.*down_proj', lm_head]");
  const std::vector<std::string> names = modules_of(plan);
  const auto layers = static_cast<size_t>(fixture.config.num_hidden_layers);
  REQUIRE(names.size() == 6 * layers);
  CHECK(names.front() == "model.layers.0.self_attn.q_proj");
  CHECK(plan.linears.back().layer == fixture.config.num_hidden_layers - 1);
  CHECK(plan.groups.size() == 1);
  CHECK(plan.attention.empty());
  REQUIRE(plan.unquantized.size() == layers + 1);
  CHECK(plan.unquantized.front() == "model.layers.0.mlp.down_proj");
  CHECK(plan.unquantized.back() == "lm_head");
  CHECK(has_static_inputs(plan));
  CHECK(needs_data(plan));
}

TEST_CASE("plan: dynamic inputs need no data") {
  const ModelFixture fixture("llama");
  const QuantPlan plan = planned(fixture, "scheme: FP8_DYNAMIC, ignore: [lm_head]");
  CHECK_FALSE(has_static_inputs(plan));
  CHECK_FALSE(needs_data(plan));
  CHECK(needs_data(planned(fixture, "scheme: FP8_DYNAMIC, " + kKv)));
}

TEST_CASE("plan: names go before regular expressions, these before classes") {
  const ModelFixture fixture("llama");
  const QuantPlan plan = planned(
      fixture, "config_groups: {a: {targets: [Linear], weights: " + kFp8 +
                   "}, b: {targets: ['re:.*k_proj', 're:.*_proj'], weights: {type: float, "
                   "strategy: channel}}, c: {targets: [model.layers.0.self_attn.k_proj], "
                   "weights: {type: float, strategy: block, block_structure: [128, 128]}}}");
  const auto strategy_of = [&](const std::string& module) {
    for (const PlannedLinear& linear : plan.linears)
      if (linear.module == module) return resolved_strategy(*plan.groups[linear.group].weights);
    FAIL(module);
    return Strategy::kToken;
  };
  CHECK(strategy_of("model.layers.0.self_attn.k_proj") == Strategy::kBlock);
  CHECK(strategy_of("model.layers.1.self_attn.k_proj") == Strategy::kChannel);
  CHECK(strategy_of("lm_head") == Strategy::kTensor);
}

TEST_CASE("plan: a KV-only modifier takes nothing from Linears, the last KV scheme counts") {
  const ModelFixture fixture("llama");
  const QuantPlan plan = plan_of(
      fixture, "a_modifiers: {QuantizationModifier: {scheme: FP8_DYNAMIC, ignore: [lm_head], " +
                   kKv +
                   "}}, b_modifiers: {QuantizationModifier: {ignore: "
                   "['re:.*layers.0.self_attn$'], kv_cache_scheme: {type: float, observer: "
                   "minmax}}}");
  CHECK(plan.linears.size() == 7 * static_cast<size_t>(fixture.config.num_hidden_layers));
  REQUIRE(plan.attention.size() == static_cast<size_t>(fixture.config.num_hidden_layers));
  CHECK(plan.attention[0].kv.observer == "static_minmax");
  CHECK(plan.attention[1].kv.observer == "minmax");
  CHECK_FALSE(plan.attention[0].ignored);
}

TEST_CASE("plan: an attention group quantizes queries, keys and values") {
  const ModelFixture fixture("llama");
  const QuantPlan plan =
      planned(fixture,
              "config_groups: {a: {targets: [LlamaAttention], input_activations: {type: "
              "float, strategy: attn_head}}}");
  CHECK(plan.linears.empty());
  REQUIRE(plan.quantizes_kv());
  for (const PlannedAttention& one : plan.attention) {
    REQUIRE(one.q.has_value());
    CHECK(resolved_strategy(one.kv) == Strategy::kAttnHead);
  }
}

TEST_CASE("plan: routers keep 16 bits and are named, every expert is planned") {
  const ModelFixture fixture("mixtral");
  const QuantPlan plan = planned(fixture, "scheme: FP8_DYNAMIC, ignore: [lm_head]");
  const auto names = modules_of(plan);
  for (int64_t layer = 0; layer < fixture.config.num_hidden_layers; ++layer) {
    const std::string moe = fixture.config.layer_prefix(layer) + "block_sparse_moe.";
    CHECK(std::ranges::count(names, moe + "experts.1.w2") == 1);
    CHECK(plan.unquantized[static_cast<size_t>(layer)] == moe + "gate");
  }
  CHECK(plan.unquantized.back() == "lm_head");
  // Names that transformers 5 has for them.
  const QuantPlan other =
      planned(fixture,
              "scheme: FP8_DYNAMIC, ignore: [lm_head, 're:.*mlp.gate$', 're:.*experts.1.up_proj']");
  CHECK(other.linears.size() ==
        plan.linears.size() - static_cast<size_t>(fixture.config.num_hidden_layers));
  CHECK(std::ranges::count(modules_of(other), "model.layers.0.block_sparse_moe.experts.1.w3") == 0);
  CHECK(refusal(fixture, "scheme: FP8_DYNAMIC, targets: ['re:.*gate$']") ==
        "target 're:.*gate$' matches model.layers.0.block_sparse_moe.gate, a router; engines run "
        "it in 16 bits");
}

TEST_CASE("plan: what a pattern cannot mean is an error") {
  const ModelFixture fixture("llama");
  CHECK(refusal(fixture, "ignore: [model.layers.0.self_attention], " + kKv) ==
        "ignore 'model.layers.0.self_attention' matches no module of the model (did you mean "
        "'model.layers.0.self_attn'?)");
  CHECK(refusal(fixture, "ignore: [LlamaAttention], " + kKv) ==
        "ignore leaves no attention module to calibrate");
  CHECK(refusal(fixture, "scheme: FP8, targets: [Linears]") ==
        "target 'Linears' matches no module of the model");
  CHECK(refusal(fixture, "scheme: FP8, ignore: [Linear]") ==
        "the recipe quantizes nothing of this model");
  CHECK(refusal(fixture, "scheme: FP8, targets: [Linear, Embedding]") ==
        "target 'Embedding' quantizes the input of model.embed_tokens, an embedding; expected "
        "weights only");
  CHECK(refusal(fixture,
                "config_groups: {a: {targets: ['re:.*self_attn'], input_activations: {type: "
                "float}}}") ==
        "target 're:.*self_attn' matches model.layers.0.self_attn.q_proj: a group without weights "
        "is for attention modules, and must match them alone");
}

TEST_CASE("plan: attention modules with different strategies are an error that names two") {
  const ModelFixture fixture("llama");
  try {
    plan_of(fixture,
            "a_modifiers: {QuantizationModifier: {" + kKv +
                "}}, b_modifiers: {QuantizationModifier: {ignore: ['re:.*layers.0.self_attn$'], "
                "kv_cache_scheme: {type: float, strategy: attn_head}}}");
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.message() ==
          "model.layers.0.self_attn has scales by tensor and model.layers.1.self_attn by "
          "attn_head; engines read one strategy for all layers");
  }
}

TEST_CASE("plan: a tied head that is quantized alone is untied") {
  const ModelFixture fixture("gemma2");  // tied
  REQUIRE(fixture.config.tie_word_embeddings);
  CHECK_FALSE(planned(fixture, "scheme: FP8_DYNAMIC, ignore: [lm_head]").unties_embedding);
  const QuantPlan plan = planned(fixture, "scheme: FP8_DYNAMIC");
  CHECK(plan.unties_embedding);
  CHECK(plan.tied_head == "lm_head");
  CHECK(plan.tied_embedding == "model.embed_tokens");
}
