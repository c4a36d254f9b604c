#include "family/wrapper.h"

#include <algorithm>

#include "core/registry.h"
#include "core/text.h"
#include "family/architecture.h"
#include "family/expected_tensors.h"
#include "family/model_type_support.h"

namespace kvcal {
namespace {

using Holds = TextPlace::Holds;

constexpr TextPlace kPlain{"", Holds::kModel};
constexpr TextPlace kLanguageModel{"language_model.", Holds::kModel};
constexpr TextPlace kInnerLanguageModel{"model.language_model.", Holds::kBackbone};
constexpr TextPlace kInnerTextModel{"model.text_model.", Holds::kBackbone};
constexpr TextPlace kTextModel{"text_model.", Holds::kModel};
constexpr TextPlace kInklingPlace{"model.llm.", Holds::kBackbone};
constexpr TextPlace kWholeInnerModel{"model.language_model.", Holds::kModel};

const std::vector<TextPlace> kInner{kInnerLanguageModel}, kOuter{kLanguageModel},
    kPlainOrInner{kPlain, kInnerLanguageModel}, kInnerOrOuter{kInnerLanguageModel, kLanguageModel};
/// As published, and as transformers 5 names them in memory.
const std::vector<TextPlace> kLlavaPlaces{kLanguageModel, kInnerLanguageModel};
using Beginnings = std::vector<std::string_view>;
const Beginnings kVisual{"visual."}, kLlavaOutside{"vision_tower.", "multi_modal_projector."},
    kLlavaNextOutside{"vision_tower.", "multi_modal_projector.", "image_newline"},
    kLlamaOutside{"vision_model.", "multi_modal_projector."},
    kConnectorOutside{"vision_model.", "connector."}, kMergerOutside{"vision_tower.", "merger."},
    kGemmaOutside{"vision_tower.", "embed_vision.", "audio_tower.", "embed_audio."};
const Beginnings kAudioOutside{"audio_tower.", "multi_modal_projector."},
    kSpeechOutside{"encoder.", "projector."};
const Beginnings kBlipOutside{"vision_model.", "query_tokens", "qformer.", "language_projection."};
/// The thinker of an Omni checkpoint, or that alone.
const std::vector<TextPlace> kThinkerPlaces{
    {"thinker.", Holds::kModel}, kPlain, kInnerLanguageModel};
const Beginnings kThinkerOutside{
    "thinker.audio_tower.", "thinker.visual.", "audio_tower.", "visual.", "talker.",
    "token2wav.",           "code2wav."};

constexpr Wrapper::Rules kOneType{.has_one_text_type = true}, kTiesIfEither{.ties_if_either = true},
    kOneTypeOrTied{.has_one_text_type = true, .ties_if_either = true},
    kNoMultiplier{.multiplies_no_logits = true},
    kThinker{.has_one_text_type = true, .around_text = "thinker_config"},
    kOneTypeFlat{.has_one_text_type = true, .may_be_flat = true},
    kFlatOrTied{.has_one_text_type = true, .may_be_flat = true, .ties_if_either = true};

}  // namespace

// One row a wrapper.
const std::vector<Wrapper>& wrappers() {
  static const std::vector<Wrapper> kTable{
      {"apertus1p5",
       "Apertus 1.5 with images and sounds",
       "apertus1p5_text",
       kInner,
       {"vision_tokenizer.", "audio_tokenizer."},
       kOneType},
      {"aria", "Aria", "aria_text", kLlavaPlaces, kLlavaOutside, kOneType},
      {"audioflamingo3", "Audio Flamingo 3", "qwen2", kLlavaPlaces, kAudioOutside},
      {"aya_vision", "Aya Vision", "cohere2", kLlavaPlaces, kLlavaOutside, kNoMultiplier},
      {"blip-2", "BLIP-2 around OPT", "opt", kOuter, kBlipOutside},
      {"cohere2_vision", "Command A Vision", "cohere2", kInnerOrOuter, kLlavaOutside,
       kNoMultiplier},
      {"cohere_compass", "North Micro Vision", "cohere_compass_text", kInner, kVisual, kOneType},
      {"deepseek_ocr2",
       "DeepSeek-OCR-2",
       "deepseek_ocr2_text",
       kPlainOrInner,
       {"sam_model.", "qwen2_model.", "projector.", "view_seperator", "vision_tower.",
        "multi_modal_projector.", "view_separator"},
       kOneType},
      {"deepseek_vl", "DeepSeek-VL", "llama", kInner, {"vision_model.", "aligner."}},
      {"deepseek_vl_hybrid",
       "DeepSeek-VL 7B",
       "llama",
       kInner,
       {"vision_model.", "high_res_vision_", "aligner."}},
      {"dots3_note",
       "Dots 3 Note",
       "dots3_note_text",
       kPlainOrInner,
       {"vision_encoder.", "audio_encoder.", "vision_tower.", "audio_tower.", "audio_adapter."},
       kOneTypeFlat},
      {"emu3", "Emu3", "emu3_text_model", {kTextModel, kInnerTextModel}, {"vqmodel."}, kOneType},
      {"exaone4_5", "EXAONE 4.5", "exaone4", kInner, {"visual.", "mtp."}},
      {"fast_vlm", "FastVLM", "qwen2", kInnerOrOuter, kLlavaOutside, kTiesIfEither},
      {"fun_asr_nano",
       "Fun-ASR-Nano",
       "qwen3",
       kInner,
       {"audio_tower.", "multi_modal_projector.", "audio_adaptor."}},
      {"fuyu", "Fuyu 8B", "persimmon", kLlavaPlaces, {"vision_embed_tokens."}, kOneTypeFlat},
      {"gemma3", "Gemma 3", "gemma3_text", kLlavaPlaces, kLlavaOutside, kOneType},
      {"gemma3n", "Gemma 3n", "gemma3n_text", kInner, kGemmaOutside, kOneType},
      {"gemma4", "Gemma 4", "gemma4_text", kInner, kGemmaOutside, kOneType},
      {"gemma4_unified",
       "Gemma 4 12B",
       "gemma4_unified_text",
       kInner,
       {"vision_embedder.", "embed_vision.", "embed_audio."},
       kOneType},
      {"glm46v", "GLM-4.6V", "glm4v_text", kInner, kVisual},
      {"glm4v", "GLM-4.1V", "glm4v_text", kInner, kVisual, kOneTypeOrTied},
      {"glm4v_moe", "GLM-4.5V", "glm4v_moe_text", kInner, kVisual, kOneTypeOrTied},
      {"glm5_next", "GLM-5.3-Flash", "glm5_next_text", kInner, kVisual, kOneTypeFlat},
      {"glm_ocr", "GLM-OCR", "glm_ocr_text", kInner, kVisual, kOneTypeOrTied},
      {"glmasr", "GLM-ASR", "llama", kLlavaPlaces, kAudioOutside},
      {"glmga", "GLM-GA", "glm4v_text", kInner, kVisual},
      {"got_ocr2", "GOT-OCR 2.0", "qwen2", kLlavaPlaces, kLlavaOutside},
      {"granite4_vision",
       "Granite 4 Vision",
       "granite4_vision_text",
       kInner,
       {"vision_tower.", "layerwise_projectors.", "spatial_projectors.", "image_newline"},
       kOneType},
      {"granite_docling",
       "Granite Docling",
       "granite_docling_text",
       {kInnerTextModel},
       {"vision_model.", "density_router."},
       kOneType},
      {"granite_speech", "Granite Speech", "granite", kLlavaPlaces, kSpeechOutside, kNoMultiplier},
      {"granite_speech_plus", "Granite Speech Plus", "granite", kLlavaPlaces, kSpeechOutside,
       kNoMultiplier},
      {"hunyuan_vl",
       "HunyuanOCR",
       "hunyuan_vl_text",
       kPlainOrInner,
       {"vit.", "vision_tower."},
       kFlatOrTied},
      {"hyperclovax_vision_v2",
       "HyperCLOVA X SEED Think",
       "hyperclovax",
       {kWholeInnerModel, kInnerLanguageModel},
       {"vision_model.", "vision_projector.", "projector."}},
      {"idefics2", "Idefics2", "mistral", {kInnerTextModel}, kConnectorOutside},
      {"idefics3", "Idefics3", "llama", {kInnerTextModel}, kConnectorOutside},
      {"inkling_mm_model",
       "Inkling",
       "inkling_text",
       {kInklingPlace, kInnerLanguageModel},
       {"visual.", "audio.", "mtp.", "vision_tower.", "audio_tower."},
       kOneType},
      {"instructblip", "InstructBLIP around Vicuna", "opt", kOuter, kBlipOutside},
      {"instructblipvideo", "InstructBLIP Video around Vicuna", "opt", kOuter, kBlipOutside},
      {"internvl", "InternVL 3 and 3.5 in transformers' form", "qwen2", kLlavaPlaces,
       kLlavaOutside},
      {"janus", "Janus", "llama", kInner, {"vision_model.", "aligner.", "vqmodel.", "generation_"}},
      {"kimi_k25", "Kimi-K2.5", "deepseek_v3", kLlavaPlaces, {"vision_tower.", "mm_projector."}},
      {"kimi_k3", "Kimi-K3", "kimi_k3_text", kOuter, {"vision_tower.", "mm_projector."}, kOneType},
      {"lfm2_vl", "LFM2-VL", "lfm2", kInner, kLlavaOutside},
      {"lfm3_vl", "LFM3-VL", "lfm3", kInner, kLlavaOutside},
      {"lighton_ocr", "LightOnOCR", "qwen3", kInner, {"vision_encoder.", "vision_projection."}},
      {"llama4", "Llama 4 Scout, Maverick", "llama4_text", kOuter, kLlamaOutside, kOneType},
      {"llava", "LLaVA 1.5, Pixtral in transformers' form", "llama", kLlavaPlaces, kLlavaOutside,
       kTiesIfEither},
      {"llava_next", "LLaVA 1.6", "llama", kLlavaPlaces, kLlavaNextOutside},
      {"llava_next_video", "LLaVA-NeXT-Video", "llama", kLlavaPlaces, kLlavaNextOutside,
       kTiesIfEither},
      {"llava_onevision", "LLaVA-OneVision", "qwen2", kLlavaPlaces, kLlavaNextOutside,
       kTiesIfEither},
      {"minicpm_ocr", "MiniCPM-OCR", "qwen3_5_text", kInner, kMergerOutside},
      {"minicpmv4_6", "MiniCPM-V 4.6", "qwen3_5_text", kInner, kMergerOutside},
      {"minicpmv4_7", "MiniCPM-V 4.7", "qwen3_5_text", kInner, kMergerOutside},
      {"minimax_m3_vl",
       "MiniMax-M3",
       "minimax_m3_vl_text",
       kLlavaPlaces,
       {"vision_tower.", "multi_modal_projector.", "patch_merge_mlp."},
       kOneType},
      {"mistral3", "Mistral Small 3.1, Ministral 3", "mistral", kLlavaPlaces, kLlavaOutside},
      {"mllama", "Llama 3.2 Vision 11B, 90B", "mllama_text_model", kLlavaPlaces, kLlamaOutside,
       kOneType},
      {"moss_transcribe_diarize", "MOSS Transcribe Diarize", "qwen3", kInner, kAudioOutside},
      {"musicflamingo", "Music Flamingo", "qwen2", kLlavaPlaces, kAudioOutside},
      {"nemotron_h_omni",
       "Nemotron 3 Nano Omni",
       "nemotron_h",
       kOuter,
       {"vision_model.", "mlp1.", "sound_encoder.", "sound_projection.", "multi_modal_projector.",
        "audio_tower.", "embed_audio."}},
      {"omniasr", "Omnilingual ASR with a decoder", "llama", kInner, kAudioOutside},
      {"ovis2", "Ovis2", "qwen2", kInner, {"vision_tower.", "visual_embeddings_table."}},
      {"paddleocr_vl",
       "PaddleOCR-VL",
       "paddleocr_vl_text",
       kPlainOrInner,
       {"visual.", "mlp_AR.", "projector."},
       kFlatOrTied},
      {"perception_lm", "Perception LM", "llama", kInner, kLlavaOutside},
      {"phi4_multimodal",
       "Phi-4-multimodal",
       "phi3",
       {kPlain},
       {"embed_tokens_extend."},
       kOneTypeFlat},
      {"pp_chart2table", "PP-Chart2Table", "qwen2", kLlavaPlaces, kLlavaOutside},
      {"qianfan_ocr",
       "Qianfan-OCR",
       "qwen3",
       kLlavaPlaces,
       {"vision_model.", "mlp1.", "vision_tower.", "multi_modal_projector."}},
      {"qwen2_5_omni", "Qwen2.5-Omni, whose thinker runs", "qwen2_5_omni_text", kThinkerPlaces,
       kThinkerOutside, kThinker},
      {"qwen2_5_omni_thinker", "Qwen2.5-Omni's thinker", "qwen2_5_omni_text", kThinkerPlaces,
       kThinkerOutside, kOneType},
      {"qwen2_5_vl", "Qwen2.5-VL", "qwen2_5_vl_text", kPlainOrInner, kVisual, kFlatOrTied},
      {"qwen2_audio", "Qwen2-Audio", "qwen2", kLlavaPlaces, kAudioOutside},
      {"qwen2_vl", "Qwen2-VL, QVQ", "qwen2_vl_text", kPlainOrInner, kVisual, kFlatOrTied},
      {"qwen3_5", "Qwen3.5, Qwen3.6, dense", "qwen3_5_text", kInner, kVisual, kOneType},
      {"qwen3_5_moe", "Qwen3.5, Qwen3.6 with experts", "qwen3_5_moe_text", kInner, kVisual,
       kOneType},
      {"qwen3_asr", "Qwen3-ASR", "qwen3", kInner, kAudioOutside},
      {"qwen3_omni_moe", "Qwen3-Omni, whose thinker runs", "qwen3_omni_moe_text", kThinkerPlaces,
       kThinkerOutside, kThinker},
      {"qwen3_omni_moe_thinker", "Qwen3-Omni's thinker", "qwen3_omni_moe_text", kThinkerPlaces,
       kThinkerOutside, kOneType},
      {"qwen3_vl", "Qwen3-VL", "qwen3_vl_text", kInner, kVisual, kOneType},
      {"qwen3_vl_moe", "Qwen3-VL-30B-A3B, Qwen3-VL-235B-A22B", "qwen3_vl_moe_text", kInner, kVisual,
       kOneType},
      {"qwen4_exp", "Qwen4-Exp", "qwen4_exp_text", kInner, kVisual, kOneType},
      {"shieldgemma2",
       "ShieldGemma 2",
       "gemma3_text",
       {kWholeInnerModel, kLanguageModel, kInnerLanguageModel},
       kLlavaOutside,
       kOneTypeOrTied},
      {"smolvlm", "SmolVLM, SmolVLM2", "llama", {kInnerTextModel}, kConnectorOutside},
      {"step3p7",
       "Step 3.7 Flash",
       "step3p5",
       kPlainOrInner,
       {"vision_model.", "vit_large_projector.", "multi_modal_projector."},
       kOneType},
      {"vibevoice_asr",
       "VibeVoice-ASR",
       "qwen2",
       kLlavaPlaces,
       {"acoustic_tokenizer_encoder.", "semantic_tokenizer_encoder.", "multi_modal_projector."}},
      {"video_llama_3",
       "VideoLLaMA 3",
       "qwen2",
       kInner,
       {"vision_model.", "projector."},
       kTiesIfEither},
      {"video_llava",
       "Video-LLaVA",
       "llama",
       kLlavaPlaces,
       {"image_tower.", "video_tower.", "multi_modal_projector."}},
      {"vipllava", "ViP-LLaVA", "llama", kLlavaPlaces, kLlavaOutside},
      {"voxtral", "Voxtral", "llama", kLlavaPlaces, kAudioOutside},
  };
  return kTable;
}

const std::vector<TextPlace>& usual_places() {
  static const std::vector<TextPlace> kPlaces{kLanguageModel, kInnerLanguageModel, kInnerTextModel,
                                              kTextModel, kPlain};
  return kPlaces;
}

FamilyChoice choose_family(std::string_view name) {
  std::vector<std::string> known;
  for (const Architecture& architecture : architectures()) {
    if (normalised_name(architecture.name) == normalised_name(name))
      return {.architecture = &architecture,
              .option = "--family",
              .value = std::string(architecture.name)};
    known.emplace_back(architecture.name);
  }
  fail("unknown family '", name, "'", did_you_mean(name, known),
       "; kvcal families lists the known");
}

namespace {

const Architecture* architecture_of(std::string_view model_type) {
  const auto it = std::ranges::find_if(architectures(), [&](const Architecture& architecture) {
    return std::ranges::find(architecture.model_types, model_type) !=
           architecture.model_types.end();
  });
  return it == architectures().end() ? nullptr : &*it;
}

/// The family of a whole config.json. Source: transformers 5.24 `AutoConfig`, which takes a Mistral
/// that lists types of layers for a Ministral.
const Architecture* architecture_of_file(const Json& config, std::string_view model_type) {
  const bool is_typed = model_type == "mistral" && config.contains("layer_types");
  return architecture_of(is_typed ? "ministral" : model_type);
}

const Wrapper* wrapper_of(std::string_view model_type) {
  const auto it = std::ranges::find(wrappers(), model_type, &Wrapper::model_type);
  return it == wrappers().end() ? nullptr : &*it;
}

void refuse_by_name(std::string_view model_type) {
  const std::string_view reason = refusal_of(model_type);
  if (!reason.empty()) fail("model_type '", model_type, "' is not supported: ", reason);
}

[[noreturn]] void refuse_unknown(std::string_view model_type) {
  refuse_by_name(model_type);
  std::vector<std::string> known;
  for (const Architecture& architecture : architectures())
    known.insert(known.end(), architecture.model_types.begin(), architecture.model_types.end());
  for (const Wrapper& wrapper : wrappers()) known.emplace_back(wrapper.model_type);
  fail("model_type '", model_type, "' is not supported",
       did_you_mean(std::string(model_type), known),
       "; kvcal families lists what is; --family runs another type as one of them");
}

/// Throws Error for a model_type of another family than the chosen one.
void check_is_of(const Architecture& architecture, std::string_view model_type,
                 const FamilyChoice& family) {
  if (family && family.architecture != &architecture)
    fail("model_type '", model_type, "' is known and runs as the family ", architecture.name, "; ",
         family.text(), " is for types that are not known");
}

/// The choice for a model_type that no family has. Throws Error where there is none, where the type
/// is refused by name, and where the family's file lists other types.
FamilyChoice chosen_for(std::string_view model_type, const FamilyChoice& family) {
  refuse_by_name(model_type);
  if (!family) refuse_unknown(model_type);
  const std::vector<std::string_view>& types = family.architecture->model_types;
  if (family.is_from_file() && !types.empty() &&
      std::ranges::find(types, model_type) == types.end())
    fail("model_type '", model_type, "' is none of the model_types of ", family.text(),
         ", which are ", join(types, ", "));
  return family;
}

std::string text_type_of(const Json& text, const Wrapper* wrapper) {
  if (wrapper && wrapper->rules.has_one_text_type) return std::string(wrapper->text_type);
  if (auto type = optional_string(text, "model_type")) return *std::move(type);
  if (!wrapper || wrapper->text_type.empty())
    fail_missing("text_config.model_type", "the text model's type");
  return std::string(wrapper->text_type);
}

/// The text part of a wrapper; row: nullptr where its type is not known.
TextModel wrapped_model(const Json& config, const std::string& model_type, const Wrapper* row,
                        const FamilyChoice& family) {
  const std::string_view around = row ? row->rules.around_text : "";
  const Json* const outer = around.empty() ? &config : find_field(config, around);
  const Json* text = outer && outer->is_object() ? find_field(*outer, "text_config") : nullptr;
  if (!text && row && row->rules.may_be_flat) text = &config;
  if (!text || !text->is_object())
    fail("model_type '", model_type, "' has no ", around, around.empty() ? "" : ".",
         "text_config, expected an object");
  const std::string text_type =
      text == &config ? std::string(row->text_type) : text_type_of(*text, row);
  return in_context("text_config of model_type '" + model_type + "'", [&]() -> TextModel {
    if (const Architecture* architecture = architecture_of(text_type)) {
      check_is_of(*architecture, text_type, family);
      return {architecture, text, text_type, model_type, row};
    }
    return {family.architecture, text, text_type, model_type, row, chosen_for(text_type, family)};
  });
}

}  // namespace

TextModel text_model_of(const Json& config, const FamilyChoice& family) {
  const std::string model_type = required_string(config, "model_type");
  if (const Architecture* architecture = architecture_of_file(config, model_type)) {
    check_is_of(*architecture, model_type, family);
    return {architecture, &config, model_type};
  }
  const Wrapper* row = wrapper_of(model_type);
  if (row) return wrapped_model(config, model_type, row, family);
  refuse_by_name(model_type);
  const Json* text = find_field(config, "text_config");
  if (text && text->is_object() && find_field(*text, "model_type"))
    return wrapped_model(config, model_type, nullptr, family);
  if (text) refuse_unknown(model_type);
  return {family.architecture, &config, model_type, {}, nullptr, chosen_for(model_type, family)};
}

std::vector<NamePrefix> name_prefixes(const ModelConfig& config) {
  const std::vector<NamePrefix>& own = config.architecture->prefixes;
  std::vector<TextPlace> places;
  if (config.wrapper_type.empty()) {
    places.push_back({"", TextPlace::Holds::kModel});
  } else {
    if (config.wrapper) places = config.wrapper->places;
    places.insert(places.end(), usual_places().begin(), usual_places().end());
  }
  std::vector<NamePrefix> prefixes, bare;
  for (const TextPlace& place : places) {
    const std::string prefix(place.prefix);
    if (place.holds == TextPlace::Holds::kBackbone) {
      prefixes.push_back({prefix, ""});
      continue;
    }
    for (const NamePrefix& inner : own)
      prefixes.push_back({prefix + inner.backbone, prefix + inner.head});
    bare.push_back({prefix, prefix});
  }
  prefixes.insert(prefixes.end(), bare.begin(), bare.end());
  return prefixes;
}

std::vector<std::string> outside_patterns(const std::vector<std::string>& ignored,
                                          const ModelConfig& config) {
  constexpr std::string_view kHead = "lm_head";
  std::vector<std::string> patterns;
  const auto add = [&](std::string pattern) {
    if (std::ranges::find(patterns, pattern) == patterns.end())
      patterns.push_back(std::move(pattern));
  };
  if (config.wrapper_type.empty()) return patterns;
  for (const std::string& name : ignored) {
    if (name.ends_with(kHead) && name != kHead) add(std::string(kHead));
    if (const int64_t layer = skipped_layer_of(name + ".", config); layer != kNoLayer)
      add("re:(.*\\.)?layers\\." + std::to_string(layer) + "\\..*");
    if (!is_outside_text(name + ".", config)) continue;
    // The text model lies in these, too.
    size_t begin = 0;
    for (const std::string_view both : {"thinker.", "model."})
      if (std::string_view(name).substr(begin).starts_with(both)) begin += both.size();
    add("re:(.*\\.)?" + name.substr(begin, name.find('.', begin) - begin) + "\\..*");
  }
  return patterns;
}

bool is_outside_text(std::string_view tensor, const ModelConfig& config) {
  if (config.wrapper_type.empty()) return false;
  if (config.wrapper) {
    constexpr std::string_view kInner = "model.";
    const std::string_view below =
        tensor.starts_with(kInner) ? tensor.substr(kInner.size()) : tensor;
    return std::ranges::any_of(config.wrapper->outside, [&](std::string_view beginning) {
      return tensor.starts_with(beginning) || below.starts_with(beginning);
    });
  }
  const bool is_of_head = config.head_prefix.empty() ? tensor.starts_with("lm_head")
                                                     : tensor.starts_with(config.head_prefix);
  return !is_of_head && !tensor.starts_with(config.backbone_prefix);
}

}  // namespace kvcal
