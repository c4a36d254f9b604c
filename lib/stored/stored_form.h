#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
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

/// KV scales of each tensor-parallel rank: [rank][layer], one value for K and V together. Layers
/// without attention have 1.0.
struct RankScales {
  std::vector<std::vector<Scale>> ranks;
  fp8::Format format = fp8::Format::kE4m3Fn;  ///< of the cache that they are for
};

/// One form in which quantized weights or KV scales are stored, with everything that its readers
/// need. Each file of forms/ defines one; stored_form.cc lists them.
struct StoredForm {
  std::string_view name;
  std::string_view method = {};           ///< quant_method; empty: the form has KV scales alone
  bool has_method_variants = false;       ///< also a quant_method that begins with method
  std::string_view config_file = {};      ///< read where config.json has no quantization_config
  std::string_view nested_key = {};       ///< of config_file: the object that holds the form's keys
  std::span<const KvForm> kv_names = {};  ///< names of KV scales that the form brings with it
  /// Where the usual writer of the form observed K; nullopt: as the names say.
  std::optional<KeyPosition> keys = {};
  bool may_raise_scales_to_one = false;  ///< a writer raises scales below 1.0 to that
  bool ranks_have_own_config = false;    ///< a folder of ranks is no checkpoint, whatever it holds

  /// Schemes of weights; null where weights are not quantized. Throws Error naming the key.
  std::unique_ptr<ModuleSchemes> (*read_schemes)(const QuantizationConfig&,
                                                 TargetMatcher) = nullptr;
  KvScheme (*read_cache_scheme)(const QuantizationConfig&) = nullptr;
  /// Removes what the config says of K and V. Returns whether it still says something of weights.
  bool (*strip_cache)(Json& config) = nullptr;
  /// Removes what the config says of queries. Returns whether there was something. nullptr: the
  /// form has no scales of queries.
  bool (*strip_queries)(Json& config) = nullptr;

  /// The file or folder of scales of ranks at a place. nullptr: the form has none.
  std::optional<std::filesystem::path> (*find_ranks)(const std::filesystem::path& place) = nullptr;
  RankScales (*read_ranks)(const std::filesystem::path& found, const ModelConfig&) = nullptr;
};

/// All forms that are read, the one we write by default first.
std::span<const StoredForm* const> stored_forms();

/// The form with that quant_method; nullptr: none is read.
const StoredForm* form_of_method(std::string_view method);

}  // namespace kvcal
