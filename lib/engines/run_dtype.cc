#include "engines/run_dtype.h"

#include <algorithm>
#include <set>

namespace kvcal {
namespace {

std::string dtype_word(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return "float16";
    case DType::kBF16:
      return "bfloat16";
    case DType::kF32:
    case DType::kF64:
      return "float32";
    default:
      return {};
  }
}

/// Dtype of the first tensor by name that has one of the three. Source: transformers 5.17,
/// `get_state_dict_dtype`.
std::string first_dtype(const ModelDir& model_dir) {
  for (const std::string& name : model_dir.tensor_names())
    if (std::string word = dtype_word(model_dir.tensor(name).dtype); !word.empty()) return word;
  return "float32";
}

/// To which all can be cast without loss. Source: vLLM 0.32, `common_broadcastable_dtype`.
std::string widest_dtype(const ModelDir& model_dir) {
  std::set<std::string> words;
  for (const std::string& name : model_dir.tensor_names())
    words.insert(dtype_word(model_dir.tensor(name).dtype));
  words.erase("");
  if (words.empty() || words.contains("float32")) return "float32";
  return *words.begin();
}

}  // namespace

std::string run_dtype(const RunDtype& rules, const ModelDir& model_dir, const ModelConfig& config,
                      std::string_view model_type) {
  std::string dtype = config.dtype;
  if (dtype.empty()) dtype = rules.widest ? widest_dtype(model_dir) : first_dtype(model_dir);
  const bool refuses_half =
      dtype == "float16" &&
      std::ranges::find(rules.refuse_float16, model_type) != rules.refuse_float16.end();
  return refuses_half || (dtype == "float32" && !rules.takes_float32) ? "bfloat16" : dtype;
}

}  // namespace kvcal
