#include "engines/engine_rules.h"

namespace kvcal {
namespace {

constexpr std::string_view kNoRewrite = "LMDeploy 0.18's PyTorch engine does not run the model";

/// Source: LMDeploy 0.18.0, pytorch/models/patch.py, run.
std::vector<Miss> lmdeploy_misses() {
  return {{.types = {"afmoe",
                     "arcee",
                     "bamba",
                     "biogpt",
                     "codegen",
                     "cohere",
                     "cohere2",
                     "cwm",
                     "dots1",
                     "ernie4_5",
                     "ernie4_5_moe",
                     "exaone",
                     "exaone4",
                     "exaone_moe",
                     "falcon",
                     "flex_olmo",
                     "glm",
                     "gpt2",
                     "gpt_bigcode",
                     "gpt_neo",
                     "gpt_neox",
                     "gptj",
                     "granite",
                     "granite_swa",
                     "granitemoe",
                     "granitemoe_swa",
                     "granitemoehybrid",
                     "granitemoeshared",
                     "helium",
                     "hyperclovax",
                     "iquestcoder",
                     "jais2",
                     "jamba",
                     "llama4_text",
                     "mellum",
                     "minimax_m2",
                     "ministral",
                     "ministral3",
                     "mistral4",
                     "nanochat",
                     "nemotron",
                     "nemotron_h",
                     "olmo",
                     "olmo2",
                     "olmo3",
                     "olmoe",
                     "opt",
                     "phi",
                     "phimoe",
                     "qwen3_5_text",
                     "seed_oss",
                     "smollm3",
                     "solar_open",
                     "stablelm",
                     "starcoder2",
                     "vaultgemma",
                     "xglm",
                     "youtu"},
           .why = kNoRewrite,
           .effect = MissEffect::kNoModel},
          {.types = wrappers_run_but({}), .why = kNoRewrite, .effect = MissEffect::kNoModel}};
}

/// Source: LMDeploy 0.18.0, pytorch/config.py, `_parse_compressed_tensors_config`, and
/// pytorch/nn/linear; run (tests/fixtures/engines/packed_lmdeploy.json).
MethodRules lmdeploy_compressed_tensors() {
  return {.method = "compressed-tensors",
          .config = {{.key = "format", .accepted = {"\"pack-quantized\""}},
                     {.key = "quantization_status", .accepted = {"\"compressed\""}},
                     {.key = "config_groups", .accepted = {"group_0 alone"}},
                     {.key = "config_groups.group_0.targets", .accepted = {"[\"Linear\"]"}},
                     {.key = "config_groups.group_0.input_activations",
                      .accepted = {"null"},
                      .may_lack = true},
                     {.key = "config_groups.group_0.output_activations",
                      .accepted = {"null"},
                      .may_lack = true},
                     {.key = "config_groups.group_0.weights", .accepted = {"an object"}},
                     {.key = "config_groups.group_0.weights.num_bits", .accepted = {"4"}},
                     {.key = "config_groups.group_0.weights.group_size", .accepted = {"32"}},
                     {.key = "config_groups.group_0.weights.strategy", .accepted = {"\"group\""}},
                     {.key = "config_groups.group_0.weights.symmetric", .accepted = {"true"}},
                     {.key = "config_groups.group_0.weights.dynamic", .accepted = {"false"}},
                     {.key = "config_groups.group_0.weights.type", .accepted = {"\"int\""}},
                     {.key = "ignore", .accepted = {"a list of texts"}, .may_lack = true}},
          .packs_experts_alone = true};
}

ModelTypes lmdeploy_tried() {
  // Their convolution and attention of chosen tokens need kernels that were not there; the others
  // ask config.json for keys that the fixtures do not have.
  return with_wrappers_but(
      {}, types_run_but({"qwen3_next", "deepseek_v32", "glm_moe_dsa", "glm4v", "kimi_k25"}));
}

/// Tried (tests/fixtures/engines/drafts_lmdeploy.json), without scales of the model, at which it
/// stops, too.
std::vector<DraftReading> lmdeploy_drafts() {
  return {
      {.types = {"deepseek_v3", "glm4_moe", "qwen3_5"},
       .method = "",
       .refused = {".{}_scale", ".{}_proj.{}_scale", ".attn.{}_scale", ".mla_attn.{}_scale",
                   ".mla_attn.mla_attn.{}_scale", ".qkv_proj.{}_scale", ".{}_proj.output_scale"}}};
}

}  // namespace

/// Its PyTorch engine, which holds scales of K and V, and whose loaders know no name of them.
EngineRules lmdeploy_engine() {
  return {.title = "LMDeploy",
          .versions = {"0.18.0"},
          .source = "pytorch/config.py, pytorch/models/*.py; run",
          .unknown = Unknown::kRefused,
          .unplaced = Unknown::kRefused,
          .command = "lmdeploy serve api_server",
          .fp8_argument = "--quant-policy fp8",
          .methods = {lmdeploy_compressed_tensors(),
                      {.method = "modelopt*", .refusal = "it does not know ModelOpt"},
                      {.method = "quark", .refusal = "it does not know Quark"}},
          .otherwise = {.method = "*"},
          .tried = lmdeploy_tried(),
          .misses = lmdeploy_misses(),
          .formats = {{.format = "compressed-tensors",
                       .method = "compressed-tensors",
                       .otherwise = Reads::kNo,
                       .note = "of compressed-tensors it takes packed INT4 experts alone, and its "
                               "loaders stop at the names of KV scales (KeyError)"},
                      {.format = "fp8",
                       .method = "fp8",
                       .otherwise = Reads::kNo,
                       .note = "its loaders stop at the names of KV scales (KeyError)"},
                      {.format = "tgi",
                       .otherwise = Reads::kNo,
                       .note = "its loaders stop at the name kv_scale (KeyError)"}},
          .drafts = lmdeploy_drafts()};
}

}  // namespace kvcal
