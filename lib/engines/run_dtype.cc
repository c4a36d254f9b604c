#include "engines/run_dtype.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

namespace kvcal {
namespace {

/// Words of torch and the dtype that each stands for.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kWords{
    {{"float16", "float16"},
     {"half", "float16"},
     {"bfloat16", "bfloat16"},
     {"float32", "float32"},
     {"float", "float32"},
     {"float64", "float64"},
     {"double", "float64"},
     {"auto", "auto"}}};

auto word_of(std::string_view dtype) {
  return std::ranges::find(kWords, dtype, [](const auto& entry) { return entry.first; });
}

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

bool is_dtype_of_torch(std::string_view word) {
  return word_of(word) != kWords.end();
}

std::string run_dtype(const RunDtype& rules, const ModelDir& model_dir, const ModelConfig& config,
                      std::string_view model_type) {
  const auto word = word_of(config.dtype);
  std::string dtype(word == kWords.end() ? config.dtype : word->second);
  if (dtype.empty()) dtype = rules.widest ? widest_dtype(model_dir) : first_dtype(model_dir);
  const bool refuses_half =
      dtype == "float16" &&
      std::ranges::find(rules.refuse_float16, model_type) != rules.refuse_float16.end();
  return refuses_half || ((dtype == "float32" || dtype == "float64") && !rules.takes_float32)
             ? "bfloat16"
             : dtype;
}

}  // namespace kvcal
