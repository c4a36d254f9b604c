#include "engines/engines/vllm_rules.h"

namespace kvcal {

using enum ScaleSide;

namespace {

constexpr std::string_view kNeedsCode = "the model needs code of its checkpoint; tried without";
constexpr std::string_view kExpertsFail =
    "its loader of experts fails on empty config_groups (IndexError)";

/// Models that 5.23 cannot run, and which 5.17 cannot run either.
std::vector<Miss> transformers_misses() {
  return {{.types = {"exaone", "internlm2", "internlm3", "kimi_k2"},
           .why = kNeedsCode,
           .effect = MissEffect::kNoModel},
          {.types = {"mistral4"},
           .why = "AutoModelForCausalLM does not take its configuration",
           .effect = MissEffect::kNoModel},
          {.types = {"biogpt", "blip-2", "opt", "xglm"},
           .why = "it asks config.json for num_key_value_heads, which such models do not have "
                  "(ValueError)",
           .effect = MissEffect::kRefused,
           .methods = {"compressed-tensors"}},
          {.types = {"gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text"},
           .why = "it asks config.json for one head size of all layers",
           .effect = MissEffect::kRefused,
           .methods = {"compressed-tensors"}},
          {.types = {"instructblip", "instructblipvideo", "llama4"},
           .why = "the model does not have the tensor names of other multimodal models",
           .names = {"model.language_model."}},
          {.types = {"emu3"},
           .why = "it renames the tensors of published checkpoints, and does not find the scales",
           .methods = {"compressed-tensors"}},
          {.types = {"codegen", "dbrx", "falcon", "fuyu", "gpt2", "gpt_bigcode", "gpt_neo",
                     "gpt_neox", "gptj", "persimmon"},
           .why = "gives the cache of this attention class no scales, and drops those of the file",
           .effect = MissEffect::kSixteenBits,
           .methods = {"compressed-tensors"}},
          {.types = {"afmoe",          "cohere2_moe", "deepseek_ocr2", "deepseek_v2", "deepseek_v3",
                     "deepseek_v32",   "dots1",       "ernie4_5_moe",  "exaone_moe",  "flex_olmo",
                     "flint",          "glm4_moe",    "glm4_moe_lite", "glm4v_moe",   "glm_moe_dsa",
                     "hunyuan_v1_moe", "hy_v3",       "jamba",         "kimi_k25",    "laguna",
                     "lfm2_moe",       "mellum",      "mimo_v2_flash", "minimax_m2",  "mixtral",
                     "nemotron_h",     "olmoe",       "phimoe",        "qwen2_moe",   "qwen3_moe",
                     "qwen3_next",     "solar_open"},
           .why = kExpertsFail,
           .effect = MissEffect::kRefusedWithoutGroups,
           .methods = {"compressed-tensors"}}};
}

/// Models that only 5.17 cannot run.
std::vector<Miss> first_transformers_misses() {
  return {{.types = {"iquestcoder"}, .why = kNeedsCode, .effect = MissEffect::kNoModel},
          {.types = {"flint", "granite_docling", "hyperclovax_vision_v2", "minicpm_ocr",
                     "minicpmv4_7", "moss_transcribe_diarize"},
           .why = "it does not know the model",
           .effect = MissEffect::kNoModel},
          {.types = {"minicpm3"},
           .why = "its model file asks rope_scaling for factor (KeyError)",
           .effect = MissEffect::kNoModel},
          {.types = {"qwen3_5_moe"},
           .why = kExpertsFail,
           .effect = MissEffect::kRefusedWithoutGroups,
           .methods = {"compressed-tensors"}}};
}

/// Source: compressed-tensors 0.19, `QuantizationArgs`, which takes these keys and no other, and
/// `QuantizationConfig`.
MethodRules compressed_tensors_of_transformers() {
  return {
      .method = "compressed-tensors",
      .cache = CacheSwitch::kScheme,
      .names =
          joined({{".k_scale", kKey}, {".v_scale", kValue}, {".q_scale", kTaken}}, kZeroPoints),
      .absent = Absent::kUndefined,
      .config = {{.key = "config_groups", .accepted = {"an object"}},
                 {.key = "config_groups.*", .accepted = {"a group"}},
                 kNoColumnOrder,
                 {.key = "format", .accepted = {"a text"}, .may_lack = true},
                 {.key = "ignore", .accepted = {"a list of texts", "null"}, .may_lack = true},
                 {.key = "kv_cache_scheme",
                  .accepted = {"an object", "null", "[]", "false", "0", "\"\""},
                  .may_lack = true},
                 {.key = "quantization_status",
                  .accepted = {"\"initialized\"", "\"calibration\"", "\"frozen\"", "\"compressed\"",
                               "\"decompressed\""},
                  .may_lack = true}},
      .scheme = {{.key = "strategy",
                  .accepted = {"\"tensor\"", "\"attn_head\"", "null"},
                  .may_lack = true,
                  .ignores_case = true},
                 {.key = "type",
                  .accepted = {"\"float\"", "\"int\""},
                  .may_lack = true,
                  .ignores_case = true},
                 {.key = "num_bits", .accepted = {"8", "4", "\"8\"", "\"4\""}, .may_lack = true},
                 {.key = "dynamic", .accepted = {"true or false"}, .may_lack = true},
                 {.key = "symmetric", .accepted = {"true or false"}, .may_lack = true},
                 {.key = "observer_kwargs", .accepted = {"an object"}, .may_lack = true},
                 {.key = "actorder", .accepted = {"null"}, .may_lack = true}},
      .scheme_keys = {"num_bits", "type", "symmetric", "group_size", "strategy", "block_structure",
                      "dynamic", "actorder", "scale_dtype", "zp_dtype", "observer",
                      "observer_kwargs"},
      .refuses_other_schemes = true,
      .takes_heads = true,
      .shapes = ScaleShapes::kAny,
      .rounds_to_model = true,
      .needs_cache_config = true,
      .needs_scheme = true,
      .takes_dynamic = true};
}

}  // namespace

/// Source: transformers 5.17 with compressed-tensors 0.19, and 5.23 with 0.20, run
/// (tests/fixtures/engines).
EngineRules transformers_engine() {
  EngineRules rules = {
      .title = "transformers",
      .versions = {"5.17", "5.23"},
      .source = "run",
      .reading = {.needs_method = true,
                  .method_has_case = true,
                  .reads_compression_config = false,
                  .refuses_auto_type = true,
                  .false_scheme_is_none = true,
                  .refuses_bare_text_config = true},
      .files = {.prefers_single = true},
      .unknown = Unknown::kDroppedWithWarning,
      .unplaced = Unknown::kDroppedWithWarning,
      .command = "AutoModelForCausalLM.from_pretrained",
      .format = "compressed-tensors",
      .methods = {compressed_tensors_of_transformers(),
                  {.method = "quark", .refusal = "it needs the package amd-quark"}},
      .otherwise = {.method = "*"},
      .tried = with_wrappers_but({}, types_run_but({})),
      .misses = transformers_misses(),
      .formats = {{.format = "compressed-tensors",
                   .method = "compressed-tensors",
                   .names = kPlainScales,
                   .note = "per tensor and per head"}},
      // Tried (tests/fixtures/engines/drafts_transformers.json): it has no class of such layers.
      .runs_drafts = false};
  EngineRules later = rules;
  later.versions = {"5.23"};
  later.methods[0].shapes = ScaleShapes::kExact;
  later.methods[0].needs_scheme = false;
  later.misses.push_back({.types = {"olmo_hybrid"},
                          .why = "its converter of convolutions fails on empty config_groups",
                          .effect = MissEffect::kRefusedWithoutGroups,
                          .methods = {"compressed-tensors"}});
  later.misses.push_back({.types = {"qianfan_ocr"},
                          .why = "its converter of the vision tower fails on empty config_groups",
                          .effect = MissEffect::kRefusedWithoutGroups,
                          .methods = {"compressed-tensors"}});
  const std::vector<Miss> first = first_transformers_misses();
  rules.misses.insert(rules.misses.begin(), first.begin(), first.end());
  rules.other_versions = {later};
  return rules;
}

}  // namespace kvcal
