#include "engines/engines/vllm_rules.h"

namespace kvcal {

using enum ScaleSide;

namespace {

std::vector<Miss> transformers_misses() {
  return {{.types = {"exaone", "internlm2", "internlm3"},
           .why = "the model needs code of its checkpoint; tried without",
           .effect = MissEffect::kNoModel},
          {.types = {"gemma3"},
           .why = "its loader stops at FP8 weights below language_model",
           .effect = MissEffect::kRefused,
           .methods = {"compressed-tensors"},
           .needs_weights = true},
          {.types = {"falcon", "gpt2", "gpt_neox"},
           .why = "gives the cache of this attention class no scales, and drops those of the file",
           .effect = MissEffect::kSixteenBits,
           .methods = {"compressed-tensors"}},
          {.types = {"deepseek_v2", "deepseek_v3", "glm4_moe", "jamba", "mixtral", "nemotron_h",
                     "olmoe", "phimoe", "qwen2_moe", "qwen3_moe", "qwen3_next"},
           .why = "its loader of experts fails on empty config_groups (IndexError)",
           .effect = MissEffect::kRefusedWithoutGroups,
           .methods = {"compressed-tensors"}}};
}

}  // namespace

/// Source: transformers 5.17 with compressed-tensors 0.19, run (tests/fixtures/engines).
EngineRules transformers_engine() {
  Names names =
      joined({{".k_scale", kKey}, {".v_scale", kValue}, {".q_scale", kTaken}}, kZeroPoints);
  return {.title = "transformers",
          .versions = {"5.17", "5.23"},
          .source = "run",
          .unknown = Unknown::kDroppedWithWarning,
          .unplaced = Unknown::kDroppedWithWarning,
          .command = "AutoModelForCausalLM.from_pretrained",
          .format = "compressed-tensors",
          .methods = {{.method = "compressed-tensors",
                       .cache = CacheSwitch::kScheme,
                       .names = names,
                       .absent = Absent::kUndefined,
                       .scheme = {{"strategy", {"\"tensor\"", "\"attn_head\""}}},
                       .refuses_other_schemes = true,
                       .takes_heads = true,
                       .takes_any_shape = true,
                       .rounds_to_model = true,
                       .needs_scheme = true,
                       .takes_dynamic = true},
                      {.method = "quark", .refusal = "it needs the package amd-quark"}},
          .otherwise = {.method = "*"},
          .tried = kTypesRun,
          .misses = transformers_misses(),
          .formats = {{.format = "compressed-tensors",
                       .method = "compressed-tensors",
                       .names = kPlainScales,
                       .note = "per tensor and per head"}}};
}

}  // namespace kvcal
