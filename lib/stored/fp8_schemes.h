#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "family/modules.h"
#include "quant/quant_args.h"
#include "stored/coded_matrix.h"
#include "stored/quantization_config.h"

namespace kvcal {

/// Whether a target or an ignore entry names a module: recipe's matches_target, which this layer
/// may not include.
using TargetMatcher = bool (*)(std::string_view pattern, std::string_view name,
                               std::string_view class_name);

/// Quantization of a Linear's input before the product.
enum class InputQuantization : uint8_t { kNone, kStatic, kDynamicToken, kDynamicGroup };

/// Storage of a module's weight and quantization of its input, as a config describes them.
struct ModuleScheme {
  Strategy strategy = Strategy::kTensor;      ///< of the weight: kTensor, kChannel or kBlock
  int64_t block_rows = 0, block_columns = 0;  ///< kBlock
  InputQuantization input = InputQuantization::kNone;
  int64_t group = 0;                  ///< kDynamicGroup: values that share a scale
  bool infers_groups = false;         ///< from the weight's blocks, without a key
  bool lists_few_exceptions = false;  ///< 16-bit weights are often unlisted
  /// Suffixes after the module's name of the weight's scale and of a static input's: the usual one,
  /// and one of other writers.
  std::array<std::string_view, 2> scale_names{".weight_scale", ""};
  std::array<std::string_view, 2> input_scale_names{".input_scale", ""};
  bool has_exponents = false;  ///< scales of U8 are powers of two, as F8_E8M0
  std::string source;          ///< file and key, for messages
  std::string unrun_input;     ///< quantization of inputs that is not run, for messages; or empty
  /// Reads weights that are not FP8 with one of the scales above; borrowed from the schemes.
  const CodedStorage* storage = nullptr;
};

/// The schemes of a checkpoint's modules.
class ModuleSchemes {
 public:
  virtual ~ModuleSchemes() = default;
  /// The scheme of a module; nullptr: it is 16-bit.
  virtual const ModuleScheme* find(const ModuleName& module) const = 0;
  /// Keeps a storage as long as this, for ModuleScheme::storage.
  const CodedStorage* keep(std::unique_ptr<CodedStorage> storage) {
    return storages_.emplace_back(std::move(storage)).get();
  }

 private:
  std::vector<std::unique_ptr<CodedStorage>> storages_;
};

/// Reads the schemes; nullptr where weights are not quantized. Throws Error naming the key for
/// weights that no form reads, for a value that no form has, and for a value that would change
/// results and is not supported.
std::unique_ptr<ModuleSchemes> read_module_schemes(const QuantizationConfig& config,
                                                   TargetMatcher matches);

/// How an entry of a list of exceptions matches a module's name.
enum class ExceptionMatch : uint8_t {
  kParts,      ///< some of its dot-separated parts
  kWildcards,  ///< an fnmatch pattern, or any substring
};

bool is_exception(const std::vector<std::string>& entries, ExceptionMatch how,
                  const std::string& module);
/// How a pattern of Quark's configs matches a module's name: "re:" and an expression, or an fnmatch
/// pattern of the whole name. Source: vLLM 0.32 `QuarkConfig._find_matched_config`.
bool is_named_by_quark(const std::string& pattern, const std::string& module,
                       TargetMatcher matches);

/// One scheme for all Linears outside a list of exceptions. storage: of weights that are not FP8.
std::unique_ptr<ModuleSchemes> all_but(std::vector<std::string> except, ExceptionMatch how,
                                       ModuleScheme scheme,
                                       std::unique_ptr<CodedStorage> storage = nullptr);

}  // namespace kvcal
