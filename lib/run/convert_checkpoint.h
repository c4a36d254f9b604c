#pragma once

#include <string>
#include <vector>

#include "convert/conversion.h"
#include "run/command_output.h"

namespace kvcal {

/// A checkpoint, and the formats to write its KV scales and FP8 weights in.
struct ConversionRequest {
  std::string checkpoint;
  std::string scales;    ///< file or folder whose scales replace the checkpoint's; or empty
  std::string strategy;  ///< tensor or attn_head; empty: the source's
  std::string dialect;   ///< fn or fnuz; empty: the source's
  FamilyChoice family;   ///< of a model_type that is not known
  OutputOptions output;
  std::string version;  ///< of the program, for the manifest
};

struct ConversionResult {
  ModelConfig config;
  std::string scales_format = {}, scales_path = {};  ///< origin of the scales
  size_t num_scaled_layers = 0;
  bool is_int8 = false;                   ///< the scales are of an INT8 cache
  std::string kept_weights = {};          ///< form of unchanged weights; empty: none
  size_t num_rewritten_linears = 0;       ///< FP8 weights whose scales are written anew
  std::vector<FormatLosses> losses = {};  ///< one a format
  WrittenOutput output = {};
};

/// Writes all formats, complete or not at all. Throws Error.
ConversionResult convert_checkpoint(const ConversionRequest& request, Diagnostics& diagnostics);

/// Adds the scales of an overlay to a checkpoint of the same model that has none, in the overlay's
/// format or in that of the checkpoint's quantized weights. Of request, only family, output and
/// version are read. Throws Error.
ConversionResult apply_overlay(const std::string& overlay, const std::string& checkpoint,
                               ConversionRequest request, Diagnostics& diagnostics);

/// A conversion in words and tables, as lines for a terminal: the source of scales and weights,
/// then for each format the layers that lose most. is_whole: a table of all, too.
std::string conversion_text(const ConversionResult& result, bool is_whole);

}  // namespace kvcal
