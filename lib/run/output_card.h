#pragma once

#include <string>
#include <utility>
#include <vector>

#include "export/writer.h"
#include "family/model_config.h"
#include "run/output_formats.h"

namespace kvcal {

/// Facts of an output that its model card tells beside those of the manifest.
struct CardFacts {
  const ModelConfig* config = nullptr;  ///< nullptr: the output has no KV scales
  int64_t tp_size = 1;
  std::vector<std::pair<std::string, std::string>> accuracy = {};  ///< what the cache costs
  std::vector<std::pair<std::string, std::string>> lines = {};     ///< label and text
  std::vector<std::string> notes = {};                             ///< sentences
};

/// Writes the model card of one folder of an output, which is not visible yet. format: as --format
/// names it; source: the model that the output is made of.
void write_card(const fs::path& folder, const std::string& format, const ModelDir& source,
                const Json& manifest, const CardFacts& facts);

/// Adds measurements to the cards of a written output, a label and a text each, in place of what
/// was predicted.
void add_accuracy(const std::vector<WrittenFolder>& folders,
                  const std::vector<std::pair<std::string, std::string>>& lines);

}  // namespace kvcal
