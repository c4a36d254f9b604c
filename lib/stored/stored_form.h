#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "family/model_config.h"
#include "quant/fp8.h"
#include "quant/scale.h"
#include "stored/fp8_schemes.h"
#include "stored/kv_forms.h"
#include "stored/kv_scheme.h"
#include "stored/quantization_config.h"

namespace kvcal {

/// KV scales of each tensor-parallel rank: [rank][layer], one for K and V together. Layers without
/// attention have 1.0.
struct RankScales {
  std::vector<std::vector<Scale>> ranks;
  fp8::Format format = fp8::Format::kE4m3Fn;  ///< format of the cache
};

/// One form in which checkpoints store quantized weights or KV scales, with everything that its
/// readers need. Each file of forms/ defines one; stored_form.cc lists them.
struct StoredForm {
  std::string_view name;
  std::string_view method = {};       ///< quant_method; empty: the form has only KV scales
  bool has_method_variants = false;   ///< also a quant_method that begins with method
  std::string_view config_file = {};  ///< read where config.json has no quantization_config
  std::string_view nested_key = {};   ///< of config_file: the object that holds the form's keys
  /// Keys that say how weights are stored. Either file may have them; both must agree.
  std::span<const std::string_view> weight_keys = {};
  std::span<const KvForm> kv_names = {};  ///< names of the form's KV scales
  /// Position at which the usual writer of the form observes K; nullopt: as kv_names say.
  std::optional<KeyPosition> keys = {};
  bool may_raise_scales_to_one = false;  ///< a writer raises scales below 1.0 to 1.0
  bool ranks_have_own_config = false;    ///< a folder of ranks is never a checkpoint

  /// Schemes of weights; null where weights are not quantized. Throws Error naming the key.
  std::unique_ptr<ModuleSchemes> (*read_schemes)(const QuantizationConfig&,
                                                 TargetMatcher) = nullptr;
  KvScheme (*read_cache_scheme)(const QuantizationConfig&) = nullptr;
  /// Removes K and V from the config. Returns whether it still describes weights.
  bool (*strip_cache)(Json& config) = nullptr;
  /// Removes queries from the config. Returns whether it described any. nullptr: the form has no
  /// query scales.
  bool (*strip_queries)(Json& config) = nullptr;

  /// Whether a config says that tensors that stack all experts are stored under names of the form's
  /// own. nullptr: none is.
  bool (*stacks_experts)(const QuantizationConfig&) = nullptr;
  /// Opens such a tensor: a matrix [out, in] of each expert; none where the file has no such
  /// tensors. read: receives their names. Throws Error as CodedStorage::open does.
  std::vector<std::unique_ptr<CodedMatrix>> (*open_stacked)(
      const ModelDir&, const std::string& tensor,
      std::set<std::string, std::less<>>& read) = nullptr;

  /// Finds the file or folder with the scales of ranks. nullptr: the form has none.
  std::optional<std::filesystem::path> (*find_ranks)(const std::filesystem::path& place) = nullptr;
  RankScales (*read_ranks)(const std::filesystem::path& found, const ModelConfig&) = nullptr;
};

/// All supported forms; the default of our output is first.
std::span<const StoredForm* const> stored_forms();

/// Of a form that cannot ask for a cache: the engine's options decide.
KvScheme no_cache_scheme(const QuantizationConfig& config);
/// strip_cache of such a form, whose config describes weights alone.
bool keeps_config(Json& config);

/// The form with that quant_method; nullptr where none is supported.
const StoredForm* form_of_method(std::string_view method);

}  // namespace kvcal
