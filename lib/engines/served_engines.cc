#include "engines/verify.h"

#include <algorithm>

#include "core/file.h"
#include "core/folder.h"
#include "core/text.h"
#include "engines/engine_verdicts.h"
#include "stored/kv_scales.h"

namespace kvcal {
namespace {

/// One engine in front of one folder, started in one way.
struct Trial {
  VerifyReport report;
  std::string arguments = {};  ///< beyond the folder
  fs::path scales = {};        ///< a file that is an argument behind them
  std::string skipped = {};    ///< the last argument: layers that stay in 16 bits
  bool is_rocm = false;
};

/// By the rules, whether the engine was run or not.
bool is_used(const Trial& trial) {
  const VerifyReport& report = trial.report;
  return report.loads && !loses_scales(report) && has_quantized_cache(report) &&
         holds_scales(report);
}

LoadOutcome outcome_of(const Trial& trial) {
  if (!trial.report.is_known) return LoadOutcome::kNotKnown;
  if (is_used(trial)) return LoadOutcome::kLoaded;
  return trial.report.loads ? LoadOutcome::kLost : LoadOutcome::kRefused;
}

/// The file beside the scales, or in the checkpoint; empty: none.
fs::path scales_file_of(const ServedFolder& folder, const EngineRules& rules) {
  if (!folder.scales.empty()) return folder.scales;
  const fs::path inside = folder.checkpoint / rules.scales_file.name;
  return is_there(inside) ? inside : fs::path();
}

/// A path as commands show it: one in the checkpoint by the checkpoint's name.
std::string shown_path(const ServedFolder& folder, const fs::path& path, const fs::path& shown) {
  if (shown.empty() || !lies_in(path, folder.checkpoint)) return path.string();
  const fs::path inside = path.lexically_relative(folder.checkpoint);
  return shown == "."    ? inside.string()
         : inside == "." ? shown.string()
                         : (shown / inside).string();
}

/// Layers without a scale where others have one.
std::vector<int64_t> layers_without_scales(const VerifyReport& report) {
  std::vector<int64_t> layers;
  for (const EngineLayer& layer : report.layers)
    if (layer.k.source.empty() && layer.v.source.empty()) layers.push_back(layer.layer);
  if (layers.size() == report.layers.size()) layers.clear();
  return layers;
}

/// What tells an engine the cache of a file of its own form.
std::string kind_argument(const ScalesFileRules& file, const VerifyReport& report) {
  if (!file.kind_argument || report.layers.empty()) return {};
  return " " +
         file.kind_argument(report.kv_cache_dtype == "int8", report.layers.front().k.values.size());
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
  const auto run = [&](const std::string& arguments) {
    options.skip_layers.clear();
    Trial trial{.report = verify_checkpoint(folder.checkpoint, engine, options),
                .arguments = arguments,
                .scales = options.scales,
                .is_rocm = options.is_rocm};
    if (rules.skip_argument.empty() || trial.report.kv_cache_dtype == "auto") return trial;
    options.skip_layers = layers_without_scales(trial.report);
    if (options.skip_layers.empty()) return trial;
    trial.report = verify_checkpoint(folder.checkpoint, engine, options);
    trial.skipped =
        " " + std::string(rules.skip_argument) + " " +
        join(options.skip_layers, " ", [](int64_t layer) { return std::to_string(layer); });
    return trial;
  };
  if (rules.scales_file.read) options.scales = scales_file_of(folder, rules);
  Trial best = run("");
  if (!options.scales.empty()) {
    best.arguments = kind_argument(rules.scales_file, best.report);
    return best;
  }
  if (is_used(best) || rules.fp8_argument.empty()) return best;
  options.kv_cache_dtype = "fp8_e4m3";
  const std::string arguments = " " + std::string(rules.fp8_argument);
  Trial told = run(arguments);
  if (is_used(told)) return told;
  if (best.report.loads && best.report.kv_cache_dtype == "auto") best = std::move(told);
  options.scales = scales_file_of(folder, rules);
  if (!rules.scales_file.is_read || options.scales.empty()) return best;
  told = run(arguments);
  return is_used(told) ? told : best;
}

/// "vllm serve OUT --kv-cache-dtype fp8", or the settings of an engine without a command. shown: a
/// name for the folder; empty: its path.
std::string command_of(const EngineRules& rules, const ServedFolder& folder, const Trial& trial,
                       const fs::path& shown) {
  const std::string command(rules.command);
  std::string line = command + (command.empty() ? "" : " ") +
                     shell_word(shown_path(folder, folder.checkpoint, shown)) + trial.arguments;
  if (!trial.scales.empty())
    line +=
        " " + file_argument(rules.scales_file, shell_word(shown_path(folder, trial.scales, shown)));
  return line + trial.skipped + (trial.is_rocm ? ", on MI300" : "");
}

/// The first error, and the formats that the engine reads.
std::string reason_of(const EngineChoice& engine, const Trial& trial,
                      const std::string& model_type) {
  std::string reason = loses_scales(trial.report) ? trial.report.findings.front().message
                                                  : std::string("it uses none of the scales");
  std::vector<std::string> formats;
  for (const EngineVerdict& verdict : engine_verdicts(engine, model_type))
    if (verdict.reads == Reads::kYes) formats.emplace_back(verdict.format);
  if (!formats.empty()) reason += "; of these models it reads " + join(formats, ", ");
  return reason;
}

ServedEngine served(const ServedFolder& folder, const ModelConfig& config, const std::string& name,
                    int64_t tp_size) {
  const auto known = std::ranges::find(folder.known, name, &ServedEngine::name);
  if (known != folder.known.end()) return *known;
  const EngineChoice engine = choose_engine(name);
  const Trial trial = best_trial(folder, config, name, tp_size);
  const std::string not_run =
      trial.report.is_known ? "" : "not run with such a model; by its rules: ";
  ServedEngine answer{.name = name,
                      .title = engine.title(),
                      .outcome = outcome_of(trial),
                      .note = not_run,
                      .note_inside = not_run,
                      .is_used = is_used(trial)};
  if (answer.is_used) {
    answer.note += command_of(engine.rules(), folder, trial, folder.shown);
    answer.note_inside += command_of(engine.rules(), folder, trial, ".");
  } else {
    answer.note += reason_of(engine, trial,
                             required_string(ModelDir(folder.checkpoint).config(), "model_type"));
  }
  return answer;
}

}  // namespace

std::string titles_of(const std::vector<ServedEngine>& engines,
                      std::initializer_list<LoadOutcome> outcomes) {
  std::vector<std::string> titles;
  for (const ServedEngine& engine : engines)
    if (std::ranges::find(outcomes, engine.outcome) != outcomes.end())
      titles.push_back(engine.title);
  return join(titles, ", ");
}

std::string_view name_of(LoadOutcome outcome) {
  constexpr std::string_view kWords[] = {"loaded", "not known", "lost", "refused"};
  return kWords[static_cast<size_t>(outcome)];
}

std::vector<ServedEngine> served_engines(const std::vector<ServedFolder>& folders,
                                         const ModelConfig& config,
                                         const std::vector<std::string>& engines, int64_t tp_size) {
  std::vector<ServedEngine> all;
  for (const std::string& name : engines) {
    ServedEngine answer = served(folders.front(), config, name, tp_size);
    for (size_t i = 1; i < folders.size() && !answer.is_used; ++i)
      if (ServedEngine other = served(folders[i], config, name, tp_size); other.is_used)
        answer = std::move(other);
    all.push_back(std::move(answer));
  }
  return all;
}

}  // namespace kvcal
