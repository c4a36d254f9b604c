#include "family/architecture.h"

namespace kvcal {

// One row per family: families/<name>.cc defines <name>_architecture().
#define KVCAL_FAMILIES(ROW) \
  ROW(afmoe)                \
  ROW(apertus)              \
  ROW(arcee)                \
  ROW(aria)                 \
  ROW(bamba)                \
  ROW(biogpt)               \
  ROW(codegen)              \
  ROW(cohere)               \
  ROW(cohere2)              \
  ROW(cohere2_moe)          \
  ROW(cohere_compass)       \
  ROW(cwm)                  \
  ROW(dbrx)                 \
  ROW(deepseek_ocr2)        \
  ROW(deepseek_v2)          \
  ROW(deepseek_v3)          \
  ROW(deepseek_v32)         \
  ROW(dots1)                \
  ROW(emu3)                 \
  ROW(ernie4_5)             \
  ROW(ernie4_5_moe)         \
  ROW(exaone)               \
  ROW(exaone4)              \
  ROW(exaone_moe)           \
  ROW(falcon)               \
  ROW(falcon_h1)            \
  ROW(flex_olmo)            \
  ROW(flint)                \
  ROW(gemma)                \
  ROW(gemma2)               \
  ROW(gemma3)               \
  ROW(gemma3n)              \
  ROW(gemma4)               \
  ROW(gemma4_unified)       \
  ROW(glm)                  \
  ROW(glm4)                 \
  ROW(glm4_moe)             \
  ROW(glm4_moe_lite)        \
  ROW(glm4v)                \
  ROW(glm4v_moe)            \
  ROW(glm_moe_dsa)          \
  ROW(glm_ocr)              \
  ROW(gpt2)                 \
  ROW(gpt_bigcode)          \
  ROW(gpt_neo)              \
  ROW(gpt_neox)             \
  ROW(gpt_oss)              \
  ROW(gptj)                 \
  ROW(granite)              \
  ROW(granite4_vision)      \
  ROW(granite_docling)      \
  ROW(granite_swa)          \
  ROW(granitemoe)           \
  ROW(granitemoe_swa)       \
  ROW(granitemoehybrid)     \
  ROW(granitemoeshared)     \
  ROW(helium)               \
  ROW(hunyuan_v1_dense)     \
  ROW(hunyuan_v1_moe)       \
  ROW(hunyuan_vl)           \
  ROW(hy_v3)                \
  ROW(hyperclovax)          \
  ROW(internlm2)            \
  ROW(internlm3)            \
  ROW(iquestcoder)          \
  ROW(jais2)                \
  ROW(jamba)                \
  ROW(laguna)               \
  ROW(lfm2)                 \
  ROW(lfm2_moe)             \
  ROW(llama)                \
  ROW(llama4)               \
  ROW(mellum)               \
  ROW(mimo_v2_flash)        \
  ROW(minicpm3)             \
  ROW(minimax_m2)           \
  ROW(ministral)            \
  ROW(ministral3)           \
  ROW(mistral)              \
  ROW(mistral4)             \
  ROW(mixtral)              \
  ROW(mllama)               \
  ROW(nanochat)             \
  ROW(nemotron)             \
  ROW(nemotron_h)           \
  ROW(olmo)                 \
  ROW(olmo2)                \
  ROW(olmo3)                \
  ROW(olmo_hybrid)          \
  ROW(olmoe)                \
  ROW(opt)                  \
  ROW(paddleocr_vl)         \
  ROW(persimmon)            \
  ROW(phi)                  \
  ROW(phi3)                 \
  ROW(phimoe)               \
  ROW(qwen2)                \
  ROW(qwen2_5_omni)         \
  ROW(qwen2_5_vl)           \
  ROW(qwen2_moe)            \
  ROW(qwen2_vl)             \
  ROW(qwen3)                \
  ROW(qwen3_5)              \
  ROW(qwen3_5_moe)          \
  ROW(qwen3_moe)            \
  ROW(qwen3_next)           \
  ROW(qwen3_omni_moe)       \
  ROW(qwen3_vl)             \
  ROW(qwen3_vl_moe)         \
  ROW(seed_oss)             \
  ROW(smollm3)              \
  ROW(solar_open)           \
  ROW(stablelm)             \
  ROW(starcoder2)           \
  ROW(vaultgemma)           \
  ROW(xglm)                 \
  ROW(youtu)

#define KVCAL_DECLARE(name) Architecture name##_architecture();
KVCAL_FAMILIES(KVCAL_DECLARE)

const std::vector<Architecture>& architectures() {
#define KVCAL_ENTRY(name) name##_architecture(),
  static const std::vector<Architecture> kTable{KVCAL_FAMILIES(KVCAL_ENTRY)};
  return kTable;
}

}  // namespace kvcal
