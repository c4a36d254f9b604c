#include "recipe/recipe.h"

#include "support/catch.h"
#include "support/folders.h"

using namespace kvcal;

namespace {

/// A recipe whose modifier has these fields (lines of YAML, six spaces deep) beside a plain scheme.
Recipe with_fields(const std::string& fields) {
  return parse_recipe("quant_stage:\n  quant_modifiers:\n    QuantizationModifier:\n" + fields +
                      "      kv_cache_scheme: {type: float}\n");
}

Recipe with_scheme(const std::string& scheme) {
  return parse_recipe("quant_stage: {quant_modifiers: {QuantizationModifier: {kv_cache_scheme: {" +
                      scheme + "}}}}");
}

}  // namespace

TEST_CASE("recipe: the documented shape, all keys of the scheme") {
  const std::string text =
      "quant_stage:\n"
      "  quant_modifiers:\n"
      "    QuantizationModifier:\n"
      "      targets: [Linear]\n"
      "      ignore: [lm_head, 're:.*layers\\.0\\.self_attn']\n"
      "      kv_cache_scheme:\n"
      "        num_bits: 8\n"
      "        type: float\n"
      "        symmetric: true\n"
      "        group_size: null\n"
      "        strategy: attn_head\n"
      "        block_structure: null\n"
      "        dynamic: false\n"
      "        actorder: null\n"
      "        scale_dtype: null\n"
      "        zp_dtype: null\n"
      "        observer: minmax\n"
      "        observer_kwargs: {averaging_constant: 0.25}\n"
      "args: {}\n";
  const Recipe recipe = parse_recipe(text);
  CHECK(recipe.source == text);
  CHECK(recipe.modifiers[0].stage == "quant");
  CHECK(recipe.modifiers[0].group == "quant");
  CHECK(recipe.modifiers[0].targets == std::vector<std::string>{"Linear"});
  CHECK(recipe.modifiers[0].ignore ==
        std::vector<std::string>{"lm_head", "re:.*layers\\.0\\.self_attn"});
  const QuantArgs& scheme = *recipe.modifiers[0].kv_cache_scheme;
  CHECK(scheme.num_bits == 8);
  CHECK(scheme.type == QuantType::kFloat);
  CHECK(scheme.symmetric);
  CHECK_FALSE(scheme.dynamic);
  CHECK(scheme.strategy == Strategy::kAttnHead);
  CHECK(scheme.observer == "minmax");
  CHECK(scheme.observer_kwargs == Json{{"averaging_constant", 0.25}});
}

TEST_CASE("recipe: what is not named has a value all the same") {
  const Recipe recipe = with_scheme("type: float");
  CHECK(recipe.modifiers[0].kv_cache_scheme->strategy == Strategy::kTensor);
  CHECK(recipe.modifiers[0].kv_cache_scheme->observer == "static_minmax");
  CHECK(recipe.modifiers[0].kv_cache_scheme->observer_kwargs == Json::object());
  CHECK(recipe.modifiers[0].targets.empty());
  CHECK(recipe.modifiers[0].ignore.empty());
  CHECK(with_scheme("type: float, strategy: null, observer: null")
            .modifiers[0]
            .kv_cache_scheme->observer == "static_minmax");
}

TEST_CASE("recipe: names and words as llm-compressor takes them") {
  CHECK(with_scheme("type: FLOAT, strategy: Attn_Head").modifiers[0].kv_cache_scheme->strategy ==
        Strategy::kAttnHead);
  CHECK(
      with_scheme("type: float, observer: Static-MinMax").modifiers[0].kv_cache_scheme->observer ==
      "static_minmax");
  CHECK(with_scheme("type: float, observer: memoryless_minmax")
            .modifiers[0]
            .kv_cache_scheme->observer == "memoryless_minmax");
  CHECK(with_scheme("type: float, symmetric: yes, dynamic: off")
            .modifiers[0]
            .kv_cache_scheme->symmetric);
  CHECK(with_scheme("type: 'float', actorder: false").modifiers[0].kv_cache_scheme->type ==
        QuantType::kFloat);
  const QuantArgs one =
      with_scheme("type: float, observer: minmax, observer_kwargs: {averaging_constant: 1}")
          .modifiers[0]
          .kv_cache_scheme.value();
  CHECK(one.observer_kwargs["averaging_constant"] == 1.0);
  const QuantArgs small =
      with_scheme("observer_kwargs: {averaging_constant: 1e-3}, observer: minmax, type: float")
          .modifiers[0]
          .kv_cache_scheme.value();
  CHECK(small.observer_kwargs["averaging_constant"] == 1e-3);
  CHECK(
      with_scheme("type: float, observer: minmax").modifiers[0].kv_cache_scheme->observer_kwargs ==
      Json::object());
}

TEST_CASE("recipe: fields without effect are taken with the values that have none") {
  const Recipe recipe = with_fields(
      "      index: 0\n      group: mine\n      start: 0.0\n      end: -1\n      update: 0\n"
      "      requires_calibration_data: true\n      bypass_divisibility_checks: true\n");
  CHECK(recipe.modifiers[0].group == "mine");
  const Recipe nulls = with_fields(
      "      index: null\n      group: ~\n      start:\n      end: null\n      update: null\n"
      "      scheme: null\n      config_groups: null\n      weight_observer: null\n      observer: "
      "null\n"
      "      input_observer: null\n      output_observer: null\n      requires_calibration_data: "
      "false\n");
  CHECK(nulls.modifiers[0].group == "quant");
}

TEST_CASE("recipe: two stages may each have a scheme of a KV cache") {
  const Recipe recipe = parse_recipe(
      "one_stage: {quant_modifiers: {QuantizationModifier: {kv_cache_scheme: {type: float}}}}\n"
      "two_stage: {quant_modifiers: {QuantizationModifier: {kv_cache_scheme: {type: float,\n"
      "  observer: minmax}, ignore: [lm_head]}}}\n");
  REQUIRE(recipe.modifiers.size() == 2);
  CHECK(recipe.modifiers[0].kv_cache_scheme->observer == "static_minmax");
  CHECK(recipe.modifiers[1].kv_cache_scheme->observer == "minmax");
  CHECK(recipe.modifiers[1].ignore == std::vector<std::string>{"lm_head"});
}

TEST_CASE("recipe: config groups that quantize nothing, as old KV-only recipes have them") {
  CHECK(with_fields("      config_groups: {group_0: {targets: []}}\n").modifiers[0].ignore.empty());
  CHECK(with_fields("      config_groups: {}\n").modifiers[0].ignore.empty());
  CHECK(with_fields("      config_groups:\n        group_0:\n          targets: [Linear]\n"
                    "          weights: null\n          input_activations: null\n"
                    "          output_activations: null\n          format: null\n")
            .modifiers[0]
            .targets.empty());
}

TEST_CASE("recipe: targets may be one string, args may stand at the top") {
  CHECK(with_fields("      targets: Linear\n").modifiers[0].targets ==
        std::vector<std::string>{"Linear"});
  CHECK(parse_recipe(
            "args: {learning_rate: 0.1, nested: [1, 2]}\n"
            "a_stage: {b_modifiers: {QuantizationModifier: {kv_cache_scheme: {type: float}}}}\n")
            .modifiers[0]
            .stage == "a");
}

TEST_CASE("recipe: JSON text is a recipe too") {
  const Recipe recipe = parse_recipe(
      "{\"quant_stage\": {\"quant_modifiers\": {\"QuantizationModifier\":\n"
      "  {\"ignore\": [\"re:model\\\\.layers\\\\.0\\\\..*\"], \"kv_cache_scheme\": {\"num_bits\": "
      "8,\n"
      "   \"type\": \"float\", \"dynamic\": false, \"symmetric\": true, \"strategy\": null}}}}}");
  CHECK(recipe.modifiers[0].ignore == std::vector<std::string>{"re:model\\.layers\\.0\\..*"});
  CHECK(recipe.modifiers[0].kv_cache_scheme->strategy == Strategy::kTensor);
}

TEST_CASE("recipe: JSON and Markdown files give what the YAML file gives") {
  const std::string folder = test::tests_folder().string() + "/fixtures/recipe/";
  const Recipe yaml = read_recipe(folder + "same.yaml");
  CHECK(yaml.modifiers[0].ignore == std::vector<std::string>{"lm_head"});
  for (const char* name : {"same.json", "same.md", "same.yml", "SAME_TOML_FENCE.MD"}) {
    INFO(name);
    const Recipe other = read_recipe(folder + name);
    CHECK(to_yaml(other) == to_yaml(yaml));
    CHECK(other.source != yaml.source);
  }
}
