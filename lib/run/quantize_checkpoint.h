#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/diagnostics.h"
#include "core/json.h"
#include "export/weights_by_name.h"
#include "run/output_formats.h"

namespace kvcal {

/// A checkpoint of any architecture, and the scheme of its weights.
struct QuantizeRequest {
  std::string checkpoint;
  std::string scheme;                    ///< a name that weight_scheme knows
  std::vector<std::string> ignore = {};  ///< names of modules or "re:…"
  std::string output;
  bool overwrite = false;
  CardNames card = {};
  int threads = 0;      ///< 0: one for each core
  std::string version;  ///< of the program, for the manifest
};

struct QuantizeResult {
  std::string scheme, format;  ///< as in config.json
  size_t num_quantized = 0;
  uint64_t source_bytes = 0, output_bytes = 0;  ///< of the weights' tensors
  std::vector<CopiedWeight> kept = {};          ///< left alone
  uint64_t kept_bytes = 0;
  Json manifest = {};
};

/// Quantizes the weights of Linears by rounding to the nearest code, without a model and without
/// data, and writes the checkpoint in compressed-tensors' format, complete or not at all. Throws
/// Error.
QuantizeResult quantize_checkpoint(const QuantizeRequest& request, Diagnostics& diagnostics);

}  // namespace kvcal
