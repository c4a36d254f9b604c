#include "calib/plan/module_targets.h"

#include <map>

#include "calib/plan/resolve_plan.h"
#include "support/catch.h"
#include "support/model_fixture.h"

using namespace kvcal;
using kvcal::test::ModelFixture;

namespace {

using Names = std::vector<std::string>;

QuantPlan plan_of(const ModelFixture& fixture, const std::string& modifiers) {
  SilentDiagnostics silent;
  return resolve_plan(parse_recipe("s_stage: {" + modifiers + "}"), fixture.config, silent,
                      unrun_modules(fixture.model_dir, fixture.config));
}
std::string modifier(const std::string& group, const std::string& fields) {
  return group + "_modifiers: {QuantizationModifier: {" + fields + "}}";
}

/// The names of a plan's modules, group by group.
std::vector<Names> names_of(const QuantPlan& plan) {
  std::vector<Names> names(plan.groups.size());
  for (const PlannedLinear& linear : plan.linears) names[linear.group].push_back(linear.module);
  return names;
}
std::vector<Names> targets_of(const QuantPlan& plan) {
  std::vector<Names> targets;
  for (const QuantScheme& group : plan.groups) targets.push_back(group.targets);
  return targets;
}

}  // namespace

// What readers do was tried with compressed-tensors 0.19 and vLLM 0.32.

TEST_CASE("targets: two groups of one class, of which readers would keep the last") {
  const ModelFixture fixture("llama");
  const QuantPlan plan = plan_of(
      fixture, modifier("a", "scheme: FP8_DYNAMIC, ignore: [lm_head, 're:.*mlp.*']") + ", " +
                   modifier("b", "scheme: FP8, ignore: [lm_head, 're:.*self_attn.*']"));
  REQUIRE(plan.groups.size() == 2);
  CHECK(targets_of(plan) == names_of(plan));
  CHECK(plan.ignore == Names{"lm_head"});
}

TEST_CASE("targets: patterns that readers try in different orders") {
  const ModelFixture fixture("llama");
  const std::string channel =
      "weights: {type: float, strategy: channel}, input_activations: {type: float, strategy: "
      "token, "
      "dynamic: true}";
  const std::string tensor = "weights: {type: float}, input_activations: {type: float}";
  const QuantPlan plan =
      plan_of(fixture, modifier("a", "config_groups: {a: {targets: ['re:.*mlp.*'], " + tensor +
                                         "}, b: {targets: ['re:.*down_proj'], " + channel + "}}"));
  REQUIRE(plan.groups.size() == 2);
  // Alphabetical order decides, as in compressed-tensors.
  CHECK(names_of(plan)[1].front() == "model.layers.0.mlp.down_proj");
  CHECK(targets_of(plan) == names_of(plan));
}

TEST_CASE("targets: a name that the checkpoint does not have") {
  const ModelFixture fixture("mixtral");
  const QuantPlan plan = plan_of(
      fixture, modifier("a", "scheme: FP8_DYNAMIC, targets: ['re:.*\\.mlp\\.experts\\..*']"));
  REQUIRE(plan.groups.size() == 1);
  Names expected{"re:.*\\.mlp\\.experts\\..*"};
  const std::vector<Names> names = names_of(plan);
  expected.insert(expected.end(), names[0].begin(), names[0].end());
  CHECK(plan.groups[0].targets == expected);
  CHECK(expected[1] == "model.layers.0.block_sparse_moe.experts.0.w1");
}

TEST_CASE("targets: vLLM's lm_head is no Linear") {
  const ModelFixture fixture("llama");
  const QuantPlan plan = plan_of(fixture, modifier("a", "scheme: FP8_DYNAMIC"));
  CHECK(plan.groups[0].targets == Names{"Linear", "lm_head"});
}

TEST_CASE("targets: what all readers take alike stays as written") {
  const ModelFixture llama("llama"), mixtral("mixtral"), phi3("phi3");
  const std::string mixed =
      "ignore: [lm_head], scheme: {FP8_DYNAMIC: ['re:.*self_attn\\..*_proj$'], FP8: "
      "['re:.*mlp\\..*_proj$']}";
  for (const ModelFixture* fixture : {&llama, &phi3})
    CHECK(targets_of(plan_of(*fixture, modifier("a", mixed))) ==
          std::vector<Names>{{"re:.*self_attn\\..*_proj$"}, {"re:.*mlp\\..*_proj$"}});
  for (const ModelFixture* fixture : {&llama, &mixtral, &phi3})
    CHECK(targets_of(plan_of(*fixture, modifier("a", "scheme: FP8, ignore: [lm_head]"))) ==
          std::vector<Names>{{"Linear"}});
  // A pattern for shards of what vLLM runs as one.
  CHECK(targets_of(plan_of(
            llama, modifier("a", "scheme: FP8, targets: ['re:.*(q|k|v)_proj', 're:.*o_proj']"))) ==
        std::vector<Names>{{"re:.*(q|k|v)_proj", "re:.*o_proj"}});
}

TEST_CASE("targets: a matrix that a pattern takes along and ignore does not name") {
  const ModelFixture fixture("llama");
  // Embeddings come into config.json's ignore only where one is quantized.
  const QuantPlan plan =
      plan_of(fixture, modifier("a",
                                "scheme: FP8_DYNAMIC, targets: ['re:.*'], ignore: [lm_head, "
                                "model.embed_tokens]"));
  CHECK(targets_of(plan) == names_of(plan));
}
