#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace kvcal {

/// kError: a scale in the checkpoint would be lost or become another, or the engine refuses it.
/// kWarning: 1.0 where nothing was calibrated, clipping, one value for K and V. kNote: what the
/// engine has to be told.
enum class Severity : uint8_t { kError, kWarning, kNote };
std::string_view name_of(Severity severity);

struct Finding {
  Severity severity = Severity::kNote;
  std::vector<int64_t> layers;  ///< ascending; empty: not of certain layers
  std::string message, remedy;  ///< remedy: what to do, or empty
};

/// One scale as an engine holds it.
struct HeldScale {
  std::vector<float> values{1.0f};  ///< one, or one a head (a rank, from kv_cache_scales.json)
  std::string source;               ///< the tensor or file it came from; empty: the default
};

struct HeldLayer {
  int64_t layer = 0;
  HeldScale k, v;
  bool is_16_bit = false;  ///< the engine is told to leave this layer's cache in 16 bits
};

/// The result of one engine that loads a checkpoint.
struct VerifyReport {
  std::string engine, version;
  std::string kv_cache_dtype;  ///< the engine's word; "auto" where it keeps the model's 16 bits
  bool loads = true;           ///< false: it refuses the checkpoint, and holds nothing
  bool is_known = true;        ///< false: the engine was not run with such models
  std::vector<HeldLayer> layers;
  std::vector<Finding> findings;  ///< errors first, then warnings, notes; each in layer order
};

/// Whether a scale would be lost: any finding that is an error.
bool loses_scales(const VerifyReport& report);

/// Whether the engine holds any scale of the checkpoint, or of a file beside it.
bool holds_scales(const VerifyReport& report);

/// {"engine", "engine_version", "kv_cache_dtype", "loads", "layers": [{"layer", "k_scale",
/// "v_scale", "k_source", "v_source"}], "findings": [{"severity", "layer", "layers", "message",
/// "remedy"}]}. A scale is a number, a list for heads, or "nan", "inf", "-inf"; a source is a
/// tensor, "default", or "16 bits" where the engine is told to leave the layer unquantized; layer
/// is a text of ranges ("0-4, 7"), null where the finding is of no layer.
Json report_json(const VerifyReport& report);

/// Findings as a checker makes them: the same words of further layers join the first.
class Findings {
 public:
  void add(Severity severity, std::string message, std::string remedy = {});
  void add_of_layer(int64_t layer, Severity severity, std::string message, std::string remedy = {});
  /// Errors first, then warnings and notes; in each by the first layer, in the order they came.
  std::vector<Finding> ranked() &&;

 private:
  std::vector<Finding> findings_;
};

}  // namespace kvcal
