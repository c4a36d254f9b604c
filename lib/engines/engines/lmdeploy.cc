#include "engines/engine_rules.h"

namespace kvcal {
namespace {

constexpr std::string_view kNoRewrite = "LMDeploy 0.18's PyTorch engine does not run the model";

/// Source: LMDeploy 0.18.0, pytorch/models/patch.py, run.
std::vector<Miss> lmdeploy_misses() {
  return {
      {.types = {"bamba", "cohere",    "cohere2",    "exaone",     "exaone4",    "falcon",
                 "glm",   "gpt2",      "gpt_neox",   "granite",    "granitemoe", "granitemoehybrid",
                 "jamba", "ministral", "ministral3", "nemotron_h", "olmo2",      "olmo3",
                 "olmoe", "phi",       "phimoe",     "smollm3",    "stablelm",   "starcoder2"},
       .why = kNoRewrite,
       .effect = MissEffect::kNoModel}};
}

ModelTypes lmdeploy_tried() {
  ModelTypes types = kTypesRun;
  // Its convolution needs a kernel that was not there.
  std::erase(types, "qwen3_next");
  return types;
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
