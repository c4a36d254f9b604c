#include "family/model_type_support.h"

#include <algorithm>
#include <array>

#include "family/architecture.h"
#include "family/wrapper.h"

namespace kvcal {
namespace {

/// Types that one reason refuses.
struct Refusal {
  std::string_view reason;
  std::vector<std::string_view> model_types;
};

const std::vector<Refusal>& refusals() {
  static const std::vector<Refusal> kTable{
      {"its norm behind the experts is not run", {"axk1"}},
      {"its gated norms are not run", {"axk2"}},
      {"it decodes an encoder's output",
       {"bart",
        "bigbird_pegasus",
        "blenderbot",
        "blenderbot-small",
        "canary",
        "cohere_asr",
        "dia",
        "encoder-decoder",
        "florence2",
        "fsmt",
        "led",
        "longt5",
        "m2m_100",
        "marian",
        "mbart",
        "moonshine",
        "moonshine_streaming",
        "mt5",
        "mvp",
        "nllb-moe",
        "pegasus",
        "pegasus_x",
        "pix2struct",
        "plbart",
        "pop2piano",
        "pp_formulanet",
        "prophetnet",
        "seamless_m4t",
        "seamless_m4t_v2",
        "speech-encoder-decoder",
        "speech_to_text",
        "speecht5",
        "switch_transformers",
        "t5",
        "t5gemma",
        "t5gemma2",
        "trocr",
        "udop",
        "umt5",
        "vision-encoder-decoder",
        "whisper"}},
      {"its residual sums are scaled by their depth", {"beam"}},
      {"it is an encoder",
       {"bert", "bert-generation", "big_bird", "camembert", "data2vec-text", "electra", "ernie",
        "megatron-bert", "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer",
        "xlm", "xlm-roberta", "xlm-roberta-xl", "xmod"}},
      {"its norms before the last Linear of attention and MLP are not run", {"kosmos-2"}},
      {"its text model attends to the image", {"blip"}},
      {"its tokens are bytes, joined in patches by a model of their own", {"blt"}},
      {"its logits leave out the tokens of images", {"chameleon"}},
      {"its checkpoints name attention as those of diffusion models do, which is not read",
       {"cosmos3_edge", "cosmos3_omni"}},
      {"its positions are biases of attention", {"cpmant"}},
      {"its waves of positions are not run", {"ctrl"}},
      {"its caches hold compressed tokens, with scales that engines make or fix themselves",
       {"deepseek_v4"}},
      {"its residual stream stays on a sphere and its layers run several times", {"dory"}},
      {"its attention subtracts two halves of heads", {"diffllama"}},
      {"it makes blocks of tokens by diffusion", {"diffusion_gemma"}},
      {"its attention masks tokens by their values", {"doge"}},
      {"its experts of text and of images are separate", {"ernie4_5_vl_moe"}},
      {"its cross-attention layers are not run", {"evolla", "idefics"}},
      {"it has no attention and so no KV cache",
       {"falcon_mamba", "mamba", "mamba2", "rwkv", "xlstm"}},
      {"it drafts for another model and reads that model's KV cache",
       {"gemma4_assistant", "gemma4_unified_assistant"}},
      {"its norms follow the residual sums", {"git", "openai-gpt"}},
      {"its hyper-connections are not run", {"hy_v4"}},
      {"the hyper-connections of its text model are not run", {"hy_v4_vl"}},
      {"its last layer alone has a bias of attention's output", {"gpt_neox_japanese"}},
      {"its stacks of layers run several times a token, each time with K and V of its own",
       {"hrm_text"}},
      {"the dynamic convolutions of its text model, and its attention to earlier layers, are not "
       "run",
       {"inkling2", "inkling2_loop"}},
      {"its dynamic convolutions and its attention to earlier layers are not run",
       {"inkling2_loop_text", "inkling2_text"}},
      {"experts make its queries", {"jetmoe"}},
      {"its router adds its bias before the sigmoid", {"kolibri1"}},
      {"its norm before the last Linear of the MLP is not run", {"kosmos-2.5"}},
      {"its layers have two attentions each", {"longcat_flash"}},
      {"the layers without positions in the latent attention of its text model are not run",
       {"mistral_large4"}},
      {"the layers without positions in its latent attention are not run", {"mistral_large4_text"}},
      {"its prediction head before lm_head is not run", {"modernbert-decoder"}},
      {"its embedding lies in two tables", {"molmo2"}},
      {"its tokens are those of audio",
       {"kyutai_speech_to_text", "moshi", "musicgen", "musicgen_melody"}},
      {"its norms before and behind have different epsilons", {"muse_glimmer"}},
      {"its gates of the residual stream are not run", {"muse_spark"}},
      {"its prompts attend both ways", {"paligemma"}},
      {"it makes actions of robots, no tokens", {"pi0"}},
      {"its recurrent blocks are not run", {"recurrent_gemma"}},
      {"its attention hashes tokens and keeps no K and V", {"reformer"}},
      {"its windows keep the tokens of the prompt", {"unlimited_ocr"}},
      {"its speech is made by diffusion", {"vibevoice"}},
      {"the norms of its text model depend on the delay of its audio", {"voxtral_realtime"}},
      {"it attends both ways", {"xlnet"}},
      {"its Mamba layers are not run", {"zamba"}},
      {"its shared, low-rank adapted attention blocks are not run", {"zamba2"}},
      {"its convolutions of Q and K are not run", {"zaya"}},
  };
  return kTable;
}

}  // namespace

const std::vector<RefusedModelType>& refused_model_types() {
  static const std::vector<RefusedModelType> kTable = [] {
    std::vector<RefusedModelType> table;
    for (const Refusal& refusal : refusals())
      for (const std::string_view type : refusal.model_types)
        table.push_back({type, refusal.reason});
    std::ranges::sort(table, {}, &RefusedModelType::model_type);
    return table;
  }();
  return kTable;
}

std::string_view refusal_of(std::string_view model_type) {
  const auto it =
      std::ranges::find(refused_model_types(), model_type, &RefusedModelType::model_type);
  return it == refused_model_types().end() ? std::string_view() : it->reason;
}

ModelTypeSupport support_of(std::string_view model_type) {
  for (const Architecture& architecture : architectures())
    if (std::ranges::find(architecture.model_types, model_type) != architecture.model_types.end())
      return {Support::kRuns, architecture.name};
  const auto wrapper = std::ranges::find(wrappers(), model_type, &Wrapper::model_type);
  if (wrapper != wrappers().end()) return {Support::kWrapper, wrapper->text_type};
  const std::string_view reason = refusal_of(model_type);
  return reason.empty() ? ModelTypeSupport{} : ModelTypeSupport{Support::kRefused, reason};
}

namespace {

struct UnreadMethod {
  std::string_view method, what;
};

// Names as transformers 5.24, vLLM 0.32 and SGLang 0.5.23 know them.
constexpr std::array<UnreadMethod, 26> kMethods{{
    {"aqlm", "AQLM, codebooks of several vectors a weight"},
    {"bitnet", "BitNet, ternary weights"},
    {"eetq", "EETQ, INT8 in the order of a GPU kernel"},
    {"exl2", "EXL2, of ExLlamaV2"},
    {"exl3", "EXL3, of ExLlamaV3"},
    {"fouroversix", "Four Over Six, NVFP4 with scales of two ranges"},
    {"fp_quant", "FP-Quant, 4-bit floats behind a rotation"},
    {"ggml", "GGML's blocks"},
    {"gemma", "Gemma's integers, with static scales of inputs and outputs"},
    {"gguf", "GGUF, of llama.cpp"},
    {"higgs", "HIGGS, vectors of a grid behind a rotation"},
    {"hqq", "HQQ, packed as its kernels want it"},
    {"marlin", "GPTQ in the order of the Marlin kernel"},
    {"metal", "MLX's codes for transformers on Metal"},
    {"mlx", "MLX's codes"},
    {"nvfp4", "NVFP4 in the order of a GPU kernel, of transformers"},
    {"paroquant", "ParoQuant, 4 bits behind rotations of pairs"},
    {"petit_nvfp4", "NVFP4 in the order of the Petit kernel"},
    {"qqq", "QQQ, 4-bit weights in the order of a GPU kernel"},
    {"quanto", "Quanto, of optimum"},
    {"quip", "QuIP#, vectors of a lattice behind a rotation"},
    {"sinq", "SINQ, with scales of rows and columns"},
    {"spqr", "SpQR, with outliers in a sparse matrix"},
    {"torchao", "torchao's tensor subclasses"},
    {"vptq", "VPTQ, codebooks of vectors"},
    {"w4afp8", "INT4 weights for FP8 products, of DeepSeek's TensorRT-LLM"},
}};

}  // namespace

std::string about_unread(std::string_view method) {
  for (const UnreadMethod& one : kMethods)
    if (one.method == method)
      return ": " + std::string(one.what) + "; " + std::string(kStartElsewhere);
  return "";
}

}  // namespace kvcal
