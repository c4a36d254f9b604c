#pragma once

#include <string>
#include <vector>

#include "core/diagnostics.h"
#include "engines/served_engines.h"
#include "run/output_formats.h"

namespace kvcal {

/// Answers of the engines of --for, or without it of all, for the KV scales of a written output;
/// empty for overlays. model: the folder that engines are given beside a file of scales. Where the
/// output cannot be read, warns, and the engines of --for count as refusing.
std::vector<ServedEngine> engines_served(const std::vector<WrittenFolder>& folders,
                                         const ModelConfig& config, bool has_scales,
                                         const std::string& model, const OutputOptions& options,
                                         Diagnostics& diagnostics);
/// The folders of an output and the engines' answers, as lines for a terminal: "wrote FORMAT:
/// FOLDER", "vLLM 0.32: loaded: vllm serve OUT", and one line for engines that are not known.
std::string output_text(const std::vector<WrittenFolder>& folders,
                        const std::vector<ServedEngine>& engines);
/// Throws Error, naming the output, where an engine of --for does not use its scales.
void check_engines_asked(const std::vector<ServedEngine>& engines, const OutputOptions& options);

}  // namespace kvcal
