#include <filesystem>
#include <string>
#include <vector>

#include "core/file.h"
#include "recipe/recipe.h"
#include "support/catch.h"
#include "support/folders.h"

using namespace kvcal;

namespace {

using Names = std::vector<std::string>;

const fs::path kFixtures = test::tests_folder() / "fixtures" / "recipe";

/// The only modifier of a recipe with these fields, in flow style.
Modifier with_fields(const std::string& fields) {
  const Recipe recipe =
      parse_recipe("quant_stage: {quant_modifiers: {QuantizationModifier: {" + fields + "}}}");
  REQUIRE(recipe.modifiers.size() == 1);
  return recipe.modifiers[0];
}

/// The only group of that modifier.
QuantScheme only_group(const std::string& fields) {
  const Modifier modifier = with_fields(fields);
  REQUIRE(modifier.config_groups.size() == 1);
  CHECK(modifier.config_groups[0].first == "group_0");
  return modifier.config_groups[0].second;
}

QuantScheme with_group(const std::string& fields) {
  return only_group("config_groups: {group_0: {" + fields + "}}");
}

QuantArgs weights_of(const std::string& args) {
  return with_group("targets: [Linear], weights: {" + args + "}").weights.value();
}

QuantArgs inputs_of(const std::string& args) {
  return with_group("targets: [Linear], weights: {type: float}, input_activations: {" + args + "}")
      .input_activations.value();
}

QuantArgs kv_of(const std::string& args) {
  return with_fields("kv_cache_scheme: {type: float, " + args + "}").kv_cache_scheme.value();
}

fs::path recipe_file(const std::string& name) {
  const fs::path own = kFixtures / "saved" / (name + ".in.yaml");
  return fs::exists(own) ? own : test::source_folder() / "recipes" / (name + ".yaml");
}

}  // namespace

// The expectations are llm-compressor's; reference/recipes_llmcompressor.py keeps them.
TEST_CASE("groups: resolved as llm-compressor resolves them") {
  const Json fixture = parse_json(read_text(kFixtures / "groups.json"));
  size_t num_groups = 0;
  for (const auto& [name, modifiers] : fixture.items()) {
    INFO(name);
    const Recipe recipe = read_recipe(recipe_file(name));
    REQUIRE(recipe.modifiers.size() == modifiers.size());
    for (size_t i = 0; i < modifiers.size(); ++i) {
      const Modifier& modifier = recipe.modifiers[i];
      CHECK(needs_data(modifier) == modifiers[i].at("needs_data").get<bool>());
      Json groups = Json::object();
      for (const auto& [group, scheme] : modifier.config_groups) groups[group] = to_json(scheme);
      CHECK(dump_json(sorted_keys(groups)) == dump_json(sorted_keys(modifiers[i].at("groups"))));
      num_groups += modifier.config_groups.size();
    }
  }
  CHECK(num_groups >= 20);
}

TEST_CASE("groups: presets, in any case") {
  for (const char* word : {"FP8", "fp8", "Fp8"}) {
    const Modifier modifier = with_fields(std::string("scheme: ") + word);
    CHECK(modifier.scheme == word);
    CHECK_FALSE(modifier.has_config_groups);
    const QuantScheme& scheme = modifier.config_groups.at(0).second;
    CHECK(scheme.targets == Names{"Linear"});
    CHECK(scheme.weights->strategy == Strategy::kTensor);
    CHECK(scheme.weights->observer == "memoryless_minmax");
    CHECK(scheme.input_activations->strategy == Strategy::kTensor);
    CHECK_FALSE(scheme.input_activations->dynamic);
    CHECK(scheme.input_activations->observer == "static_minmax");
  }
  const QuantScheme dynamic = only_group("scheme: FP8_DYNAMIC");
  CHECK(dynamic.weights->strategy == Strategy::kChannel);
  CHECK(dynamic.input_activations->strategy == Strategy::kToken);
  CHECK(dynamic.input_activations->dynamic);
  CHECK_FALSE(dynamic.input_activations->observer);
  const QuantScheme block = only_group("scheme: fp8_block, targets: ['re:.*mlp.*', lm_head]");
  CHECK(block.targets == Names{"re:.*mlp.*", "lm_head"});
  CHECK(block.weights->block_structure == std::vector<int64_t>{128, 128});
  CHECK(block.input_activations->strategy == Strategy::kGroup);
  CHECK(block.input_activations->group_size == 128);
  const QuantScheme none = only_group("scheme: UNQUANTIZED, kv_cache_scheme: {type: float}");
  CHECK(none.targets == Names{"Linear"});
  CHECK_FALSE(none.weights);
  CHECK_FALSE(none.input_activations);
}

TEST_CASE("groups: a map of presets") {
  const Modifier modifier =
      with_fields("targets: [Linear], scheme: {FP8: lm_head, fp8_dynamic: [Linear, 're:.*mlp']}");
  CHECK_FALSE(modifier.scheme);
  REQUIRE(modifier.scheme_map.size() == 2);
  CHECK(modifier.scheme_map[0] == std::pair<std::string, Names>("FP8", {"lm_head"}));
  CHECK(modifier.scheme_map[1] ==
        std::pair<std::string, Names>("fp8_dynamic", {"Linear", "re:.*mlp"}));
  REQUIRE(modifier.config_groups.size() == 2);
  CHECK(modifier.config_groups[0].first == "group_0");
  CHECK(modifier.config_groups[0].second.targets == Names{"lm_head"});
  CHECK(modifier.config_groups[1].first == "group_1");
  CHECK(modifier.config_groups[1].second.targets == Names{"Linear", "re:.*mlp"});
  CHECK(modifier.config_groups[1].second.input_activations->dynamic);
}

TEST_CASE("groups: which observer counts") {
  // None named: all that is shown counts. llm-compressor would take its average for inputs.
  CHECK(weights_of("type: float").observer == "memoryless_minmax");
  CHECK(inputs_of("type: float").observer == "static_minmax");
  CHECK_FALSE(inputs_of("type: float, strategy: token, dynamic: true").observer);
  // Named in the group.
  CHECK(weights_of("type: float, observer: MSE").observer == "mse");
  CHECK(inputs_of("type: float, observer: percentile").observer == "percentile");
  // The modifier's goes before the group's and the preset's, and does not touch the KV cache.
  const std::string groups =
      "config_groups: {group_0: {targets: [Linear], weights: {type: float, observer: minmax}, "
      "input_activations: {type: float, observer: minmax}}}, kv_cache_scheme: {type: float}";
  for (const char* named : {"weight_observer: mse, input_observer: entropy",
                            "observer: {weights: mse, input: entropy, output: minmax}"}) {
    const Modifier modifier = with_fields(groups + ", " + named);
    CHECK(modifier.config_groups.at(0).second.weights->observer == "mse");
    CHECK(modifier.config_groups.at(0).second.input_activations->observer == "entropy");
    CHECK(modifier.kv_cache_scheme->observer == "static_minmax");
  }
  CHECK(only_group("weight_observer: null, observer: {}, scheme: FP8").weights->observer ==
        "memoryless_minmax");
  CHECK(only_group("scheme: FP8, input_observer: Memoryless-MinMax").input_activations->observer ==
        "memoryless_minmax");
  CHECK(with_fields("scheme: FP8, observer: {input: Minmax}").observer.at("input") == "Minmax");
  CHECK(with_fields("scheme: FP8, output_observer: mse").output_observer == "mse");
}

TEST_CASE("groups: settings of observers") {
  const Json search = weights_of(
                          "observer_kwargs: {maxshrink: 1, grid: 20.5, norm: 2, patience: 7, "
                          "expand: 1.5}, type: float, observer: mse")
                          .observer_kwargs;
  CHECK(search ==
        Json{{"maxshrink", 1}, {"grid", 20.5}, {"norm", 2}, {"patience", 7}, {"expand", 1.5}});
  CHECK(search["patience"].is_number_integer());
  CHECK(weights_of("type: float, observer: memoryless_mse, observer_kwargs: {maxshrink: 0.5}")
            .observer_kwargs["maxshrink"] == 0.5);
  CHECK(inputs_of("type: float, observer: minmax, observer_kwargs: {averaging_constant: 0.1}")
            .observer_kwargs["averaging_constant"] == 0.1);
  CHECK(kv_of("observer: mse, observer_kwargs: {grid: 200}").observer_kwargs["grid"] == 200);
  CHECK(kv_of("observer: percentile, observer_kwargs: {percentile: 100}")
            .observer_kwargs["percentile"] == 100);
  CHECK(kv_of("observer: percentile").observer_kwargs == Json::object());
  CHECK(kv_of("observer: entropy, observer_kwargs: {}").observer == "entropy");
  CHECK(inputs_of("type: float, dynamic: true, observer_kwargs: {}").observer_kwargs.empty());
  // The settings are those of the observer that counts.
  CHECK(only_group("weight_observer: mse, config_groups: {group_0: {targets: [Linear], weights: "
                   "{type: float, observer: minmax, observer_kwargs: {norm: 3}}}}")
            .weights->observer_kwargs["norm"] == 3);
}

TEST_CASE("groups: strategies, named or implied") {
  CHECK(weights_of("type: float").strategy == Strategy::kTensor);
  CHECK(weights_of("type: float, strategy: null, group_size: null").strategy == Strategy::kTensor);
  CHECK(weights_of("type: float, group_size: -1").strategy == Strategy::kChannel);
  CHECK(weights_of("type: float, strategy: channel, group_size: -1").group_size == -1);
  const QuantArgs block = weights_of("strategy: BLOCK, block_structure: 64x32, type: FLOAT");
  CHECK(block.strategy == Strategy::kBlock);
  CHECK(block.block_structure == std::vector<int64_t>{64, 32});
  CHECK(weights_of("strategy: block, block_structure: '128x128', type: float").block_structure ==
        std::vector<int64_t>{128, 128});
  CHECK(weights_of("type: float, actorder: false").strategy == Strategy::kTensor);
  CHECK(inputs_of("type: float, dynamic: true").strategy == Strategy::kTensor);
  const QuantArgs group = inputs_of("type: float, dynamic: true, group_size: 64");
  CHECK(group.strategy == Strategy::kGroup);
  CHECK(group.group_size == 64);
}

TEST_CASE("groups: attention has inputs and no weights") {
  for (const char* strategy : {"tensor", "attn_head"}) {
    const QuantScheme scheme = with_group(
        "targets: [LlamaAttention], weights: null, input_activations: {type: float, strategy: " +
        std::string(strategy) + "}");
    CHECK_FALSE(scheme.weights);
    CHECK(name_of(*scheme.input_activations->strategy) == strategy);
    CHECK(scheme.input_activations->observer == "static_minmax");
  }
}

TEST_CASE("groups: formats that say what is stored") {
  const std::string linear = "targets: [Linear], weights: {type: float}, format: ";
  CHECK_FALSE(with_group(linear + "null").format);
  CHECK(with_group(linear + "naive-quantized").format == CompressionFormat::kNaiveQuantized);
  CHECK(with_group(linear + "float-quantized").format == CompressionFormat::kFloatQuantized);
  CHECK(with_group("targets: [A], input_activations: {type: float}, format: dense").format ==
        CompressionFormat::kDense);
}

TEST_CASE("groups: several modifiers, in the order of the file") {
  const Recipe recipe = parse_recipe(
      "one_stage:\n"
      "  a_modifiers:\n"
      "    QuantizationModifier: {scheme: FP8}\n"
      "  b_modifiers:\n"
      "    QuantizationModifier: {kv_cache_scheme: {type: float}, ignore: [lm_head]}\n"
      "two_stage:\n"
      "  a_modifiers:\n"
      "    QuantizationModifier: {scheme: UNQUANTIZED, targets: lm_head}\n");
  REQUIRE(recipe.modifiers.size() == 3);
  CHECK(recipe.modifiers[0].stage == "one");
  CHECK(recipe.modifiers[0].group == "a");
  CHECK(recipe.modifiers[0].place.line == 3);
  CHECK_FALSE(recipe.modifiers[0].kv_cache_scheme);
  CHECK(recipe.modifiers[1].group == "b");
  CHECK(recipe.modifiers[1].place.line == 5);
  // Nothing is said of Linears, so nothing happens to them.
  CHECK(recipe.modifiers[1].config_groups.empty());
  CHECK(recipe.modifiers[2].stage == "two");
  CHECK(recipe.modifiers[2].config_groups.at(0).second.targets == Names{"lm_head"});
  CHECK(needs_data(recipe.modifiers[0]));
  CHECK(needs_data(recipe.modifiers[1]));
  CHECK_FALSE(needs_data(recipe.modifiers[2]));
}

TEST_CASE("groups: what needs data") {
  CHECK(needs_data(with_fields("scheme: FP8")));
  CHECK_FALSE(needs_data(with_fields("scheme: FP8_DYNAMIC")));
  CHECK_FALSE(needs_data(with_fields("scheme: FP8_BLOCK, weight_observer: mse")));
  CHECK(needs_data(with_fields("scheme: FP8_BLOCK, kv_cache_scheme: {type: float}")));
  CHECK(needs_data(with_fields(
      "config_groups: {group_0: {targets: [LlamaAttention], input_activations: {type: float}}}")));
}
