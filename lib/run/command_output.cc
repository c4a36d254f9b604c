#include "run/command_output.h"

#include <algorithm>

#include "core/file.h"
#include "core/folder.h"
#include "core/text.h"
#include "datasets/descriptor.h"
#include "datasets/named_dataset.h"
#include "engines/engine_rules.h"
#include "hub/hub_id.h"
#include "run/command_paths.h"
#include "stored/kv_scales.h"

namespace kvcal {
namespace {

/// "owner/name" of "owner/name@COMMIT/path"; empty: not of the hub.
std::string hub_name(const std::string& source) {
  const size_t at = source.find('@');
  if (at == source.npos) return {};
  const std::string commit = source.substr(at + 1, source.find('/', at) - at - 1);
  return is_commit_hash(commit) ? source.substr(0, at) : std::string();
}

std::string path_in(const Json& manifest, const char* key) {
  const Json* object = find_field(manifest, key);
  const Json* path = object ? member(*object, "path") : nullptr;
  return path && path->is_string() ? path->get<std::string>() : std::string();
}

/// The hub's id of a data set: of its cached copy, or of the descriptor that a name stands for.
std::string dataset_id(const std::string& path) {
  if (path.empty()) return {};
  if (named_dataset(path, ".yaml")) return read_descriptor(path, {}).source;
  return hub_name(path);
}

std::vector<std::string> serving_lines(const std::vector<ServedEngine>& engines) {
  std::vector<std::string> lines;
  for (const ServedEngine& engine : engines)
    if (engine.outcome == LoadOutcome::kLoaded)
      lines.push_back(engine.title + ": `" + engine.note_inside + "`");
  const std::string lost = titles_of(engines, {LoadOutcome::kLost, LoadOutcome::kRefused});
  const std::string unknown = titles_of(engines, {LoadOutcome::kNotKnown});
  if (!lost.empty()) lines.push_back("not used by " + lost);
  if (!unknown.empty()) lines.push_back("not run with such models: " + unknown);
  return lines;
}

/// vLLM reads every form of weights that kvcal writes.
std::vector<std::string> weights_serving_lines() {
  const EngineChoice vllm = choose_engine("vllm");
  return {vllm.title() + ": `" + std::string(vllm.rules().command) + " .`"};
}

/// The output is whole, so that it cannot be read again is no failure of the run, but of --for.
std::vector<ServedEngine> not_asked(const Error& error, const OutputOptions& options,
                                    Diagnostics& diagnostics) {
  diagnostics.warn("the output was written; the engines' rules cannot be asked about it: " +
                   error.message());
  std::vector<ServedEngine> asked;
  for (const std::string& name : options.engines)
    asked.push_back(
        {.name = name, .title = name, .outcome = LoadOutcome::kRefused, .note = error.message()});
  return asked;
}

}  // namespace

void write_card(const fs::path& folder, const std::string& format, const ModelDir& source,
                const Json& manifest, const ModelCard& more, const CardNames& names) {
  const std::string name = name_of_model(source), origin = path_in(manifest, "model");
  ModelCard card = card_of_manifest(manifest, name, format);
  card.base_model =
      names.base_model.empty() ? hub_name(origin.empty() ? name : origin) : names.base_model;
  if (std::string id = dataset_id(path_in(manifest, "dataset")); !id.empty())
    card.datasets.push_back(std::move(id));
  card.accuracy = more.accuracy;
  card.facts.insert(card.facts.end(), more.facts.begin(), more.facts.end());
  card.notes = more.notes;
  card.serving = more.serving.empty() ? weights_serving_lines() : more.serving;
  SourceCard theirs = read_source_card(source.path());
  if (!names.license.empty()) {
    std::erase_if(theirs.fields,
                  [](const CardField& field) { return field.key.starts_with("license"); });
    theirs.fields.push_back({.key = "license", .values = {names.license}});
  }
  write_text_file(folder / kCardName, card_text(card, theirs));
}

std::vector<WrittenFolder> write_cards(const OutputFormats& formats, const ExportInput& input,
                                       const Json& manifest, const OutputTexts& texts,
                                       const fs::path& output) {
  std::vector<WrittenFolder> folders = formats.placed_folders(output);
  LabelledLines lines = texts.card_lines;
  if (input.kept)
    lines.emplace(lines.begin(), "weights", "as in the source, " + input.kept->format);
  for (size_t i = 0; i < folders.size(); ++i) {
    WrittenFolder& folder = folders[i];
    if (folder.is_overlay || !any_has(folder.format, &OutputFormat::is_checkpoint)) continue;
    const fs::path here = formats.folder_of(output, i);
    if (!input.calibration.layers.empty())
      folder.engines = served_engines({{.checkpoint = here, .shown = folder.path}}, texts.config,
                                      checkpoint_engines(), formats.tp_size());
    write_card(here, folder.format, input.model, manifest,
               {.accuracy = texts.accuracy,
                .facts = lines,
                .serving = serving_lines(folder.engines),
                .notes = formats.notes(i, input)},
               formats.card());
  }
  return folders;
}

WrittenOutput stage_output(const OutputFormats& formats, const ExportInput& input,
                           AtomicDirectory& output, int threads, const OutputTexts& texts,
                           Diagnostics& diagnostics, StagedOutputs& outputs) {
  WrittenOutput made{.checkpoint = formats.write(input, output.path(), threads, diagnostics)};
  made.manifest = texts.manifest(made.checkpoint);
  if (formats.is_for_nvfp4())
    made.manifest["kv_cache"] = {
        {"dtype", "nvfp4"},
        {"block", 16},
        {"scale", "amax / 448"},
        {"source",
         "ModelOpt's Hugging Face export, whose scales vLLM and TensorRT-LLM use as they are; its "
         "Megatron export and AutoRound write amax / 2688"}};
  // The scales are those of a rewritten model, whose own manifest does not come along.
  if (const Json smoothing = smoothing_of_folder(input.model.path()); !smoothing.is_null())
    made.manifest["smoothing"] = smoothing;
  write_text_file(output.path() / kManifestName, dump_json(made.manifest));
  made.folders = write_cards(formats, input, made.manifest, texts, output.path());
  formats.stage(output, outputs);
  return made;
}

WrittenOutput write_output(const OutputFormats& formats, const ExportInput& input,
                           AtomicDirectory& output, int threads, const OutputTexts& texts,
                           Diagnostics& diagnostics) {
  StagedOutputs outputs;
  WrittenOutput made = stage_output(formats, input, output, threads, texts, diagnostics, outputs);
  outputs.commit();
  return made;
}

void add_accuracy(const std::vector<WrittenFolder>& folders, const LabelledLines& lines) {
  for (const WrittenFolder& folder : folders)
    if (const fs::path path = folder.path / kCardName; is_there(path))
      write_file_atomically(path, with_accuracy(read_text(path), lines), true);
}

std::vector<ServedEngine> engines_served(const std::vector<WrittenFolder>& folders,
                                         const ModelConfig& config, bool has_scales,
                                         const std::string& model, const OutputOptions& options,
                                         Diagnostics& diagnostics) {
  if (folders.empty() || !has_scales) return {};
  std::vector<ServedFolder> served;
  for (const WrittenFolder& folder : folders) {
    if (folder.is_overlay) return {};
    if (any_has(folder.format, &OutputFormat::is_checkpoint)) {
      served.push_back({.checkpoint = folder.path, .known = folder.engines});
      continue;
    }
    // Engines of other files are asked by name.
    const OutputFormat* format = kWriters.find(folder.format);
    if (!format || (options.engines.empty() && format->file != kScalesJsonName)) continue;
    const fs::path file = is_folder(folder.path) ? folder.path / format->file : folder.path;
    served.push_back({.checkpoint = model, .scales = file});
  }
  if (served.empty()) return {};
  try {
    return served_engines(served, config,
                          options.engines.empty() ? checkpoint_engines() : options.engines,
                          options.tp_size);
  } catch (const Error& error) {
    return not_asked(error, options, diagnostics);
  }
}

namespace {

std::string answer_line(const ServedEngine& engine) {
  constexpr std::string_view kSubject = "it ";
  const std::string word(name_of(engine.outcome));
  if (engine.outcome == LoadOutcome::kNotKnown) return engine.title + ": " + word + '\n';
  const bool says_so =
      engine.outcome == LoadOutcome::kRefused && engine.note.starts_with("it refuses ");
  return engine.title + ": " +
         (says_so ? engine.note.substr(kSubject.size()) : word + ": " + engine.note) + '\n';
}

/// The engines that load the scales in one line, and how the first is started.
std::string loading_text(const std::vector<ServedEngine>& engines) {
  const std::string loading = titles_of(engines, {LoadOutcome::kLoaded});
  const std::string rest = " (--verbose tells why, and what the others do)\n";
  if (loading.empty()) {
    const bool is_known = !titles_of(engines, {LoadOutcome::kLost, LoadOutcome::kRefused}).empty();
    return (is_known ? "loaded by no engine that was run with such models"
                     : "engines: not known, none was run with such models") +
           rest;
  }
  const auto first = std::ranges::find(engines, LoadOutcome::kLoaded, &ServedEngine::outcome);
  return "loaded by " + loading + rest + "  $ " + first->note + '\n';
}

}  // namespace

std::string output_text(const std::vector<WrittenFolder>& folders,
                        const std::vector<ServedEngine>& engines, EngineLines lines) {
  std::string text;
  for (const WrittenFolder& folder : folders)
    text += "wrote " + folder.format + (folder.is_overlay ? " (overlay)" : "") + ": " +
            folder.path.string() + '\n';
  if (engines.empty()) return text;
  if (lines == EngineLines::kLoading) return text + loading_text(engines);
  return text + join(engines, "", answer_line);
}

void check_engines_asked(const std::vector<ServedEngine>& engines, const OutputOptions& options) {
  if (options.engines.empty()) return;
  std::vector<std::string> losing;
  for (const ServedEngine& engine : engines)
    if (engine.outcome == LoadOutcome::kLost || engine.outcome == LoadOutcome::kRefused)
      losing.push_back(engine.name + " (" + engine.note + ")");
  if (!losing.empty())
    fail(options.output, ": was written, and is not for ", join(losing, ", nor "));
}

}  // namespace kvcal
