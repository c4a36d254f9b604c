#include "engines/engines.h"

#include <algorithm>

namespace kvcal {

std::string_view name_of(Reads reads) {
  switch (reads) {
    case Reads::kYes:
      return "yes";
    case Reads::kNo:
      return "no";
    case Reads::kNotKnown:
      return "not known";
  }
  return "";
}

namespace {

using Types = std::vector<std::string_view>;

/// Types whose fixtures vLLM 0.32 loads with every scale in its place, built by its own classes or
/// by its transformers backend; tests/reference/vllm_scale_loading.py finds them.
const Types kVllmReads{"cohere",     "cohere2",    "exaone4",    "falcon",
                       "gemma",      "gemma2",     "gemma3",     "gemma3_text",
                       "glm",        "glm4",       "glm4_moe",   "gpt_neox",
                       "gpt_oss",    "granite",    "granitemoe", "granitemoehybrid",
                       "llama",      "ministral",  "ministral3", "mistral",
                       "mixtral",    "nemotron_h", "olmo2",      "olmo3",
                       "olmoe",      "phi",        "phi3",       "phimoe",
                       "qwen2",      "qwen2_moe",  "qwen3",      "qwen3_moe",
                       "qwen3_next", "smollm3",    "stablelm",   "starcoder2"};

/// Types whose fixtures transformers 5.17 loads so; tests/reference/transformers_scale_loading.py.
const Types kTransformersReads{"bamba",      "cohere",
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

/// Source: vLLM 0.32, whose `CompressedTensorsConfig` and `Fp8Config` give MLAAttention no KV cache
/// method; of ModelOpt checkpoints, which get one, no name reaches it (tried).
constexpr std::string_view kLatent =
    "vLLM 0.32 drops the scales of a latent (MLA) cache and uses 1.0";
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

const std::vector<Miss> kVllmMisses{
    {"deepseek_v2", kLatent},
    {"deepseek_v3", kLatent},
    {"gpt2", "its loader stops at the name h.0.attn.k_scale", MissEffect::kRefused},
    {"jamba",
     "its loader takes self_attn out of the name of the "
     "scales and stops at layers.1.k_scale",
     MissEffect::kRefused}};

/// Source: SGLang 0.5.23, the model files that define load_kv_cache_scales.
const Types kSglangJsonReads{"apertus", "arcee", "exaone4", "glm4",  "llama",
                             "mimo",    "opt",   "qwen2",   "qwen3", "solar"};

EngineVerdict verdict_of(const EngineFormat& row, std::string_view model_type) {
  EngineVerdict verdict{.engine = row.engine,
                        .version = row.version,
                        .format = row.format,
                        .reads = Reads::kNotKnown,
                        .note = {}};
  const bool reads = std::ranges::find(row.reads, model_type) != row.reads.end();
  const Miss* miss = find_miss(row, model_type);
  if (!miss && !reads) miss = find_miss(row, "*");
  verdict.reads = miss ? Reads::kNo : reads ? Reads::kYes : Reads::kNotKnown;
  verdict.note = miss ? miss->why : row.note;
  return verdict;
}

}  // namespace

const Miss* find_miss(const EngineFormat& row, std::string_view model_type) {
  const auto it = std::ranges::find(row.misses, model_type, &Miss::model_type);
  return it == row.misses.end() ? nullptr : &*it;
}

const std::vector<EngineFormat>& engine_formats() {
  static const std::vector<EngineFormat> kTable{
      {.engine = "vLLM",
       .version = "0.32",
       .format = "compressed-tensors",
       .reads = kVllmReads,
       .misses = kVllmMisses,
       .note = "per tensor and per head"},
      // Source: vLLM 0.32, Fp8Config: the same names, for every Attention and no MLAAttention.
      {.engine = "vLLM",
       .version = "0.32",
       .format = "fp8",
       .reads = kVllmReads,
       .misses = kVllmMisses,
       .note = "needs --kv-cache-dtype fp8; per tensor"},
      // Tried: without a quantization_config its loader stops at self_attn.kv_scale.
      {.engine = "vLLM",
       .version = "0.32",
       .format = "tgi",
       .reads = {},
       .misses = {{"*", "its loader stops at the name kv_scale"}},
       .note = ""},
      {.engine = "vLLM",
       .version = "0.32",
       .format = "scales-json",
       .reads = {},
       .misses = {{"*", "removed in 2025-01"}},
       .note = ""},
      {.engine = "SGLang",
       .version = "2026-08",
       .format = "compressed-tensors",
       .reads = {},
       .misses = {},
       .note = "reads the format since 2026-08, per tensor; families were not tried"},
      {.engine = "SGLang",
       .version = "0.5.23",
       .format = "scales-json",
       .reads = kSglangJsonReads,
       .misses = {},
       .note = "--quantization-param-path with --kv-cache-dtype fp8_e4m3; some of its attention "
               "backends fail on the scales"},
      // Source: TGI, layers/attention/kv_cache.py, get_kv_scales.
      {.engine = "TGI",
       .version = "2026-01",
       .format = "tgi",
       .reads = {},
       .misses = {},
       .note = "reads kv_scale for FP8 E4M3 caches on CUDA; families were not tried"},
      {.engine = "TGI",
       .version = "2026-01",
       .format = "compressed-tensors",
       .reads = {},
       .misses = {},
       .note = "reads k_scale and v_scale of one element; families were not tried"},
      // Source: Aphrodite 0.6.5, llama.py, load_kv_cache_scales.
      {.engine = "Aphrodite",
       .version = "0.6",
       .format = "scales-json",
       .reads = {"llama"},
       .misses = {},
       .note = "--quantization-param-path; removed in later versions"},
      // Source: TensorRT-LLM, quant_config_utils.py.
      {.engine = "TensorRT-LLM",
       .version = "2026-08",
       .format = "compressed-tensors",
       .reads = {},
       .misses = {{"*", "refuses empty config_groups; it reads ModelOpt checkpoints"}},
       .note = ""},
      {.engine = "transformers",
       .version = "5.17",
       .format = "compressed-tensors",
       .reads = kTransformersReads,
       .misses = kTransformersMisses,
       .note = "per tensor and per head"},
  };
  return kTable;
}

std::vector<EngineVerdict> engine_verdicts(std::string_view model_type) {
  std::vector<EngineVerdict> verdicts;
  for (const EngineFormat& row : engine_formats()) verdicts.push_back(verdict_of(row, model_type));
  return verdicts;
}

}  // namespace kvcal
