#include <iostream>

#include "commands.h"
#include "core/error.h"
#include "core/join.h"
#include "core/number_text.h"
#include "core/text_table.h"
#include "input_options.h"
#include "inspect/verification.h"
#include "quant/kv_dtype.h"
#include "terminal/session.h"

namespace kvcal {
namespace {

struct VerifyCommand {
  std::string checkpoint;
  std::vector<std::string> engines;
  VerifyOptions options;
  bool allow_16_bit = false, json = false;
};

std::string scale_text(const HeldScale& scale) {
  if (scale.values.empty()) return "?";
  if (scale.values.size() == 1) return short_float(scale.values[0]);
  return std::to_string(scale.values.size()) + " values";
}

/// One source for both where they are the same.
std::string source_text(const HeldLayer& held) {
  const auto text = [](const HeldScale& scale) {
    return scale.source.empty() ? std::string("default") : scale.source;
  };
  const std::string k = text(held.k), v = text(held.v);
  return k == v ? k : k + ", " + v;
}

std::string layers_text(const Finding& finding) {
  if (finding.layers.empty()) return "";
  return (finding.layers.size() == 1 ? ", layer " : ", layers ") + range_text(finding.layers);
}

/// The least and the largest of a side's scales: "0.01 to 0.2"; "?" where none is known.
std::string spread_text(const std::vector<HeldLayer>& layers, HeldScale HeldLayer::*side) {
  std::vector<double> all;
  for (const HeldLayer& held : layers)
    all.insert(all.end(), (held.*side).values.begin(), (held.*side).values.end());
  if (all.empty()) return "?";
  const auto [least, largest] = std::ranges::minmax(all);
  return short_float(least) + " to " + short_float(largest);
}

/// The layer's source with '*' for its number.
std::string source_pattern(const HeldLayer& held) {
  const std::string number = '.' + std::to_string(held.layer) + '.', any = ".*.";
  std::string text = source_text(held);
  for (size_t at = text.find(number); at != std::string::npos;
       at = text.find(number, at + any.size()))
    text.replace(at, number.size(), any);
  return text;
}

/// A row for the layers of one source; a table of every layer where that is short.
void print_layers(const std::vector<HeldLayer>& layers, bool is_summary) {
  if (!is_summary) {
    TextTable table({"layer", "k_scale", "v_scale", "source"});
    for (const HeldLayer& held : layers)
      table.add(
          {std::to_string(held.layer), scale_text(held.k), scale_text(held.v), source_text(held)});
    std::cout << table.text();
    return;
  }
  std::vector<std::pair<std::string, std::vector<HeldLayer>>> sources;
  for (const HeldLayer& held : layers) {
    const std::string source = source_pattern(held);
    auto found = std::ranges::find(sources, source, [](const auto& one) { return one.first; });
    if (found == sources.end()) found = sources.insert(sources.end(), {source, {}});
    found->second.push_back(held);
  }
  TextTable table({"layers", "k_scale", "v_scale", "source"});
  for (const auto& [source, held] : sources)
    table.add({std::to_string(held.size()), spread_text(held, &HeldLayer::k),
               spread_text(held, &HeldLayer::v), source});
  std::cout << table.text();
}

void print_report(const VerifyReport& report, const std::string& checkpoint, bool is_summary) {
  const EngineRules& rules = engine_rules().at(report.engine);
  std::cout << rules.title << ' ' << report.version << ", " << checkpoint << ": "
            << (report.loads
                    ? "KV cache " + (report.kv_cache_dtype == "auto" ? std::string("of 16 bits")
                                                                     : report.kv_cache_dtype)
                    : std::string("refused"))
            << '\n';
  if (!report.layers.empty()) print_layers(report.layers, is_summary);
  for (const Finding& finding : report.findings) {
    std::cout << name_of(finding.severity) << layers_text(finding) << ": " << finding.message
              << '\n';
    if (!finding.remedy.empty()) std::cout << "  remedy: " << finding.remedy << '\n';
  }
}

std::string verdict_text(const Verdict& verdict) {
  if (!verdict.unknown.empty())
    return "not known: whether " + join(verdict.unknown, ", ") +
           " use the scales: they were not run with such models";
  return verdict.holding.empty() ? "OK: no scales are meant"
                                 : "OK: the scales are used by " + join(verdict.holding, ", ");
}

/// Makes one of all spellings of a dtype. "fp8" stays: it is each engine's usual FP8. Words that
/// are none stay for the check behind.
CLI::Validator one_cache_dtype_spelling() {
  return CLI::Validator(
      [](std::string& word) {
        try {
          if (word != "fp8") word = name_of(parse_kv_dtype(word));
        } catch (const Error&) {
        }
        return std::string();
      },
      "");
}

void run_verify(const VerifyCommand& command) {
  const std::vector<VerifyReport> reports =
      verify(command.checkpoint, command.engines, command.options);
  if (command.json) {
    Json list = Json::array();
    for (const VerifyReport& report : reports) list.push_back(report_json(report));
    std::cout << dump_json(list.size() == 1 ? list[0] : list);
  }
  size_t num_rows = 0;
  for (const VerifyReport& report : reports) num_rows += report.layers.size();
  for (const VerifyReport& report : reports) {
    if (command.json) continue;
    if (&report != &reports.front()) std::cout << '\n';
    print_report(report, command.checkpoint, num_rows > most_rows());
  }
  const Verdict verdict = verdict_of(reports);
  std::cout.flush();
  const std::string problem = problem_of(verdict, command.options, command.allow_16_bit);
  if (!problem.empty()) fail(command.checkpoint, ": ", problem);
  if (!command.json) std::cout << verdict_text(verdict) << '\n';
}

}  // namespace

void add_verify(CLI::App& app, std::function<void()>& run) {
  auto options = std::make_shared<VerifyCommand>();
  CLI::App* command = app.add_subcommand(
      "verify", "Tell what serving engines would make of a checkpoint's KV scales");
  add_model(*command, "checkpoint", options->checkpoint,
            "Model folder, with or without scales, or an id of the hub")
      ->required();
  add_family_options(*command, options->options.family);
  command
      ->add_option("--engine", options->engines,
                   join(engine_rules().names(), ", ") + ", or all; may be given several times")
      ->required()
      ->take_all();
  command
      ->add_option("--kv-cache-dtype", options->options.kv_cache_dtype,
                   "What the engine is told: auto, fp8, fp8_e4m3, fp8_e5m2, bfloat16 or float16")
      ->check(CLI::IsMember({"auto", "fp8", "fp8_e4m3", "fp8_e5m2", "bfloat16", "float16"}))
      ->transform(one_cache_dtype_spelling())
      ->capture_default_str();
  command->add_flag("--rocm", options->options.is_rocm,
                    "On a platform that stores E4M3 as FNUZ (MI300)");
  add_number(*command, "--tp-size", options->options.tp_size,
             "Tensor parallel ranks the engine runs", 1, 1024);
  add_text(*command, "--scales", options->options.scales,
           "A kv_cache_scales.json that the engine is given beside the checkpoint");
  command->add_flag("--allow-16-bit", options->allow_16_bit,
                    "Accept a checkpoint without scales; otherwise it is an error");
  command->add_flag("--json", options->json, "Print JSON instead of tables");
  command->callback([options, &run] { run = [options] { run_verify(*options); }; });
}

}  // namespace kvcal
