#include "engines/engines/vllm_rules.h"

namespace kvcal {

using enum ScaleSide;

namespace {

/// Source: vLLM 0.32, `CompressedTensorsKVCacheMethod.validate_kv_cache_scheme`.
const std::vector<KeyCheck> kVllmScheme{
    {.key = "type", .accepted = {"\"float\""}},
    {.key = "num_bits", .accepted = {"8"}},
    {.key = "strategy", .accepted = {"\"tensor\"", "\"attn_head\""}},
    {.key = "symmetric", .accepted = {"true"}}};

}  // namespace

Names joined(Names names, const Names& more) {
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

// Source: vLLM 0.32, `QuantizationConfig.get_cache_scale_mapper` and `maybe_remap_kv_scale_name`.
Names vllm_names() {
  return {{".k_scale", kKey},
          {".v_scale", kValue},
          {".q_scale", kTaken},
          {".kv_scale", kKey},
          {".attn.k_scale", kKey},
          {".attn.v_scale", kValue},
          {".attn.q_scale", kTaken},
          {".k_proj.k_scale", kKey, true},
          {".v_proj.v_scale", kValue, true},
          {".v_proj.k_scale", kKey, true},
          {".k_proj.v_scale", kValue, true},
          {".qkv_proj.k_scale", kKey, true},
          {".qkv_proj.v_scale", kValue, true},
          {".qkqkv_proj.k_scale", kKey, true},
          {".qkqkv_proj.v_scale", kValue, true},
          {".k_cache.scale", kKey, true},
          {".v_cache.scale", kValue, true},
          {".q.scale", kTaken, true}};
}

const Names kZeroPoints{
    {".k_zero_point", kTaken}, {".v_zero_point", kTaken}, {".q_zero_point", kTaken}};

// Source: vLLM 0.32, `Fp8Config` and `QuarkConfig`, `get_cache_scale_mapper`.
const Names kOutputScales{{".k_proj.output_scale", kKey},
                          {".v_proj.output_scale", kValue},
                          {".q_proj.output_scale", kTaken},
                          {".prob_output_scale", kTaken}};

MethodRules vllm_compressed_tensors() {
  return {
      .method = "compressed-tensors",
      .cache = CacheSwitch::kScheme,
      .names = joined(vllm_names(), kZeroPoints),
      .config =
          {{.key = "config_groups", .accepted = {"an object"}, .may_lack = true},
           {.key = "config_groups.*", .accepted = {"a group with weights", "a group of attention"}},
           kNoColumnOrder,
           // Other widths need a package of kernels that vLLM does not install.
           {.key = "config_groups.*.weights.num_bits", .accepted = {"4", "8"}, .may_lack = true},
           {.key = "ignore",
            .accepted = {"a list of patterns", "a text", "an object"},
            .may_lack = true}},
      .scheme = kVllmScheme,
      .refuses_other_schemes = true,
      .takes_heads = true,
      .cuts_heads = true,
      .takes_e5m2 = false};
}

MethodRules vllm_base(std::string_view method, Names names) {
  return {.method = method,
          .names = std::move(names),
          .absent = Absent::kDuplicateKey,
          .warns_of_ones = true,
          .doubles_on_rocm = true,
          .rounds_to_model = true,
          .ones_for_16_bits = true,
          .takes_e5m2 = false};
}

MethodRules vllm_modelopt() {
  MethodRules rules = vllm_base("modelopt*", vllm_names());
  rules.cache = CacheSwitch::kModelOptCache;
  rules.fp8_name = "fp8_e4m3";
  rules.takes_nvfp4 = true;
  // Source: vLLM 0.32, `ModelOptQuantConfigBase.from_config`, LINEAR_ALGOS.
  rules.config = {{.key = "quant_algo",
                   .accepted = {"\"FP8\"", "\"FP8_PER_CHANNEL_PER_TOKEN\"", "\"FP8_PB_WO\"",
                                "\"NVFP4\"", "\"W4A16_NVFP4\"", "\"MXFP8\""},
                   .ignores_case = true,
                   .waived_by = "quantized_layers"},
                  {.key = "exclude_modules", .accepted = {"a list"}, .may_lack = true},
                  {.key = "ignore", .accepted = {"a list"}, .may_lack = true}};
  return rules;
}

MethodRules vllm_quark() {
  MethodRules rules = vllm_base("quark", joined(vllm_names(), kOutputScales));
  rules.config = {{.key = "export", .accepted = {"an object"}},
                  {.key = "export.kv_cache_group", .accepted = {"a list"}, .may_lack = true}};
  return rules;
}

MethodRules vllm_fp8() {
  MethodRules rules = vllm_base("fp8", joined(vllm_names(), kOutputScales));
  rules.config = {kActivationScheme};
  return rules;
}

/// Source: vLLM 0.32, `ModelArchConfigConvertorBase._normalize_quantization_config`,
/// `ModelConfig._verify_quantization` and QUANTIZATION_METHODS without the deprecated ones.
ConfigReading vllm_reading() {
  return {.quant_file = QuantFile::kWithoutConfig,
          .refuses_auto_type = true,
          .refuses_bare_text_config = true,
          .needs_producer = true,
          .algorithms = {{"FP8", "modelopt"},
                         {"FP8_PER_CHANNEL_PER_TOKEN", "modelopt"},
                         {"FP8_PB_WO", "modelopt"},
                         {"NVFP4", "modelopt_fp4"}},
          .refuses_other_algorithms = true,
          .aliases = {{"compressed_tensors", "compressed-tensors"}},
          .other_methods = {"awq",
                            "auto_awq",
                            "auto_gptq",
                            "gptq",
                            "gptq_marlin",
                            "awq_marlin",
                            "humming",
                            "experts_int8",
                            "moe_wna16",
                            "torchao",
                            "inc",
                            "mxfp4",
                            "gpt_oss_mxfp4",
                            "deepseek_v4_fp8",
                            "online",
                            "fp8_per_tensor",
                            "fp8_per_block",
                            "fp8_per_channel",
                            "int8_per_channel_weight_only",
                            "nvfp4_per_token",
                            "mxfp8"}};
}

FileRules vllm_files() {
  return {.counts_digits = true, .prefers = "consolidated"};
}

RunDtype vllm_run_dtype() {
  return {.takes_float32 = false,
          .refuse_float16 = {"gemma2", "gemma3", "gemma3_text", "glm4"},
          .widest = true};
}

ModelTypes vllm_tried() {
  // Of one the published config.json has keys that the fixture has not.
  return with_wrappers_but({"qianfan_ocr"}, types_run_but({}));
}

namespace {

/// Source: vLLM 0.32, whose `CompressedTensorsConfig` and `Fp8Config` give MLAAttention no KV cache
/// method; of ModelOpt checkpoints, which get one, no name reaches it (tried).
const ModelTypes kLatentTypes{"deepseek_v2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite",
                              "glm_moe_dsa", "kimi_k2",     "kimi_k25"};
/// Source: vLLM 0.32, models/utils.py:467 renames .k_proj before quark.py:955 sees the suffix.
const ModelTypes kRenamesProjections{"afmoe",
                                     "apertus",
                                     "arcee",
                                     "biogpt",
                                     "cohere",
                                     "cohere2",
                                     "cohere2_moe",
                                     "cwm",
                                     "dots1",
                                     "exaone",
                                     "exaone4",
                                     "exaone_moe",
                                     "falcon_h1",
                                     "flex_olmo",
                                     "gemma",
                                     "gemma2",
                                     "gemma3_text",
                                     "glm",
                                     "gptj",
                                     "helium",
                                     "hunyuan_v1_dense",
                                     "hunyuan_v1_moe",
                                     "hyperclovax",
                                     "jais2",
                                     "mellum",
                                     "ministral",
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
                                     "qwen2_moe",
                                     "seed_oss",
                                     "smollm3",
                                     "solar_open",
                                     "stablelm",
                                     "starcoder2",
                                     "vaultgemma"};
constexpr std::string_view kStopsAtOtherNames =
    "its loader stops at the tensor names of other multimodal models";
constexpr std::string_view kStopsAtWeights = "its loader stops at the scales of FP8 weights";
constexpr std::string_view kLatent = "it drops the scales of a latent (MLA) cache and uses 1.0";

std::vector<Miss> vllm_misses() {
  using enum MissEffect;
  return {
      {.types = {"bamba", "codegen", "flint", "gpt_neo", "xglm"},
       .why = "it does not run the model",
       .effect = kNoModel},
      {.types = {"dbrx"},
       .why = "its loader does not find the parameters of its own experts (KeyError)",
       .effect = kNoModel},
      {.types = {"instructblipvideo"},
       .why = "its Transformers backend runs no processor of videos alone",
       .effect = kNoModel},
      {.types = {"olmo_hybrid"},
       .why = "its loader stops at the names of the norms before delta nets",
       .effect = kNoModel},
      {.types = {"stablelm"},
       .why = "its model file does not know the normalization of each head (qk_layernorm)",
       .effect = kNoModel,
       .settings = {{.key = "qk_layernorm"}}},
      // Run with llama and ministral3, and with mistral3, whose loader renames them
      // (mistral3.py:435).
      {.types = {"llama", "ministral3", "mistral"},
       .why = "its loader stops at activation_scale, a name that it knows in mistral3 alone",
       .effect = kNoModel,
       .methods = {"fp8"},
       .names = {".activation_scale"}},
      {.types = {"kimi_k25", "llama4"},
       .why = kStopsAtOtherNames,
       .effect = kRefused,
       .names = {"model.language_model."}},
      // In its Transformers backend, which has a place for scales of ModelOpt checkpoints.
      {.types = {"mistral4", "youtu"},
       .why = kLatent,
       .effect = kOnesWhenAsked,
       .methods = {"compressed-tensors", "fp8", "quark"},
       .format = "modelopt"},
      {.types = {"deepseek_v32", "glm_moe_dsa"},
       .why = "its loader stops at the scales of FP8 weights of the indexer (KeyError)",
       .effect = kRefused,
       .needs_weights = true},
      {.types = kLatentTypes, .why = kLatent, .methods = {"modelopt*"}},
      {.types = kLatentTypes, .why = kLatent, .effect = kOnesWhenAsked},
      {.types = {"gpt_bigcode", "gptj"},
       .why = "its loader stops at scales below k_proj of modules not named self_attn",
       .effect = kRefused,
       .methods = {"modelopt*"},
       .names = {"_proj.k_scale", "_proj.v_scale"}},
      // Source: vLLM 0.32, base_config.py:246, whose pattern leaves names below .attn as they are.
      {.types = {"gpt_bigcode", "gptj"},
       .why = "it takes attn.k_scale for a name of its own, where its attention is attn.attn, and "
              "drops it without a word",
       .names = kPlainScales},
      {.types = {"gpt_oss"},
       .effect = kByRules,
       .methods = {"quark"},
       .settings = {{.key = "quantization_config.global_quant_config.weight.dtype",
                     .value = "\"fp4\""}}},
      {.types = {"gpt_oss"},
       .why = "its loader stops at the biases of MXFP4 experts (KeyError)",
       .effect = kRefused,
       .methods = {"compressed-tensors"},
       .settings = {{.key = "quantization_config.format", .value = "\"mxfp4-pack-quantized\""}},
       .needs_weights = true},
      {.types = {"gpt_oss", "qwen2_moe", "qwen3_5_moe", "qwen3_next"},
       .why = kStopsAtWeights,
       .effect = kRefused,
       .needs_weights = true},
      {.types = {"falcon", "gpt_oss", "hy_v3", "mimo_v2_flash"},
       .effect = kByRules,
       .methods = {"compressed-tensors"}},
      {.types = {"gpt_oss", "hy_v3", "mimo_v2_flash"},
       .why = "its loader drops kv_scale",
       .names = {".kv_scale"}},
      {.types = {"falcon"},
       .why = "its loader stops at the name kv_scale",
       .effect = kRefused,
       .names = {".kv_scale"}},
      {.types = {"falcon"},
       .why = "its model file makes attention without the cache's configuration, so the cache "
              "keeps 16 bits",
       .effect = kSixteenBits},
      {.types = {"gpt2"},
       .why = "its loader stops at the name h.0.attn.k_scale",
       .effect = kRefused,
       .names = kPlainScales},
      {.types = {"lfm2", "lfm2_moe", "lfm2_vl"},
       .why = "its loader stops at the names of KV scales",
       .effect = kRefused},
      {.types = {"jamba"},
       .why = "its loader takes self_attn out of the name of the scales and stops at "
              "layers.1.k_scale",
       .effect = kRefused},
      {.types = kRenamesProjections,
       .why = kStopsAtOutputScale,
       .effect = kRefused,
       .methods = {"quark"},
       .names = {"_proj.output_scale"}},
  };
}

}  // namespace

std::vector<EngineFormat> vllm_formats() {
  return {
      {.format = "compressed-tensors",
       .method = "compressed-tensors",
       .names = kPlainScales,
       .note = "per tensor and per head"},
      // Source: vLLM 0.32, Fp8Config: the same names, for every Attention and no
      // MLAAttention.
      {.format = "fp8",
       .method = "fp8",
       .names = kPlainScales,
       .note = "needs --kv-cache-dtype fp8; per tensor"},
      {.format = "modelopt",
       .method = "modelopt",
       .names = {".k_proj.k_scale", ".v_proj.v_scale"},
       .note = "per tensor"},
      {.format = "quark",
       .method = "quark",
       .names = {".k_proj.output_scale", ".v_proj.output_scale"},
       .note = "needs --kv-cache-dtype fp8; per tensor"},
      // Tried: without a quantization_config its loader stops at self_attn.kv_scale.
      {.format = "tgi", .otherwise = Reads::kNo, .note = "its loader stops at the name kv_scale"},
      {.format = "scales-json", .otherwise = Reads::kNo, .note = "removed in 2025-01"}};
}

std::vector<DraftReading> vllm_drafts() {
  return {
      {.types = {"glm4_moe"},
       .method = "compressed-tensors",
       .loaded = {".attn.{}_scale"},
       .refused = {".{}_scale", ".{}_proj.{}_scale", ".mla_attn.{}_scale",
                   ".mla_attn.mla_attn.{}_scale", ".qkv_proj.{}_scale", ".{}_proj.output_scale"}},
      {.types = {"deepseek_v3"},
       .method = "compressed-tensors",
       .dropped = {".{}_scale", ".{}_proj.{}_scale", ".attn.{}_scale", ".mla_attn.{}_scale",
                   ".mla_attn.mla_attn.{}_scale", ".qkv_proj.{}_scale"},
       .refused = {".{}_proj.output_scale"}},
      {.types = {"qwen3_5"},
       .method = "compressed-tensors",
       .loaded = {".{}_scale", ".{}_proj.{}_scale", ".attn.{}_scale", ".qkv_proj.{}_scale"},
       .refused = {".mla_attn.{}_scale", ".mla_attn.mla_attn.{}_scale", ".{}_proj.output_scale"}}};
}

namespace {

std::vector<Miss> vllm_wrapper_misses() {
  using enum MissEffect;
  return {{.types = {"granite_docling", "minicpm_ocr"},
           .why = "the versions of transformers that it allows do not know the model",
           .effect = kNoModel},
          {.types = {"pp_chart2table"},
           .why = "transformers has no AutoModel of it for its Transformers backend",
           .effect = kNoModel},
          {.types = {"instructblip"},
           .why = "its Transformers backend does not find the tensors of the model",
           .effect = kNoModel},
          {.types = {"blip-2"},
           .why = kStopsAtOtherNames,
           .effect = kRefused,
           .names = {"model.language_model."}},
          {.types = {"aria"}, .why = kStopsAtWeights, .effect = kRefused, .needs_weights = true},
          {.types = {"aria_text",
                     "aya_vision",
                     "cohere_compass_text",
                     "deepseek_ocr2",
                     "deepseek_vl",
                     "deepseek_vl_hybrid",
                     "emu3",
                     "fast_vlm",
                     "gemma4_unified_text",
                     "glm46v",
                     "glmga",
                     "got_ocr2",
                     "hunyuan_vl",
                     "hyperclovax_vision_v2",
                     "idefics2",
                     "janus",
                     "lighton_ocr",
                     "minicpmv4_6",
                     "minicpmv4_7",
                     "mllama",
                     "ovis2",
                     "perception_lm",
                     "video_llama_3",
                     "video_llava",
                     "vipllava"},
           .why = kStopsAtOutputScale,
           .effect = kRefused,
           .methods = {"quark"},
           .names = {"_proj.output_scale"}}};
}

const Miss kAsksForTopK{.types = {"aria_text"},
                        .why =
                            "its Transformers backend asks config.json for "
                            "num_experts_per_tok, which aria_text calls moe_topk "
                            "(AssertionError)",
                        .effect = MissEffect::kNoModel};

}  // namespace

std::vector<Miss> vllm_all_misses() {
  std::vector<Miss> misses = vllm_misses();
  const std::vector<Miss> wrappers = vllm_wrapper_misses();
  misses.insert(misses.end(), wrappers.begin(), wrappers.end());
  return misses;
}

EngineRules vllm_engine() {
  EngineRules rules = {
      .title = "vLLM",
      .versions = {"0.32", "0.33"},
      .source =
          "model_loader/weight_utils.py, layers/quantization/{kv_cache,base_config,fp8,"
          "modelopt}.py, quark/quark.py, compressed_tensors/compressed_tensors.py; run",
      .reading = vllm_reading(),
      .files = vllm_files(),
      .run_dtype = vllm_run_dtype(),
      .unknown = Unknown::kRefused,
      .unplaced = Unknown::kRefused,
      .takes_sharded_heads = true,
      .command = "vllm serve",
      .fp8_argument = "--kv-cache-dtype fp8",
      .skip_argument = kVllmSkipArgument,
      .format = "compressed-tensors",
      .methods = {vllm_compressed_tensors(), vllm_modelopt(), vllm_fp8(), vllm_quark()},
      .otherwise = {.method = "*", .warns_of_ones = false},
      .tried = vllm_tried(),
      .misses = vllm_all_misses(),
      .formats = vllm_formats(),
      .drafts = vllm_drafts()};
  EngineRules later = rules;
  later.versions = {"0.33"};
  // Its own file of this model imports a package of GPU kernels.
  std::erase(later.tried, "flint");
  for (Miss& miss : later.misses) std::erase(miss.types, "flint");
  rules.other_versions = {later};
  rules.misses.insert(rules.misses.begin(), kAsksForTopK);
  return rules;
}

}  // namespace kvcal
