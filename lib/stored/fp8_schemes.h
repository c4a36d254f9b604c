#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "family/modules.h"
#include "quant/quant_args.h"
#include "stored/quantization_config.h"

namespace kvcal {

/// Whether a target or an ignore entry names a module: recipe's matches_target, which lies beside
/// this layer.
using TargetMatcher = bool (*)(std::string_view pattern, std::string_view name,
                               std::string_view class_name);

/// What is done to a Linear's input before it is multiplied.
enum class InputQuantization : uint8_t { kNone, kStatic, kDynamicToken, kDynamicGroup };

/// How a config says that a module's weight is stored and its input is quantized.
struct ModuleScheme {
  Strategy strategy = Strategy::kTensor;      ///< of the weight: kTensor, kChannel or kBlock
  int64_t block_rows = 0, block_columns = 0;  ///< kBlock
  InputQuantization input = InputQuantization::kNone;
  int64_t group = 0;                              ///< kDynamicGroup: values that share a scale
  bool infers_groups = false;                     ///< from the weight's blocks: no key says so
  bool lists_few_exceptions = false;              ///< weights in 16 bits are often not listed
  std::string_view scale_name = ".weight_scale";  ///< behind the module's name
  std::string source;                             ///< who says so, for messages
};

/// The schemes of a checkpoint's modules.
class ModuleSchemes {
 public:
  virtual ~ModuleSchemes() = default;
  /// Null for a module that keeps 16 bits.
  virtual const ModuleScheme* find(const ModuleName& module) const = 0;
};

/// Null where weights are not quantized. Throws Error naming the key for weights other than FP8,
/// for what no form has, and for what would change results and is not run.
std::unique_ptr<ModuleSchemes> read_module_schemes(const QuantizationConfig& config,
                                                   TargetMatcher matches);

/// How an entry of a list of exceptions names a module.
enum class ExceptionMatch : uint8_t {
  kParts,      ///< by some of the words between its dots
  kWildcards,  ///< by a pattern of fnmatch, or any part of its name
};

/// One scheme for all Linears but those that a list excepts.
std::unique_ptr<ModuleSchemes> all_but(std::vector<std::string> except, ExceptionMatch how,
                                       ModuleScheme scheme);

}  // namespace kvcal
