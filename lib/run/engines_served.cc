#include "run/engines_served.h"

#include "core/folder.h"
#include "core/join.h"
#include "engines/engine_rules.h"
#include "export/joined_writer.h"
#include "stored/kv_scales.h"

namespace kvcal {
namespace {

/// The output is whole, so that it cannot be read again is no failure of the run, but of --for.
std::vector<ServedEngine> not_asked(const Error& error, const OutputOptions& options,
                                    Diagnostics& diagnostics) {
  diagnostics.warn("the output was written; the engines' rules cannot be asked about it: " +
                   error.message());
  std::vector<ServedEngine> asked;
  for (const std::string& name : options.engines)
    asked.push_back({.name = name, .title = name, .fate = Fate::kRefused, .note = error.message()});
  return asked;
}

}  // namespace

std::vector<ServedEngine> engines_served(const std::vector<WrittenFolder>& folders,
                                         const ModelConfig& config, bool has_scales,
                                         const std::string& model, const OutputOptions& options,
                                         Diagnostics& diagnostics) {
  if (folders.empty() || !has_scales) return {};
  std::vector<ServedFolder> served;
  for (const WrittenFolder& folder : folders) {
    if (folder.is_overlay) return {};
    served.push_back(any_has(folder.format, &OutputFormat::is_checkpoint)
                         ? ServedFolder{.checkpoint = folder.path}
                         : ServedFolder{.checkpoint = model,
                                        .scales = is_folder(folder.path)
                                                      ? folder.path / kScalesJsonName
                                                      : folder.path});
  }
  try {
    return served_engines(served, config,
                          options.engines.empty() ? engine_rules().names() : options.engines,
                          options.tp_size);
  } catch (const Error& error) {
    return not_asked(error, options, diagnostics);
  }
}

std::string output_text(const std::vector<WrittenFolder>& folders,
                        const std::vector<ServedEngine>& engines) {
  std::string text;
  for (const WrittenFolder& folder : folders)
    text += "wrote " + folder.format + (folder.is_overlay ? " (overlay)" : "") + ": " +
            folder.path.string() + '\n';
  std::vector<std::string> unknown;
  for (const ServedEngine& engine : engines)
    if (engine.fate == Fate::kNotKnown)
      unknown.push_back(engine.title);
    else
      text += engine.title + ": " + std::string(name_of(engine.fate)) + ": " + engine.note + '\n';
  if (!unknown.empty())
    text += "not known: " + join(unknown, ", ") +
            " (not run with such models; kvcal verify tells what their rules say)\n";
  return text;
}

void check_engines_asked(const std::vector<ServedEngine>& engines, const OutputOptions& options) {
  if (options.engines.empty()) return;
  std::vector<std::string> losing;
  for (const ServedEngine& engine : engines)
    if (engine.fate == Fate::kLost || engine.fate == Fate::kRefused)
      losing.push_back(engine.name + " (" + engine.note + ")");
  if (!losing.empty())
    fail(options.output, ": was written, and is not for ", join(losing, ", nor "));
}

}  // namespace kvcal
