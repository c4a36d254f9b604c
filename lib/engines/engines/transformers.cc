#include "engines/engine_rules.h"
#include "quant/quant_scheme.h"

namespace kvcal {

using enum ScaleSide;

namespace {

/// Of a scheme's strategies, those with which it starts. 5.24 makes no scales of the cache, and so
/// does not stop at the shape of one for groups.
std::vector<std::string_view> strategies_of(std::string_view version) {
  std::vector<std::string_view> strategies{"\"tensor\"", "\"attn_head\"", "null"};
  if (version == "5.24") strategies.emplace_back("\"group\"");
  return strategies;
}

/// Source: compressed-tensors 0.19, `QuantizationArgs`, which takes these keys and no other, and
/// `QuantizationConfig`.
MethodRules compressed_tensors_of_transformers(std::string_view version) {
  const bool is_first = version == "5.17";
  MethodRules rules{
      .method = "compressed-tensors",
      .cache = CacheSwitch::kScheme,
      .names = {{".k_scale", kKey},
                {".v_scale", kValue},
                {".q_scale", kTaken},
                {".k_zero_point", kTaken},
                {".v_zero_point", kTaken},
                {".q_zero_point", kTaken}},
      .absent = Absent::kUndefined,
      .config = {{.key = "config_groups", .accepted = {"an object"}},
                 {.key = "config_groups.*", .accepted = {"a group"}},
                 kNoColumnOrder,
                 {.key = "format", .accepted = {"a text"}, .may_lack = true},
                 {.key = "global_compression_ratio",
                  .accepted = {"null", "a number", "true or false"},
                  .may_lack = true},
                 {.key = "ignore", .accepted = {"a list of texts", "null"}, .may_lack = true},
                 {.key = "kv_cache_scheme",
                  .accepted = {"an object", "null", "[]", "false", "0", "\"\""},
                  .may_lack = true},
                 {.key = "quantization_status",
                  .accepted = {"\"initialized\"", "\"calibration\"", "\"frozen\"", "\"compressed\"",
                               "\"decompressed\""},
                  .may_lack = true}},
      .scheme = {{.key = "strategy",
                  .accepted = strategies_of(version),
                  .may_lack = true,
                  .ignores_case = true},
                 {.key = "type",
                  .accepted = {"\"float\"", "\"int\""},
                  .may_lack = true,
                  .ignores_case = true},
                 {.key = "num_bits", .accepted = {"8", "4", "\"8\"", "\"4\""}, .may_lack = true},
                 {.key = "dynamic", .accepted = {"true or false", "0", "1"}, .may_lack = true},
                 {.key = "symmetric", .accepted = {"true or false", "0", "1"}, .may_lack = true},
                 {.key = "observer", .accepted = {"a text", "null"}, .may_lack = true},
                 {.key = "observer_kwargs", .accepted = {"an object"}, .may_lack = true},
                 {.key = "group_size",
                  .accepted = {"null", "false", "0", "-1"},
                  .may_lack = true,
                  .when = {{.key = "strategy",
                            .accepted = {"\"tensor\"", "\"attn_head\""},
                            .ignores_case = true}}},
                 {.key = "block_structure", .accepted = {"null"}, .may_lack = true},
                 {.key = "scale_dtype", .accepted = {"null", "a dtype of torch"}, .may_lack = true},
                 {.key = "zp_dtype", .accepted = {"null", "a dtype of torch"}, .may_lack = true},
                 {.key = "actorder", .accepted = {"null", "false"}, .may_lack = true}},
      .scheme_keys = {kQuantArgsKeys.begin(), kQuantArgsKeys.end()},
      .refuses_other_schemes = true,
      .heads = HeadScales::kTaken,
      .shapes = is_first ? ScaleShapes::kAny : ScaleShapes::kExact,
      .rounding = Rounding::kToModel,
      .needs_cache_config = true,
      .needs_scheme = is_first,
      .refuses_packed_experts = true,
      .needs_linear_groups = !is_first,
      .takes_dynamic = true};
  // Its parameters of zero points are as they are unpacked. Run with tests/fixtures/quantized
  // (packed_transformers.json).
  if (!is_first)
    rules.config.push_back({.key = "config_groups.*.weights.symmetric",
                            .accepted = {"something"},
                            .may_lack = true,
                            .when = {{.key = "format", .accepted = {"\"pack-quantized\""}}}});
  return rules;
}

/// Of config.json. 5.23 takes any value of architectures.
std::vector<KeyCheck> model_checks(std::string_view version) {
  std::vector<KeyCheck> checks{{.key = "text_config", .accepted = {"null"}, .may_lack = true}};
  if (version == "5.17")
    checks.push_back(
        {.key = "architectures", .accepted = {"null", "a list of texts"}, .may_lack = true});
  return checks;
}

}  // namespace

/// Source: transformers 5.17 with compressed-tensors 0.19, 5.23 with 0.20.0 and 5.24 with 0.20.1,
/// run (tests/fixtures/engines).
EngineRules transformers_engine(std::string_view version) {
  return {.title = "transformers",
          .source = "run",
          .reading = {.needs_method = true,
                      .method_has_case = true,
                      .reads_compression_config = false,
                      .refuses_auto_type = true,
                      .false_scheme_is_none = true,
                      .model = model_checks(version)},
          .files = {.selection = ShardSelection::kSingleOrIndexed},
          .unknown = Unknown::kDroppedWithWarning,
          .unplaced = Unknown::kDroppedWithWarning,
          .command = "AutoModelForCausalLM.from_pretrained",
          .format = "compressed-tensors",
          .methods = {compressed_tensors_of_transformers(version),
                      {.method = "quark", .refusal = "it needs the package amd-quark"}},
          .otherwise = {.method = "*"},
          .formats = {{.format = "compressed-tensors",
                       .method = "compressed-tensors",
                       .names = kPlainScales,
                       .note = "per tensor and per head"}}};
}

}  // namespace kvcal
