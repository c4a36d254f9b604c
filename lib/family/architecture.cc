#include "family/architecture.h"

#include <algorithm>

#include "core/join.h"
#include "core/registry.h"

namespace kvcal {

// One row per family: families/<name>.cc defines <name>_architecture().
#define KVCAL_FAMILIES(ROW) \
  ROW(bamba)                \
  ROW(cohere)               \
  ROW(cohere2)              \
  ROW(deepseek_v2)          \
  ROW(deepseek_v3)          \
  ROW(exaone)               \
  ROW(exaone4)              \
  ROW(falcon)               \
  ROW(gemma)                \
  ROW(gemma2)               \
  ROW(gemma3)               \
  ROW(glm)                  \
  ROW(glm4)                 \
  ROW(glm4_moe)             \
  ROW(gpt2)                 \
  ROW(gpt_neox)             \
  ROW(gpt_oss)              \
  ROW(granite)              \
  ROW(granitemoe)           \
  ROW(granitemoehybrid)     \
  ROW(internlm2)            \
  ROW(internlm3)            \
  ROW(jamba)                \
  ROW(llama)                \
  ROW(ministral)            \
  ROW(ministral3)           \
  ROW(mistral)              \
  ROW(mixtral)              \
  ROW(nemotron_h)           \
  ROW(olmo2)                \
  ROW(olmo3)                \
  ROW(olmoe)                \
  ROW(phi)                  \
  ROW(phi3)                 \
  ROW(phimoe)               \
  ROW(qwen2)                \
  ROW(qwen2_moe)            \
  ROW(qwen3)                \
  ROW(qwen3_moe)            \
  ROW(qwen3_next)           \
  ROW(smollm3)              \
  ROW(stablelm)             \
  ROW(starcoder2)

#define KVCAL_DECLARE(name) Architecture name##_architecture();
KVCAL_FAMILIES(KVCAL_DECLARE)

const std::vector<Architecture>& architectures() {
#define KVCAL_ENTRY(name) name##_architecture(),
  static const std::vector<Architecture> kTable{KVCAL_FAMILIES(KVCAL_ENTRY)};
  return kTable;
}

const std::vector<RefusedModelType>& refused_model_types() {
  static const std::vector<RefusedModelType> kTable{
      {"zamba2", "its shared, low-rank adapted attention blocks are not run"},
      {"zamba", "its Mamba layers are not run"},
      {"falcon_h1", "its Mamba 2 heads are not run"},
      {"falcon_mamba", "it has no attention and so no KV cache"},
      {"lfm2", "its short convolutions are not run"},
      {"mamba", "it has no attention and so no KV cache"},
      {"mamba2", "it has no attention and so no KV cache"},
      {"recurrent_gemma", "its recurrent blocks are not run"},
      {"rwkv", "it has no attention and so no KV cache"},
      {"gemma3n", "its per-layer embeddings and shared KV caches are not run"},
      {"llama4", "its chunked attention is not run"},
      {"mllama", "its cross-attention layers are not run"},
      {"bloom", "its ALiBi positions are not run"},
      {"mpt", "its ALiBi positions are not run"},
  };
  return kTable;
}

namespace {

bool has(const std::vector<std::string_view>& list, std::string_view word) {
  return std::ranges::find(list, word) != list.end();
}

/// model_type of a wrapper's text_config. Without the key it is the wrapper's own family, where
/// that has only one.
std::string text_type_of(const Json& text, const std::string& wrapper) {
  if (auto type = optional_string(text, "model_type")) return *std::move(type);
  std::vector<std::string_view> types;
  for (const Architecture& architecture : architectures())
    if (has(architecture.wrapper_types, wrapper)) types.push_back(architecture.model_types.front());
  if (types.size() != 1) fail_missing("text_config.model_type", "the text model's type");
  return std::string(types.front());
}

}  // namespace

TextModel text_model_of(const Json& config) {
  const std::string model_type = required_string(config, "model_type");
  std::vector<std::string> known;
  for (const Architecture& architecture : architectures()) {
    if (has(architecture.model_types, model_type)) return {&architecture, &config, model_type};
    known.insert(known.end(), architecture.model_types.begin(), architecture.model_types.end());
  }
  for (const Architecture& architecture : architectures()) {
    for (const std::string_view type : architecture.wrapper_types)
      if (std::ranges::find(known, type) == known.end()) known.emplace_back(type);
    if (!has(architecture.wrapper_types, model_type)) continue;
    const Json* text = find_field(config, "text_config");
    if (!text || !text->is_object())
      fail("model_type '", model_type, "' has no text_config, expected an object");
    const std::string text_type = text_type_of(*text, model_type);
    if (has(architecture.model_types, text_type)) return {&architecture, text, text_type};
  }
  for (const RefusedModelType& refused : refused_model_types())
    if (refused.model_type == model_type)
      fail("model_type '", model_type, "' is not supported: ", refused.reason);
  fail("model_type '", model_type, "' is not supported", did_you_mean(model_type, known),
       "; supported are ", join(known, ", "));
}

}  // namespace kvcal
