#include "calib/plan/resolve_plan.h"

#include "support/catch.h"
#include "support/model_fixture.h"

using namespace kvcal;
using kvcal::test::ModelFixture;

namespace {

class Told : public SilentDiagnostics {
 public:
  std::vector<std::string> warnings;
  void warn(const std::string& message) override { warnings.push_back(message); }
};

/// The recipe's text begins with "s_stage: {", 10 characters.
QuantPlan plan_of(const ModelFixture& fixture, const std::string& modifiers,
                  std::vector<std::string>* warnings = nullptr) {
  Told told;
  QuantPlan plan = resolve_plan(parse_recipe("s_stage: {" + modifiers + "}"), fixture.config, told,
                                unrun_modules(fixture.model_dir, fixture.config));
  if (warnings) *warnings = std::move(told.warnings);
  return plan;
}
/// One modifier's fields.
QuantPlan planned(const ModelFixture& fixture, const std::string& fields) {
  return plan_of(fixture, "g_modifiers: {QuantizationModifier: {" + fields + "}}");
}

std::string without_place(std::string text) {
  if (text.starts_with("line 1, column ")) text.erase(0, text.find(": ") + 2);
  return text;
}
std::string refusal(const ModelFixture& fixture, const std::string& fields) {
  try {
    planned(fixture, fields);
  } catch (const Error& error) {
    return without_place(error.message());
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

TEST_CASE("plan: vectors that score residual sums keep 16 bits and are named") {
  const ModelFixture fixture("kimi_k3");
  const QuantPlan plan = planned(fixture, "scheme: FP8_DYNAMIC, ignore: [lm_head]");
  const std::string model = "language_model.model.";
  for (const std::string name :
       {"layers.0.self_attention_res_proj", "layers.4.mlp_res_proj", "output_attn_res_proj"}) {
    INFO(name);
    CHECK(std::ranges::count(modules_of(plan), model + name) == 0);
    CHECK(std::ranges::count(plan.unquantized, model + name) == 1);
  }
  CHECK(std::ranges::count(modules_of(plan),
                           model + "layers.2.block_sparse_moe.routed_expert_up_proj") == 1);
  CHECK(refusal(fixture, "scheme: FP8_DYNAMIC, targets: ['re:.*res_proj$']") ==
        "target 're:.*res_proj$' matches language_model.model.output_attn_res_proj, a vector that "
        "scores residual sums; engines keep it in 16 bits");
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
        "target 'Linear' matches " + std::to_string(7 * fixture.config.num_hidden_layers + 1) +
            " modules (model.layers.0.self_attn.q_proj, model.layers.0.self_attn.k_proj, "
            "model.layers.0.self_attn.v_proj, ...), and none is left to quantize");
  CHECK(refusal(fixture, "scheme: FP8, targets: [Linear, Embedding]") ==
        "target 'Embedding' quantizes the input of model.embed_tokens, an embedding; expected "
        "weights only");
  CHECK(refusal(fixture,
                "config_groups: {a: {targets: ['re:.*self_attn'], input_activations: {type: "
                "float}}}") ==
        "target 're:.*self_attn' matches model.layers.0.self_attn.q_proj: a group without weights "
        "is for attention modules, and must match them alone");
}

TEST_CASE("plan: projections of the embedding keep inputs of 16 bits") {
  const ModelFixture fixture("opt_projected");
  CHECK(refusal(fixture, "scheme: FP8_DYNAMIC, ignore: [lm_head]") ==
        "target 'Linear' quantizes the input of model.decoder.project_out, a projection of the "
        "embedding, which no layer calibrates; expected weights only, or this module in ignore");
  const QuantPlan plan =
      planned(fixture, "scheme: FP8_DYNAMIC, ignore: [lm_head, 're:.*project_(in|out)']");
  CHECK(plan.linears.size() == static_cast<size_t>(6 * fixture.config.num_hidden_layers));
}

TEST_CASE("plan: stacked experts are Linears by llm-compressor's names") {
  const ModelFixture fixture("granitemoe");
  const QuantPlan plan = planned(fixture, "scheme: FP8_DYNAMIC, ignore: [lm_head]");
  const auto names = modules_of(plan);
  // Q, K, V, O, and three of each expert.
  REQUIRE(names.size() == 2 * (4 + 5 * 3));
  const std::string moe = "model.layers.1.block_sparse_moe.";
  CHECK(std::ranges::count(names, moe + "experts.4.gate_proj") == 1);
  CHECK(plan.unquantized == std::vector<std::string>{"model.layers.0.block_sparse_moe.router",
                                                     moe + "router", "lm_head"});
  REQUIRE(plan.split.size() == 2 * 5 * 3);
  // A router answers to its tensor's name, too.
  for (const std::string router : {"'re:.*router$'", "'re:.*router.layer$'"})
    CHECK(modules_of(planned(fixture, "scheme: FP8_DYNAMIC, ignore: [lm_head, " + router + "]")) ==
          names);
  const QuantPlan none =
      planned(fixture, "scheme: FP8_DYNAMIC, ignore: [lm_head, 're:.*experts.*']");
  CHECK(none.split.empty());
  CHECK(none.linears.size() == 2 * 4);
}

TEST_CASE("plan: all that a layer stacks is split where one of its experts is quantized") {
  const ModelFixture fixture("gpt_oss");
  const QuantPlan plan =
      planned(fixture, "scheme: FP8_DYNAMIC, targets: ['re:.*layers.1.mlp.experts.2.up_proj']");
  REQUIRE(plan.linears.size() == 1);
  REQUIRE(plan.split.size() == 4 * 6);  // weights and biases of gate, up and down
  for (const SplitTensor& one : plan.split)
    CHECK(one.name.starts_with("model.layers.1.mlp.experts."));
  const auto up = std::ranges::find(plan.split, "model.layers.1.mlp.experts.2.up_proj.weight",
                                    &SplitTensor::name);
  REQUIRE(up != plan.split.end());
  CHECK(up->slice.tensor == "model.layers.1.mlp.experts.gate_up_proj");
  CHECK(up->slice.index == 2);
  CHECK(up->slice.part == 1);
  CHECK(up->slice.is_transposed);
  CHECK(up->slice.is_interleaved);
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

TEST_CASE("plan: messages say where in the recipe a pattern stands") {
  const ModelFixture fixture("llama");
  try {
    planned(fixture, "scheme: FP8, ignore: [lm_head, LlamaRMSNorm]");
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.message() ==
          "line 1, column 79: ignore 'LlamaRMSNorm' matches no module of the model");
  }
}

TEST_CASE("plan: of attention groups and kv_cache_schemes the last modifier's counts") {
  const ModelFixture fixture("llama");
  const std::string group =
      "a_modifiers: {QuantizationModifier: {config_groups: {a: {targets: [LlamaAttention], "
      "input_activations: {type: float, observer: minmax}}}}}";
  const std::string scheme = "b_modifiers: {QuantizationModifier: {" + kKv + "}}";
  const QuantPlan scheme_last = plan_of(fixture, group + ", " + scheme);
  CHECK(scheme_last.attention[0].kv.observer == "static_minmax");
  CHECK_FALSE(scheme_last.attention[0].q);
  const QuantPlan group_last = plan_of(fixture, scheme + ", " + group);
  CHECK(group_last.attention[0].kv.observer == "minmax");
  CHECK(group_last.attention[0].q);
}

TEST_CASE("plan: an attention group and a kv_cache_scheme of one modifier agree or are refused") {
  const ModelFixture fixture("llama");
  const std::string group =
      ", config_groups: {a: {targets: [LlamaAttention], input_activations: {type: float}}}";
  CHECK(planned(fixture, kKv + group).attention[0].q);
  CHECK(
      refusal(fixture, "kv_cache_scheme: {type: float, observer: mse}" + group) ==
      "target 'LlamaAttention' gives model.layers.0.self_attn other args, and kv_cache_scheme, on "
      "line 1, FP8 of its own; expected one of both, or the same args");
}

TEST_CASE("plan: groups for weights want matrices") {
  const ModelFixture llama("llama"), gpt2("gpt2");
  CHECK(refusal(llama, "scheme: {FP8: [LlamaAttention], FP8_DYNAMIC: [Linear]}") ==
        "target 'LlamaAttention' matches attention modules alone (model.layers.0.self_attn), and "
        "its group is for weights; a group for attention has input_activations alone");
  // A pattern for what is in attention matches attention too.
  CHECK(planned(llama, "scheme: FP8, targets: ['re:.*self_attn']").linears.size() ==
        4 * static_cast<size_t>(llama.config.num_hidden_layers));
  CHECK(refusal(gpt2, "scheme: FP8, ignore: [lm_head], " + kKv) ==
        "target 'Linear' matches 1 module (lm_head), and none is left to quantize; this model's "
        "matrices are Conv1D, which engines do not load in FP8");
  const ModelFixture inkling("inkling");
  CHECK(refusal(inkling, "scheme: FP8_DYNAMIC, ignore: [lm_head]") ==
        "target 'Linear' matches model.llm.layers.0.mlp.w13_dn, whose rows of gate and up "
        "alternate: kvcal keeps it in 16 bits; name it in ignore");
  const QuantPlan rest =
      planned(inkling, "scheme: FP8_DYNAMIC, ignore: [lm_head, 're:.*mlp.w13_dn']");
  CHECK(!rest.linears.empty());
}

TEST_CASE("plan: one of several groups that finds nothing is told") {
  const ModelFixture fixture("llama");
  std::vector<std::string> warnings;
  plan_of(fixture,
          "a_modifiers: {QuantizationModifier: {scheme: {FP8: [Linear], FP8_DYNAMIC: [lm_head]}, "
          "ignore: [lm_head]}}",
          &warnings);
  REQUIRE(warnings.size() == 1);
  CHECK(without_place(warnings[0]) ==
        "target 'lm_head' matches 1 module (lm_head), and none is left to quantize");
}

TEST_CASE("plan: what the checkpoint holds and the text model does not run keeps 16 bits") {
  const ModelFixture fixture("gemma3_multimodal");
  const QuantPlan plan = planned(fixture, "scheme: FP8, ignore: [lm_head, 're:vision_tower.*']");
  const std::string layer = "vision_tower.vision_model.encoder.layers.0.";
  // Patterns behind the names are for readers that have the parts under other prefixes.
  REQUIRE(plan.ignore.size() == 9);
  CHECK(plan.ignore.front() == layer + "mlp.fc1");
  CHECK(std::ranges::count(plan.ignore, layer + "self_attn.out_proj") == 1);
  CHECK(plan.ignore[6] == "language_model.lm_head");
  CHECK(plan.ignore[7] == "re:(.*\\.)?vision_tower\\..*");
  CHECK(plan.ignore[8] == "lm_head");
  CHECK(plan.unrun.size() == 6);
  CHECK(plan.linears.size() == 7 * static_cast<size_t>(fixture.config.num_hidden_layers));
  // As llm-compressor's own recipes for such models name them.
  const QuantPlan same = planned(fixture,
                                 "scheme: FP8, ignore: ['re:.*lm_head', 're:model.vision_tower.*', "
                                 "'re:multi_modal_projector.*']");
  CHECK(same.ignore == plan.ignore);
  // Layers behind the last predict further.
  const ModelFixture glm("glm4_moe");
  CHECK(planned(glm, "scheme: FP8_DYNAMIC, ignore: [lm_head]").unrun ==
        std::vector<std::string>{"model.layers.2.eh_proj"});
}

TEST_CASE("plan: K and V that are not run are left out where their queries are quantized") {
  // Published checkpoints have them in layers that read another layer's cache, here from 3 on.
  const ModelFixture fixture("gemma4_e2b");
  const std::string attention = "model.layers.3.self_attn.";
  const std::vector<std::string> unrun{attention + "k_proj", attention + "v_proj"};
  const auto plan_with = [&](const std::string& ignore) {
    const std::string recipe =
        "s_stage: {g_modifiers: {QuantizationModifier: {scheme: FP8, "
        "ignore: [lm_head" +
        ignore + "]}}}";
    SilentDiagnostics silent;
    std::vector<UnrunModule> modules{{attention + "k_norm", ""}};
    for (const std::string& name : unrun) modules.push_back({name, "Linear"});
    return resolve_plan(parse_recipe(recipe), fixture.config, silent, std::move(modules));
  };
  const QuantPlan plan = plan_with("");
  CHECK(plan.unrun.empty());
  CHECK(plan.left_out == unrun);
  CHECK(plan.ignore == std::vector<std::string>{"lm_head"});
  CHECK(plan.groups.at(0).targets == std::vector<std::string>{"Linear"});
  // Beside queries of 16 bits they stay.
  const QuantPlan without = plan_with(", 're:.*layers.3.self_attn.q_proj'");
  CHECK(without.unrun == unrun);
  CHECK(without.left_out.empty());
}

TEST_CASE("plan: equal schemes of two modifiers are one group") {
  const ModelFixture fixture("llama");
  const auto modifier = [](const char* group, const char* ignore) {
    return std::string(group) +
           "_modifiers: {QuantizationModifier: {scheme: FP8, ignore: [lm_head, " + ignore + "]}}";
  };
  const QuantPlan plan =
      plan_of(fixture, modifier("a", "'re:.*mlp.*'") + ", " + modifier("b", "'re:.*self_attn.*'"));
  CHECK(plan.groups.size() == 1);
  CHECK(plan.groups[0].targets == std::vector<std::string>{"Linear"});
  CHECK(plan.linears.size() == 7 * static_cast<size_t>(fixture.config.num_hidden_layers));
}

TEST_CASE("plan: ignored attention modules come before what is in them") {
  const ModelFixture fixture("llama");
  // Source: the order of compressed-tensors `QuantizationConfig.from_pretrained`.
  const QuantPlan plan =
      planned(fixture, "scheme: FP8, ignore: ['re:.*layers.0.self_attn$', lm_head], " + kKv);
  CHECK(plan.ignore == std::vector<std::string>{"model.layers.0.self_attn", "lm_head"});
  CHECK(plan.unquantized == std::vector<std::string>{"lm_head"});
}
