#include "family/model_type_support.h"

#include <algorithm>

#include "family/architecture.h"
#include "family/wrapper.h"

namespace kvcal {
namespace {

constexpr std::string_view kNoAttention = "it has no attention and so no KV cache";
constexpr std::string_view kEncoder = "it is an encoder";
constexpr std::string_view kEncoderDecoder = "it decodes an encoder's output";
constexpr std::string_view kCrossAttention = "its cross-attention layers are not run";
constexpr std::string_view kAudio = "its tokens are those of audio";
constexpr std::string_view kAlibi = "its ALiBi positions are not run";
constexpr std::string_view kChannelDecay = "its delta nets with a decay a channel are not run";
constexpr std::string_view kHyperConnections = "its hyper-connections are not run";
constexpr std::string_view kInnerNorms =
    "its norms before the last Linear of attention and MLP are not run";
constexpr std::string_view kDiffusionNames =
    "its checkpoints name attention as those of diffusion models do, which is not read";
constexpr std::string_view kHeadsByLayer = "its layers have different numbers of heads";

}  // namespace

const std::vector<RefusedModelType>& refused_model_types() {
  static const std::vector<RefusedModelType> kTable{
      {"axk1", "its norm behind the experts is not run"},
      {"axk2", "its gated norms are not run"},
      {"bailing_hybrid", kChannelDecay},
      {"bart", kEncoderDecoder},
      {"beam", "its residual sums are scaled by their depth"},
      {"bert", kEncoder},
      {"bert-generation", kEncoder},
      {"big_bird", kEncoder},
      {"bigbird_pegasus", kEncoderDecoder},
      {"bitnet", kInnerNorms},
      {"blenderbot", kEncoderDecoder},
      {"blenderbot-small", kEncoderDecoder},
      {"blip", "its text model attends to the image"},
      {"bloom", kAlibi},
      {"blt", "its tokens are bytes, joined in patches by a model of their own"},
      {"camembert", kEncoder},
      {"chameleon", "its logits leave out the tokens of images"},
      {"cosmos3_edge", kDiffusionNames},
      {"cosmos3_omni", kDiffusionNames},
      {"cpmant", "its positions are biases of attention"},
      {"ctrl", "its waves of positions are not run"},
      {"data2vec-text", kEncoder},
      {"deepseek_v4", "its caches hold compressed tokens"},
      {"diffllama", "its attention subtracts two halves of heads"},
      {"diffusion_gemma", "it makes blocks of tokens by diffusion"},
      {"doge", "its attention masks tokens by their values"},
      {"dots3_note",
       "the gates a head and the norm of the rotated key of its text model are not run"},
      {"dots3_note_text", "its gates a head and its norm of the rotated key are not run"},
      {"electra", kEncoder},
      {"ernie", kEncoder},
      {"ernie4_5_vl_moe", "its experts of text and of images are separate"},
      {"evolla", kCrossAttention},
      {"falcon_mamba", kNoAttention},
      {"florence2", kEncoderDecoder},
      {"gemma4_assistant", "it drafts for another model and reads that model's KV cache"},
      {"gemma4_unified_assistant", "it drafts for another model and reads that model's KV cache"},
      {"git", "its norms follow the residual sums"},
      {"glm5_next", kHyperConnections},
      {"gpt_neox_japanese", "its last layer alone has a bias of attention's output"},
      {"hrm_text",
       "its stacks of layers run several times a token, each time with K and V of its own"},
      {"hy_v4", kHyperConnections},
      {"idefics", kCrossAttention},
      {"inkling2",
       "the relative positions and the convolutions of K and V of its text model are not run"},
      {"inkling2_text", "its relative positions and its convolutions of K and V are not run"},
      {"inkling_mm_model",
       "the relative positions and the convolutions of K and V of its text model are not run"},
      {"inkling_text", "its relative positions and its convolutions of K and V are not run"},
      {"jetmoe", "experts make its queries"},
      {"kimi_linear", kChannelDecay},
      {"kolibri1", "its router adds its bias before the sigmoid"},
      {"kosmos-2", kInnerNorms},
      {"kosmos-2.5", "its norm before the last Linear of the MLP is not run"},
      {"lfm3", "its gates a head are not run"},
      {"lfm3_vl", "the gates a head of its text model are not run"},
      {"longcat_flash", "its layers have two attentions each"},
      {"mamba", kNoAttention},
      {"mamba2", kNoAttention},
      {"marian", kEncoderDecoder},
      {"mbart", kEncoderDecoder},
      {"megatron-bert", kEncoder},
      {"minimax", "its lightning attention is not run"},
      {"minimax_m3_vl", "the indexer of blocks of its text model is not run"},
      {"minimax_m3_vl_text", "its indexer of blocks is not run"},
      {"mistral_large4",
       "the layers without positions in the latent attention of its text model are not run"},
      {"mistral_large4_text", "the layers without positions in its latent attention are not run"},
      {"modernbert-decoder", "its prediction head before lm_head is not run"},
      {"molmo2", "its embedding lies in two tables"},
      {"moshi", kAudio},
      {"mpt", kAlibi},
      {"muse_glimmer", "its norms before and behind have different epsilons"},
      {"muse_spark", "its gates of the residual stream are not run"},
      {"musicgen", kAudio},
      {"musicgen_melody", kAudio},
      {"mvp", kEncoderDecoder},
      {"openai-gpt", "its norms follow the residual sums"},
      {"paligemma", "its prompts attend both ways"},
      {"pegasus", kEncoderDecoder},
      {"pi0", "it makes actions of robots, no tokens"},
      {"pix2struct", kEncoderDecoder},
      {"plbart", kEncoderDecoder},
      {"pp_formulanet", kEncoderDecoder},
      {"prophetnet", kEncoderDecoder},
      {"qwen4_exp", "the n-gram embeddings and the gated residuals of its text model are not run"},
      {"qwen4_exp_text", "its n-gram embeddings and its gated residuals are not run"},
      {"recurrent_gemma", "its recurrent blocks are not run"},
      {"reformer", "its attention hashes tokens and keeps no K and V"},
      {"rembert", kEncoder},
      {"roberta", kEncoder},
      {"roberta-prelayernorm", kEncoder},
      {"roc_bert", kEncoder},
      {"roformer", kEncoder},
      {"rwkv", kNoAttention},
      {"step3p7", kHeadsByLayer},
      {"t5gemma2", kEncoderDecoder},
      {"trocr", kEncoderDecoder},
      {"udop", kEncoderDecoder},
      {"unlimited_ocr", "its windows keep the tokens of the prompt"},
      {"vision-encoder-decoder", kEncoderDecoder},
      {"whisper", kEncoderDecoder},
      {"xlm", kEncoder},
      {"xlm-roberta", kEncoder},
      {"xlm-roberta-xl", kEncoder},
      {"xlnet", "it attends both ways"},
      {"xlstm", kNoAttention},
      {"xmod", kEncoder},
      {"zamba", "its Mamba layers are not run"},
      {"zamba2", "its shared, low-rank adapted attention blocks are not run"},
      {"zaya", "its convolutions of Q and K are not run"},
  };
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

}  // namespace kvcal
