#include "export/planned_weights.h"

#include "export/quantized_case.h"
#include "support/catch.h"

using namespace kvcal;
using kvcal::test::contains;
using kvcal::test::model_fixture;

namespace {

QuantArgs args(Strategy strategy, bool dynamic = false) {
  QuantArgs made;
  made.type = QuantType::kFloat;
  made.strategy = strategy;
  made.dynamic = dynamic;
  return made;
}
QuantScheme scheme(Strategy weights, std::optional<QuantArgs> inputs) {
  return {.targets = {"Linear"},
          .weights = args(weights),
          .input_activations = std::move(inputs),
          .format = {}};
}
QuantScheme blocks(int64_t side) {
  QuantScheme made = scheme(Strategy::kBlock, std::nullopt);
  made.weights->block_structure = std::vector<int64_t>{side, side};
  made.input_activations = args(Strategy::kToken, true);
  return made;
}
const QuantScheme kStatic = scheme(Strategy::kTensor, args(Strategy::kTensor));
const QuantScheme kDynamic = scheme(Strategy::kChannel, args(Strategy::kToken, true));

/// Notes of a plan of a fixture's modules; those whose group is -1 keep 16 bits.
std::string notes(const std::string& fixture, const std::vector<QuantScheme>& groups,
                  const std::vector<std::pair<std::string, int>>& modules) {
  const ModelDir model(model_fixture(fixture));
  Calibration calibration;
  calibration.plan.groups = groups;
  for (const auto& [module, group] : modules)
    if (group < 0)
      calibration.plan.unquantized.push_back(module);
    else
      calibration.plan.linears.push_back(
          {.module = module, .layer = 0, .group = static_cast<size_t>(group)});
  std::string all;
  const Recipe recipe;
  for (const std::string& note :
       weight_notes({.model = model, .calibration = calibration, .recipe = &recipe}))
    all += note + "\n";
  return all;
}

}  // namespace

// What vLLM 0.32 refuses was read in its source and tried.

TEST_CASE("notes: matrices that vLLM runs as one want one scheme") {
  const std::string self = "model.layers.0.self_attn.", mlp = "model.layers.0.mlp.";
  const auto of = [&](int q, int k, int v, int gate, int up) {
    return notes("llama", {kStatic, kDynamic},
                 {{self + "q_proj", q},
                  {self + "k_proj", k},
                  {self + "v_proj", v},
                  {mlp + "gate_proj", gate},
                  {mlp + "up_proj", up}});
  };
  CHECK(of(0, 0, 0, 1, 1).empty());
  CHECK(contains(of(0, 0, 1, 1, 1),
                 self + "v_proj and " + self +
                     "q_proj have different schemes; vLLM runs them as one matrix, '" + self +
                     "qkv_proj'"));
  CHECK(contains(of(0, 0, 0, 1, -1), mlp + "up_proj and " + mlp + "gate_proj have different"));
}

TEST_CASE("notes: experts have fewer forms than other matrices") {
  const std::string expert = "model.layers.0.block_sparse_moe.experts.0.";
  const auto of = [&](const QuantScheme& all) {
    return notes("mixtral", {all}, {{expert + "w1", 0}, {expert + "w2", 0}, {expert + "w3", 0}});
  };
  CHECK(of(kStatic).empty());
  CHECK(of(kDynamic).empty());
  const std::string refused = expert + "w1: vLLM 0.32 refuses experts in this form";
  CHECK(contains(of(scheme(Strategy::kChannel, args(Strategy::kTensor))), refused));
  CHECK(contains(of(scheme(Strategy::kTensor, args(Strategy::kToken, true))), refused));
  const std::string weights_alone = of(scheme(Strategy::kTensor, std::nullopt));
  CHECK(contains(weights_alone, refused));
  CHECK_FALSE(contains(weights_alone, "on CUDA"));  // what is true of other matrices
  CHECK(contains(notes("mixtral", {kStatic, kDynamic},
                       {{expert + "w1", 0}, {expert + "w2", 1}, {expert + "w3", 0}}),
                 "experts.0: its matrices have different schemes"));
  CHECK(contains(notes("mixtral", {kStatic}, {{expert + "w1", 0}, {expert + "w2", -1}}),
                 "experts.0: its matrices have different schemes"));
}

TEST_CASE("notes: parts of a fused matrix that end within a block") {
  const ModelDir model(model_fixture("phi3"));
  const std::string layer = "model.layers.0.";
  const int64_t q = model.tensor(layer + "self_attn.o_proj.weight").shape[1];
  const int64_t rows = model.tensor(layer + "self_attn.qkv_proj.weight").shape[0];
  const int64_t kv = (rows - q) / 2;
  REQUIRE(q % kv == 0);
  const auto of = [&](const std::string& module, int64_t side) {
    return notes("phi3", {blocks(side)}, {{layer + module, 0}});
  };
  CHECK_FALSE(contains(of("self_attn.qkv_proj", kv), "end within a block"));
  CHECK(contains(of("self_attn.qkv_proj", q * 2), "self_attn.qkv_proj: a part of it has " +
                                                      std::to_string(q) +
                                                      " rows, which end within a block"));
  const int64_t half = model.tensor(layer + "mlp.gate_up_proj.weight").shape[0] / 2;
  CHECK_FALSE(contains(of("mlp.gate_up_proj", half), "end within a block"));
  CHECK(contains(of("mlp.gate_up_proj", half + 1),
                 "mlp.gate_up_proj: a part of it has " + std::to_string(half) + " rows"));
}

TEST_CASE("notes: how much of a checkpoint the text model does not run") {
  const ModelDir model(model_fixture("llama"));
  Calibration calibration;
  calibration.plan.groups = {kDynamic};
  calibration.plan.linears = {{.module = "model.layers.0.mlp.down_proj", .layer = 0}};
  calibration.plan.unrun = {"vision_tower.fc1", "vision_tower.fc2"};
  const Recipe recipe;
  CHECK(weight_notes({.model = model, .calibration = calibration, .recipe = &recipe}) ==
        std::vector<std::string>{"what of the checkpoint the text model does not run stays in 16 "
                                 "bits: 2 matrices (vision_tower.fc1, ...)"});
}

TEST_CASE("notes: what is left out because engines fuse it with FP8 weights, which outputs lack") {
  const ModelDir model(model_fixture("llama"));
  const std::string attention = "model.layers.0.self_attn.";
  Calibration calibration;
  calibration.plan.groups = {kDynamic};
  calibration.plan.linears = {{.module = attention + "q_proj", .layer = 0}};
  calibration.plan.left_out = {attention + "k_proj", attention + "v_proj"};
  const Recipe recipe;
  CHECK(weight_notes({.model = model, .calibration = calibration, .recipe = &recipe}) ==
        std::vector<std::string>{"what engines would run as one with FP8 weights, and the model "
                                 "does not run, is left out: 2 matrices (" +
                                 attention + "k_proj, ...)"});
  const WeightChanges changes = weight_changes(model, calibration);
  for (const char* name : {"q_proj", "k_proj", "v_proj"})
    CHECK(changes.replaced.contains(attention + name + ".weight"));
  CHECK(changes.quantized.size() == 1);
}
