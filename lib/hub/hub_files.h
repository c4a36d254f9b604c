#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hub/hub_id.h"

namespace kvcal {

/// The files of a model's repository that are used: safetensors, JSON, tokenizers, chat templates,
/// Python code that engines need beside the checkpoint (it is never run here), and texts such as
/// README.md, recipe.yaml and LICENSE. Not: weights in other forms, other folders, and
/// consolidated.safetensors beside model.safetensors. Throws Error where no weights are left, with
/// those that were found.
std::vector<std::string> model_files(std::span<const std::string> names);

/// Whether a file beside the weights, of so many bytes, may say what they are: config.json, the
/// index, a manifest; not the tokenizer's long files.
bool describes_weights(std::string_view name, uint64_t size);

/// What a local copy of a model lacks, of config.json, all weights, and a tokenizer.
struct MissingModelFiles {
  std::vector<std::string> needed;  ///< without these it is not loaded
  bool lacks_tokenizer = false;
};
/// names: of its files. indexed: the shards that its index names; empty without an index.
MissingModelFiles missing_model_files(std::span<const std::string> names,
                                      std::span<const std::string> indexed);

/// Files that are one data set.
struct HubDataFiles {
  std::vector<std::string> names;
  std::string path;  ///< names them all, below the repository: a file, or a pattern of files
};

/// The data files of a repository that id.path names, or all: those of one kind (Parquet before
/// Arrow, JSON lines, JSON, CSV and text), in one folder, of one split. Files of data are known by
/// their extension. Throws Error where there is none, a shard is missing, or there are several
/// splits or folders, with the names to choose from.
HubDataFiles data_files(const HubId& id, std::span<const std::string> names);

}  // namespace kvcal
