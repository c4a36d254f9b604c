#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/diagnostics.h"
#include "core/output.h"
#include "export/model_card.h"
#include "export/writer.h"
#include "run/output_formats.h"

namespace kvcal {

/// A written output: its first checkpoint, its manifest, and the folders of its formats.
struct WrittenOutput {
  WrittenCheckpoint checkpoint = {};
  Json manifest = {};
  std::vector<WrittenFolder> folders = {};  ///< empty: nothing was written
};

/// What an output says of itself: its manifest, and model cards.
struct OutputTexts {
  /// Makes the manifest from the output's first checkpoint, before the output appears.
  std::function<Json(const WrittenCheckpoint&)> manifest;
  const ModelConfig& config;
  LabelledLines card_lines = {}, accuracy = {};  ///< accuracy: what the cache costs
};

/// Writes the formats, the manifest and a model card beside each checkpoint into output, which was
/// made at formats.place(); a file has nothing beside it. It appears with the others of outputs.
/// Throws Error.
WrittenOutput stage_output(const OutputFormats& formats, const ExportInput& input,
                           AtomicDirectory& output, int threads, const OutputTexts& texts,
                           Diagnostics& diagnostics, StagedOutputs& outputs);
/// stage_output of an output that appears at once.
WrittenOutput write_output(const OutputFormats& formats, const ExportInput& input,
                           AtomicDirectory& output, int threads, const OutputTexts& texts,
                           Diagnostics& diagnostics);

/// Writes the model cards of an output that is not visible yet, and asks all engines about each
/// checkpoint's scales. Overlays and files of scales alone have no card. Returns the folders by the
/// places that they get.
std::vector<WrittenFolder> write_cards(const OutputFormats& formats, const ExportInput& input,
                                       const Json& manifest, const OutputTexts& texts,
                                       const fs::path& output);
/// Writes the model card of one folder of an output. format: as --format names it; source: the
/// model that the output is made of. more: accuracy, notes, facts beside those of the manifest, and
/// how to serve it; empty: as weights without KV scales are served. names: as in OutputOptions.
void write_card(const fs::path& folder, const std::string& format, const ModelDir& source,
                const Json& manifest, const ModelCard& more, const CardNames& names = {});

/// Adds measurements to the cards of a written output, in place of what was predicted.
void add_accuracy(const std::vector<WrittenFolder>& folders, const LabelledLines& lines);

/// Answers of the engines of --for, or without it of all, for the KV scales of a written output;
/// empty for overlays. Only folders without such an answer are read. model: the folder that engines
/// are given beside a file of scales. Where the output cannot be read, warns, and the engines of
/// --for count as refusing.
std::vector<ServedEngine> engines_served(const std::vector<WrittenFolder>& folders,
                                         const ModelConfig& config, bool has_scales,
                                         const std::string& model, const OutputOptions& options,
                                         Diagnostics& diagnostics);
/// Which lines the engines get: one for all that load the scales, or one each.
enum class EngineLines { kLoading, kEach };
/// The folders of an output and the engines' answers, as lines for a terminal: "wrote FORMAT:
/// FOLDER", and "loaded by vLLM 0.33, ..." or "vLLM 0.33: loaded: vllm serve OUT".
std::string output_text(const std::vector<WrittenFolder>& folders,
                        const std::vector<ServedEngine>& engines, EngineLines lines);
/// Throws Error, naming the output, where an engine of --for does not use its scales.
void check_engines_asked(const std::vector<ServedEngine>& engines, const OutputOptions& options);

}  // namespace kvcal
