#include "run/output_card.h"

#include "core/file.h"
#include "core/folder.h"
#include "core/join.h"
#include "datasets/descriptor.h"
#include "datasets/named_dataset.h"
#include "engines/engine_rules.h"
#include "engines/served_engines.h"
#include "export/model_card.h"
#include "hub/hub_id.h"
#include "run/named_inputs.h"

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
  if (!object || !object->is_object()) return {};
  const Json* path = find_field(*object, "path");
  return path && path->is_string() ? path->get<std::string>() : std::string();
}

/// The hub's id of a data set: of its cached copy, or of the descriptor that a name stands for.
std::string dataset_id(const std::string& path) {
  if (path.empty()) return {};
  if (named_dataset(path, ".yaml")) return read_descriptor(path, {}).source;
  return hub_name(path);
}

std::vector<std::string> serving_lines(const fs::path& folder, const CardFacts& facts) {
  std::vector<std::string> lines;
  std::vector<std::string> lost, unknown;
  const std::vector<ServedEngine> engines = served_engines(
      {{.checkpoint = folder, .shown = "."}}, *facts.config, engine_rules().names(), facts.tp_size);
  for (const ServedEngine& engine : engines) {
    if (engine.fate == Fate::kLoaded)
      lines.push_back(engine.title + ": `" + engine.note + "`");
    else
      (engine.fate == Fate::kNotKnown ? unknown : lost).push_back(engine.title);
  }
  if (!lost.empty()) lines.push_back("not used by " + join(lost, ", "));
  if (!unknown.empty()) lines.push_back("not run with such models: " + join(unknown, ", "));
  return lines;
}

/// vLLM reads every form of weights that kvcal writes.
std::vector<std::string> weights_serving_lines() {
  const EngineRules& vllm = engine_rules().at("vllm");
  return {std::string(vllm.title) + " " + std::string(vllm.versions.front()) + ": `" +
          std::string(vllm.command) + " .`"};
}

}  // namespace

void write_card(const fs::path& folder, const std::string& format, const ModelDir& source,
                const Json& manifest, const CardFacts& facts) {
  const std::string name = name_of_model(source), origin = path_in(manifest, "model");
  ModelCard card = card_of_manifest(manifest, name, format);
  card.base_model = hub_name(origin.empty() ? name : origin);
  if (std::string id = dataset_id(path_in(manifest, "dataset")); !id.empty())
    card.datasets.push_back(std::move(id));
  card.accuracy = facts.accuracy;
  card.facts.insert(card.facts.end(), facts.lines.begin(), facts.lines.end());
  card.notes = facts.notes;
  card.serving = facts.config ? serving_lines(folder, facts) : weights_serving_lines();
  write_text_file(folder / kCardName, card_text(card, read_source_card(source.path())));
}

void add_accuracy(const std::vector<WrittenFolder>& folders,
                  const std::vector<std::pair<std::string, std::string>>& lines) {
  for (const WrittenFolder& folder : folders)
    if (const fs::path path = folder.path / kCardName; is_there(path))
      write_file_atomically(path, with_accuracy(read_text(path), lines), true);
}

}  // namespace kvcal
