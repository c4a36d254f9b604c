#include "stored/quark_names.h"

#include "core/text.h"

namespace kvcal {
namespace {

/// Model types for which vLLM 0.33, Aphrodite 0.24.1 or SGLang 0.5.23 stop at Quark's own names,
/// and hold the plain names beside the same configuration (docs/verify.md). Between spaces.
constexpr std::string_view kPlainlyNamed =
    "apertus arcee aria_text aya_vision biogpt bitnet cohere cohere2 cohere_compass "
    "cohere_compass_text cwm deepseek_ocr2 deepseek_vl deepseek_vl_hybrid dots1 emu3 exaone4 "
    "exaone_moe falcon_h1 fast_vlm flex_olmo gemma2 gemma3_text gemma3n gemma3n_text "
    "gemma4_unified_text glm glm46v glmga got_ocr2 helium hunyuan_v1_dense hunyuan_v1_moe "
    "hunyuan_vl hyperclovax hyperclovax_vision_v2 idefics2 jais2 janus lighton_ocr mellum "
    "minicpmv4_6 minicpmv4_7 minimax_m2 ministral nanochat nemotron nemotron_h ovis2 "
    "perception_lm phimoe qwen3_5 qwen3_5_moe qwen3_5_text seed_oss smollm3 solar_open "
    "stablelm vaultgemma video_llama_3 video_llava vipllava ";

/// Model types whose loaders in SGLang 0.5.23 or Aphrodite 0.24.1 know their parameters' names
/// alone, which vLLM 0.33 reads, too: self_attn.attn.k_scale (tests/fixtures/engines/names_*.json).
/// Between spaces.
constexpr std::string_view kNamedByAttention =
    "afmoe cohere2_moe ernie4_5_moe exaone gemma glm4 glm4v glm_ocr glmasr gpt2 gpt_bigcode gptj "
    "granite "
    "granite_swa "
    "granitemoe granitemoe_swa granitemoeshared internlm2 laguna mimo_v2_flash minicpm3 "
    "mixtral mllama olmo olmo2 olmo3 olmoe opt paddleocr_vl persimmon phi qwen2 qwen2_5_vl "
    "qwen2_audio qwen2_moe qwen2_vl qwen3_next qwen4_exp starcoder2 ";

}  // namespace

const KvScaleNames& quark_names_of_type(std::string_view model_type, bool has_weights) {
  // No engine runs these with either, and they keep Quark's own.
  const bool is_refused = (model_type == "qwen3_next" || model_type == "qwen4_exp") && has_weights;
  if (is_refused) return kv_scale_format("output scales");
  if (has_word(kNamedByAttention, model_type)) return kv_scale_format("attention scales");
  return kv_scale_format(has_word(kPlainlyNamed, model_type) ? "compressed-tensors"
                                                             : "output scales");
}

const KvScaleNames& quark_names(const Json& config, bool has_weights) {
  const std::string type = required_string(config, "model_type");
  // As above.
  const Json norm = config.value("qk_layernorm", Json());
  const bool is_refused = type == "stablelm" && !norm.is_null() && norm != false;
  return is_refused ? kv_scale_format("output scales") : quark_names_of_type(type, has_weights);
}

}  // namespace kvcal
