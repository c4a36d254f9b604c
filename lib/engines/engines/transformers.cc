#include "engines/engines/vllm_rules.h"

namespace kvcal {

using enum ScaleSide;

namespace {

/// Types whose fixtures transformers 5.17 loads so; tests/reference/transformers_scale_loading.py.
const ModelTypes kTransformersReads{"bamba",      "cohere",
                                    "cohere2",    "exaone4",
                                    "gemma",      "gemma2",
                                    "gemma3",     "gemma3_text",
                                    "glm",        "glm4",
                                    "gpt_oss",    "granite",
                                    "granitemoe", "granitemoehybrid",
                                    "llama",      "ministral",
                                    "ministral3", "mistral",
                                    "olmo2",      "olmo3",
                                    "phi",        "phi3",
                                    "qwen2",      "qwen3",
                                    "smollm3",    "stablelm",
                                    "starcoder2"};

constexpr std::string_view kOtherAttention =
    "gives the cache of this attention class no scales, and drops those of the file";
constexpr std::string_view kExpertsNeedGroups =
    "its loader of experts fails on empty config_groups (IndexError)";
const std::vector<Miss> kTransformersMisses{
    {"falcon", kOtherAttention},
    {"gpt2", kOtherAttention},
    {"gpt_neox", kOtherAttention},
    {"deepseek_v2", kExpertsNeedGroups, MissEffect::kRefusedWithoutGroups},
    {"deepseek_v3", kExpertsNeedGroups, MissEffect::kRefusedWithoutGroups},
    {"glm4_moe", kExpertsNeedGroups, MissEffect::kRefusedWithoutGroups},
    {"jamba", kExpertsNeedGroups, MissEffect::kRefusedWithoutGroups},
    {"nemotron_h", kExpertsNeedGroups, MissEffect::kRefusedWithoutGroups},
    {"qwen3_next", kExpertsNeedGroups, MissEffect::kRefusedWithoutGroups},
    {"mixtral", kExpertsNeedGroups, MissEffect::kRefusedWithoutGroups},
    {"olmoe", kExpertsNeedGroups, MissEffect::kRefusedWithoutGroups},
    {"phimoe", kExpertsNeedGroups, MissEffect::kRefusedWithoutGroups},
    {"qwen2_moe", kExpertsNeedGroups, MissEffect::kRefusedWithoutGroups},
    {"qwen3_moe", kExpertsNeedGroups, MissEffect::kRefusedWithoutGroups},
};

}  // namespace

/// Source: transformers 5.17 with compressed-tensors 0.19, run (tests/fixtures/engines).
EngineRules transformers_engine() {
  Names names =
      joined({{".k_scale", kKey}, {".v_scale", kValue}, {".q_scale", kTaken}}, kZeroPoints);
  return {.title = "transformers",
          .version = "5.17, compressed-tensors 0.19",
          .source = "run",
          .unknown = Unknown::kDroppedWithWarning,
          .unplaced = Unknown::kDroppedWithWarning,
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
          .formats = {{.version = "5.17",
                       .format = "compressed-tensors",
                       .reads = kTransformersReads,
                       .misses = kTransformersMisses,
                       .note = "per tensor and per head"}}};
}

}  // namespace kvcal
