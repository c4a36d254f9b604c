#include "engines/verify.h"

#include <algorithm>
#include <optional>

#include "core/file.h"
#include "core/folder.h"
#include "core/join.h"
#include "core/shell_word.h"
#include "engines/engine_verdicts.h"
#include "stored/dialect.h"
#include "stored/kv_scales.h"

namespace kvcal {
namespace {

/// One engine in front of one folder, started in one way.
struct Trial {
  VerifyReport report;
  std::string arguments = {};  ///< beyond the folder
  bool is_rocm = false;
};

/// By the rules, whether the engine was run or not.
bool is_used(const Trial& trial) {
  const VerifyReport& report = trial.report;
  const auto is_held = [](const HeldLayer& layer) {
    return !layer.k.source.empty() || !layer.v.source.empty();
  };
  return report.loads && !loses_scales(report) && report.kv_cache_dtype != "auto" &&
         std::ranges::any_of(report.layers, is_held);
}

Fate fate_of(const Trial& trial) {
  if (!trial.report.is_known) return Fate::kNotKnown;
  if (is_used(trial)) return Fate::kLoaded;
  return trial.report.loads ? Fate::kLost : Fate::kRefused;
}

/// The file beside the scales, or in the checkpoint; empty: none.
fs::path scales_file_of(const ServedFolder& folder) {
  if (!folder.scales.empty()) return folder.scales;
  const fs::path inside = folder.checkpoint / kScalesJsonName;
  return is_there(inside) ? inside : fs::path();
}

/// A path as commands show it: one in the checkpoint by the checkpoint's name.
std::string shown_path(const ServedFolder& folder, const fs::path& path) {
  if (folder.shown.empty() || !lies_in(path, folder.checkpoint)) return path.string();
  return (folder.shown / path.lexically_relative(folder.checkpoint)).lexically_normal().string();
}

/// Layers without a scale where others have one.
std::vector<int64_t> layers_without_scales(const VerifyReport& report) {
  std::vector<int64_t> layers;
  for (const HeldLayer& layer : report.layers)
    if (layer.k.source.empty() && layer.v.source.empty()) layers.push_back(layer.layer);
  if (layers.size() == report.layers.size()) layers.clear();
  return layers;
}

/// Tries the engine's own settings, an FP8 cache, and the file of scales; where layers have no
/// scale, with these left in 16 bits. Returns the first that uses the scales, else the last that
/// keeps a cache in FP8, whose findings are about the scales.
Trial best_trial(const ServedFolder& folder, const ModelConfig& config, const std::string& engine,
                 int64_t tp_size) {
  const EngineRules& rules = choose_engine(engine).rules();
  VerifyOptions options{.scales = {}, .family = config.chosen};
  // Scales of E4M3FNUZ are for platforms that store it.
  options.is_rocm = read_dialect(ModelDir(folder.checkpoint)) == fp8::Format::kE4m3Fnuz;
  options.tp_size = tp_size;
  const auto run = [&](std::string arguments) {
    options.skip_layers.clear();
    Trial trial{verify_checkpoint(folder.checkpoint, engine, options), arguments, options.is_rocm};
    if (rules.skip_argument.empty() || trial.report.kv_cache_dtype == "auto") return trial;
    options.skip_layers = layers_without_scales(trial.report);
    if (options.skip_layers.empty()) return trial;
    trial.report = verify_checkpoint(folder.checkpoint, engine, options);
    trial.arguments +=
        " " + std::string(rules.skip_argument) + " " +
        join(options.skip_layers, " ", [](int64_t layer) { return std::to_string(layer); });
    return trial;
  };
  Trial best = run("");
  if (is_used(best) || rules.fp8_argument.empty()) return best;
  options.kv_cache_dtype = "fp8_e4m3";
  std::string arguments = " " + std::string(rules.fp8_argument);
  Trial told = run(arguments);
  if (is_used(told)) return told;
  if (best.report.loads && best.report.kv_cache_dtype == "auto") best = std::move(told);
  options.scales = scales_file_of(folder);
  if (!rules.scales_file.is_read || options.scales.empty()) return best;
  arguments += " " + std::string(rules.scales_file.argument) + " " +
               shell_word(shown_path(folder, options.scales));
  told = run(arguments);
  return is_used(told) ? told : best;
}

/// "vllm serve OUT --kv-cache-dtype fp8", or the settings of an engine without a command.
std::string command_of(const EngineRules& rules, const ServedFolder& folder, const Trial& trial) {
  const std::string command(rules.command);
  return command + (command.empty() ? "" : " ") +
         shell_word(shown_path(folder, folder.checkpoint)) + trial.arguments +
         (trial.is_rocm ? ", on MI300" : "");
}

/// The first error, and the formats that the engine reads.
std::string reason_of(const EngineChoice& engine, const Trial& trial,
                      const std::string& model_type) {
  std::string reason = loses_scales(trial.report) ? trial.report.findings.front().message
                                                  : std::string("it uses none of the scales");
  std::vector<std::string> formats;
  for (const EngineVerdict& verdict : engine_verdicts(model_type))
    if (verdict.name == engine.name && verdict.reads == Reads::kYes)
      formats.emplace_back(verdict.format);
  if (!formats.empty()) reason += "; of these models it reads " + join(formats, ", ");
  return reason;
}

ServedEngine served(const std::vector<ServedFolder>& folders, const ModelConfig& config,
                    const std::string& name, int64_t tp_size) {
  const EngineChoice engine = choose_engine(name);
  std::optional<Trial> first;
  const ServedFolder* used = nullptr;
  for (const ServedFolder& folder : folders) {
    Trial trial = best_trial(folder, config, name, tp_size);
    if (is_used(trial)) used = &folder;
    if (used || !first) first = std::move(trial);
    if (used) break;
  }
  const std::string type =
      required_string(ModelDir(folders.front().checkpoint).config(), "model_type");
  const std::string not_run =
      first->report.is_known ? "" : "not run with such a model; by its rules: ";
  return {.name = name,
          .title = std::string(engine.rules().title) + " " + engine.version,
          .fate = fate_of(*first),
          .note = not_run + (used ? command_of(engine.rules(), *used, *first)
                                  : reason_of(engine, *first, type))};
}

}  // namespace

std::string_view name_of(Fate fate) {
  constexpr std::string_view kWords[] = {"loaded", "not known", "lost", "refused"};
  return kWords[static_cast<size_t>(fate)];
}

std::vector<ServedEngine> served_engines(const std::vector<ServedFolder>& folders,
                                         const ModelConfig& config,
                                         const std::vector<std::string>& engines, int64_t tp_size) {
  std::vector<ServedEngine> all;
  for (const std::string& engine : engines) all.push_back(served(folders, config, engine, tp_size));
  return all;
}

}  // namespace kvcal
