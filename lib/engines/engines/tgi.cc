#include "engines/engine_rules.h"

namespace kvcal {
namespace {

using enum ScaleSide;

/// Source: TGI, `get_kv_scales`, `KVScales` and `Weights.get_tensor`, which casts what is not asked
/// to keep its dtype.
MethodRules tgi_any(std::string_view method, CacheSwitch cache) {
  return {.method = method,
          .cache = cache,
          .fp8_name = "fp8_e4m3fn",
          .names = {{".k_scale", kKey}, {".v_scale", kValue}, {".kv_scale", kBoth}},
          .absent = Absent::kOneForBoth,
          .rounds_shared_scale = true};
}

/// Source: TGI db931fcf, `CompressedTensorsLoader` (loader.py:193), run.
MethodRules tgi_compressed_tensors() {
  MethodRules rules = tgi_any("compressed-tensors", CacheSwitch::kSchemeOnCuda);
  rules.scheme = {{.key = "strategy", .accepted = {"\"tensor\"", "null"}, .may_lack = true}};
  rules.refuses_other_schemes = true;
  rules.needs_targets = true;
  rules.config = {{.key = "config_groups.*", .accepted = {"a group"}},
                  {.key = "config_groups.*.weights", .accepted = {"an object"}},
                  {.key = "format",
                   .accepted = {"\"float-quantized\"", "\"naive-quantized\"", "\"pack-quantized\"",
                                "\"marlin-24\"", "\"int-quantized\""},
                   .only_with = "config_groups"}};
  return rules;
}

/// Source: TGI db931fcf, server/text_generation_server/models/__init__.py, run.
std::vector<Miss> tgi_misses() {
  using enum MissEffect;
  const ModelTypes in_transformers{"aria_text",
                                   "got_ocr2",
                                   "phi4_multimodal",
                                   "bamba",
                                   "biogpt",
                                   "codegen",
                                   "cohere2",
                                   "fuyu",
                                   "glm",
                                   "glm4",
                                   "gpt_neo",
                                   "granitemoe",
                                   "granitemoeshared",
                                   "helium",
                                   "jamba",
                                   "llama4",
                                   "llama4_text",
                                   "nemotron",
                                   "olmo",
                                   "olmo2",
                                   "olmoe",
                                   "persimmon",
                                   "qwen2_moe",
                                   "qwen3",
                                   "qwen3_moe",
                                   "stablelm",
                                   "xglm"};
  constexpr std::string_view kFallback =
      "TGI runs the model through transformers, whose cache keeps 16 bits";
  constexpr std::string_view kNoFallback =
      "TGI would run the model through transformers, and refuses FP8 weights there";
  constexpr std::string_view kDoesNotRun = "TGI db931fcf does not run the model";
  constexpr std::string_view kExpertsRefuse =
      "its experts refuse weights in FP8 of this form (AssertionError)";
  return {
      {.types = {"afmoe",
                 "apertus",
                 "arcee",
                 "cohere2_moe",
                 "cwm",
                 "deepseek_v32",
                 "dots1",
                 "ernie4_5",
                 "ernie4_5_moe",
                 "exaone",
                 "exaone4",
                 "exaone_moe",
                 "falcon_h1",
                 "flex_olmo",
                 "flint",
                 "gemma4",
                 "gemma4_text",
                 "glm46v",
                 "glm4_moe",
                 "glm4_moe_lite",
                 "glm4v",
                 "glm4v_moe",
                 "glm_moe_dsa",
                 "gpt_oss",
                 "granite4_vision",
                 "granite_swa",
                 "granitemoe_swa",
                 "granitemoehybrid",
                 "hunyuan_v1_dense",
                 "hunyuan_v1_moe",
                 "hy_v3",
                 "hyperclovax",
                 "internlm2",
                 "internlm3",
                 "internvl",
                 "iquestcoder",
                 "jais2",
                 "kimi_k2",
                 "kimi_k25",
                 "laguna",
                 "lfm2",
                 "lfm2_moe",
                 "lfm2_vl",
                 "llava",
                 "llava_onevision",
                 "mellum",
                 "mimo_v2_flash",
                 "minicpm3",
                 "minimax_m2",
                 "ministral",
                 "ministral3",
                 "mistral3",
                 "mistral4",
                 "nanochat",
                 "nemotron_h",
                 "olmo3",
                 "olmo_hybrid",
                 "qwen3_5",
                 "qwen3_5_moe",
                 "qwen3_5_text",
                 "qwen3_next",
                 "qwen3_vl",
                 "qwen3_vl_moe",
                 "seed_oss",
                 "smollm3",
                 "smolvlm",
                 "solar_open",
                 "vaultgemma",
                 "youtu"},
       .why = kDoesNotRun,
       .effect = kNoModel},
      {.types = wrappers_run_but(
           {"aria_text", "emu3", "got_ocr2", "idefics2", "mllama", "phi4_multimodal"}),
       .why = kDoesNotRun,
       .effect = kNoModel},
      {.types = {"gpt_bigcode"},
       .why = "its model file wants one KV head (AssertionError)",
       .effect = kNoModel,
       .settings = {{.key = "multi_query", .value = "false"}}},
      // Its transformers takes attn_config, whose model_type is empty too, for the whole.
      {.types = {"dbrx"},
       .why = "it reads the sizes of dbrx from attn_config of config.json, where they are not "
              "(AssertionError)",
       .effect = kNoModel},
      {.types = {"gemma3", "llava_next", "mllama"},
       .why = "its loader stops at the tensor names of transformers 5",
       .effect = kRefused,
       .names = {"model.language_model."}},
      {.types = {"idefics3", "mllama", "opt"},
       .why = "its loader finds no target for the model's Linears in the configuration",
       .effect = kRefused,
       .methods = {"compressed-tensors"},
       .settings = {{.key = "quantization_config.config_groups", .value = "{}"},
                    {.key = "quantization_config.ignore", .value = "[]"}}},
      {.types = {"idefics3", "mllama", "opt"},
       .why = "it gives the model a cache of 16 bits, whatever it is told",
       .effect = kSixteenBits},
      {.types = {"llama4", "llama4_text"},
       .why = "transformers stops in TGI at compressed-tensors for this model (TypeError)",
       .effect = kRefused,
       .methods = {"compressed-tensors"}},
      {.types = {"emu3"}, .why = kFallback, .effect = kSixteenBits},
      {.types = in_transformers,
       .why = kNoFallback,
       .effect = kRefused,
       .methods = {"fp8", "quark"}},
      {.types = in_transformers, .why = kFallback, .effect = kSixteenBits},
      {.types = {"deepseek_v2", "deepseek_v3", "mixtral", "phimoe"},
       .why = kExpertsRefuse,
       .effect = kRefused,
       .methods = {"modelopt*", "quark"},
       .needs_weights = true},
      {.types = {"phimoe"}, .why = kExpertsRefuse, .effect = kRefused, .methods = {"fp8"}},
      {.types = {"deepseek_v3"},
       .why = "its experts refuse compressed-tensors (AssertionError: scoring func)",
       .effect = kRefused,
       .methods = {"compressed-tensors"}},
      // Source: TGI db931fcf, flash_rw_modeling.py:494, which reads it as null.
      {.types = {"falcon"},
       .why = "its model file asks config.json of the new decoder architecture for "
              "num_ln_in_parallel_attn (ValueError)",
       .effect = kNoModel,
       .settings = {{.key = "new_decoder_architecture"},
                    {.key = "num_ln_in_parallel_attn", .value = "null"},
                    {.key = "num_hidden_layers", .value = "80", .is_not = true}}},
      // Its Linears are Conv1D, which need no target.
      {.types = {"gpt2"}, .effect = kByRules},
  };
}

}  // namespace

EngineRules tgi_engine() {
  return {.title = "TGI",
          .versions = {"db931fcf"},
          .source = "layers/attention/kv_cache.py, utils/{weights,hub}.py, models/__init__.py",
          .reading = {.method_has_case = true,
                      .refuses_auto_type = true,
                      .refuses_null_config = true,
                      .reads_text_config = false},
          .files = {.reads_index = false,
                    .refuses_repeats = true,
                    .leaves_out = {"arguments", "args", "training"}},
          .command = "text-generation-launcher --model-id",
          .fp8_argument = "--kv-cache-dtype fp8_e4m3fn",
          .format = "tgi",
          .methods = {tgi_compressed_tensors(),
                      {.method = "fbgemm_fp8",
                       .refusal = "it asks the configuration of fbgemm_fp8 for weight_block_size, "
                                  "which it does not have (AttributeError)"}},
          .otherwise = tgi_any("*", CacheSwitch::kNever),
          .tried = with_wrappers_but({}, types_run_but({})),
          .misses = tgi_misses(),
          .formats =
              {
                  // Source: TGI, layers/attention/kv_cache.py, get_kv_scales.
                  {.format = "tgi",
                   .names = {".kv_scale"},
                   .note = "kv_scale, for FP8 E4M3 caches on CUDA"},
                  {.format = "compressed-tensors",
                   .method = "compressed-tensors",
                   .names = kPlainScales,
                   .note = "of one element, where ignore names Linear"},
              },
          // Tried (tests/fixtures/engines/drafts_tgi.json): its speculation has no such models.
          .runs_drafts = false};
}

/// Source: TGI's branch fp8_kvcache, `get_kv_cache_scaling_factor`; the dialect is that of
/// kv_cache_torch_dtype in config.json (cache_choice.cc).
EngineRules tgi_branch_engine() {
  MethodRules any = tgi_any("*", CacheSwitch::kNever);
  any.names = {{".kv_scale", kBoth}};
  any.rounds_shared_scale = false;
  any.dialect_by_config = true;
  return {.title = "TGI branch fp8_kvcache",
          .versions = {"1e6e7db0"},
          .source = "utils/weights.py",
          .command = "text-generation-launcher --model-id",
          .fp8_argument = "--kv-cache-dtype fp8",
          .format = "tgi",
          .otherwise = any};
}

}  // namespace kvcal
