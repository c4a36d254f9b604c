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
           .effect = MissEffect::kNoModel}};
}

ModelTypes lmdeploy_tried() {
  // Their convolution and attention of chosen tokens need kernels that were not there; the others
  // ask config.json for keys that the fixtures do not have.
  return types_run_but({"qwen3_next", "deepseek_v32", "glm_moe_dsa", "glm4v", "kimi_k25"});
}

}  // namespace

/// Its PyTorch engine, which holds scales of K and V, and whose loaders know no name of them.
EngineRules lmdeploy_engine() {
  constexpr std::string_view kPackedOnly =
      "of compressed-tensors it takes the format pack-quantized alone";
  return {.title = "LMDeploy",
          .versions = {"0.18.0"},
          .source = "pytorch/config.py, pytorch/models/*.py; run",
          .unknown = Unknown::kRefused,
          .unplaced = Unknown::kRefused,
          .command = "lmdeploy serve api_server",
          .fp8_argument = "--quant-policy fp8",
          .methods = {{.method = "compressed-tensors", .refusal = kPackedOnly},
                      {.method = "modelopt*", .refusal = "it does not know ModelOpt"},
                      {.method = "quark", .refusal = "it does not know Quark"}},
          .otherwise = {.method = "*"},
          .tried = lmdeploy_tried(),
          .misses = lmdeploy_misses(),
          .formats = {{.format = "compressed-tensors",
                       .method = "compressed-tensors",
                       .otherwise = Reads::kNo,
                       .note = kPackedOnly},
                      {.format = "fp8",
                       .method = "fp8",
                       .otherwise = Reads::kNo,
                       .note = "its loaders stop at the names of KV scales (KeyError)"},
                      {.format = "tgi",
                       .otherwise = Reads::kNo,
                       .note = "its loaders stop at the name kv_scale (KeyError)"}}};
}

}  // namespace kvcal
