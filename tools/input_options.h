#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "core/diagnostics.h"
#include "datasets/record_columns.h"
#include "inspect/remote_checkpoint.h"

namespace kvcal {

// Options that name a model or a data set, which may be an id of the hub. Each is declared here
// once; fetch_inputs makes local paths of those that the user gave, before the command runs.

/// A model's folder, or an id of one.
CLI::Option* add_model(CLI::App& command, const std::string& name, std::string& model,
                       const std::string& help);
/// "checkpoint" of a command that runs nothing: a model's folder, or an id of one, whose weights
/// are not fetched (checkpoint_source).
CLI::Option* add_checkpoint(CLI::App& command, CheckpointSource& checkpoint, bool offline_config,
                            const std::string& help);
/// A data set's path, name or id.
CLI::Option* add_dataset(CLI::App& command, const std::string& name, std::string& dataset,
                         const std::string& help);
/// --chat-template and --chat-template-kwargs.
void add_chat_options(CLI::App& command, ChatOptions& chat);
/// --text-column, --prompt-column, --response-column and --messages-column of its records,
/// --max-record-bytes and --skip-bad-records.
void add_reading_options(CLI::App& command, RecordOptions& records);
/// Those of add_reading_options and add_chat_options.
void add_record_options(CLI::App& command, RecordOptions& records);
/// Variants of eval, which may name models.
CLI::Option* add_variants(CLI::App& command, const std::string& name,
                          std::vector<std::string>& variants, const std::string& help);

/// Replaces the values of given options by local paths, and downloads what is not there. Throws
/// Error as run/named_inputs.h does, with the name of an option that is no argument.
void fetch_inputs(Diagnostics& diagnostics);

}  // namespace kvcal
