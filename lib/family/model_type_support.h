#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvcal {

/// A model_type that kvcal knows and does not support, with the reason.
struct RefusedModelType {
  std::string_view model_type, reason;
};
/// In the order in which users see them. Source of the reasons: transformers 5.24, each model's
/// modeling file; of kimi_k3, llm-compressor 0.14's.
const std::vector<RefusedModelType>& refused_model_types();

/// Reason for which a model_type is refused by name; empty: it is not.
std::string_view refusal_of(std::string_view model_type);

/// Result for a config.json with a model_type.
enum class Support : uint8_t {
  kRuns,     ///< a family's own type
  kWrapper,  ///< a multimodal type with a row
  kRefused,  ///< by name
  kUnknown   ///< in no table: runs where its text_config is a known decoder's
};

struct ModelTypeSupport {
  Support support = Support::kUnknown;
  std::string_view detail = "";  ///< the family, the type of the text model, the reason
};
ModelTypeSupport support_of(std::string_view model_type);

/// Where to go from weights that are not read, for messages.
inline constexpr std::string_view kStartElsewhere =
    "start from the checkpoint that it was made from, in 16 bits, FP8, GPTQ, AWQ or "
    "compressed-tensors";

/// What a quant_method that is not read stands for, and what to start from instead: ": EXL2, of
/// ExLlamaV2; start from …". Empty for other words.
std::string about_unread(std::string_view method);

}  // namespace kvcal
