#include <iostream>

#include "commands.h"
#include "core/error.h"
#include "core/join.h"
#include "engines/engine_rules.h"
#include "input_options.h"
#include "inspect/verification_text.h"
#include "options.h"
#include "quant/kv_dtype.h"
#include "terminal/session.h"

namespace kvcal {
namespace {

struct VerifyCommand {
  CheckpointSource checkpoint;
  std::vector<std::string> engines;
  VerifyOptions options;
  bool allow_16_bit = false, json = false;
};

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
      verify(command.checkpoint.path, command.engines, command.options);
  if (command.json) {
    Json list = Json::array();
    for (const VerifyReport& report : reports) list.push_back(report_json(report));
    std::cout << dump_json(command.checkpoint.named(list.size() == 1 ? list[0] : list));
  }
  size_t num_rows = 0;
  for (const VerifyReport& report : reports) num_rows += report.layers.size();
  for (const VerifyReport& report : reports) {
    if (command.json) continue;
    if (&report != &reports.front()) std::cout << '\n';
    std::cout << command.checkpoint.named(
        verification_text(report, command.checkpoint.name, num_rows > most_rows()));
  }
  const Verdict verdict = verdict_of(reports);
  std::cout.flush();
  const std::string problem = problem_of(verdict, command.options, command.allow_16_bit);
  if (!problem.empty()) fail(command.checkpoint.name, ": ", problem);
  if (!command.json) std::cout << verdict_text(verdict) << '\n';
}

}  // namespace

void add_verify(CLI::App& app, std::function<void()>& run) {
  auto options = std::make_shared<VerifyCommand>();
  CLI::App* command = app.add_subcommand(
      "verify", "Tell what serving engines would make of a checkpoint's KV scales");
  add_checkpoint(*command, options->checkpoint, /*offline_config=*/false,
                 "Model folder, with or without scales, or an id of the hub, of which headers and "
                 "scales alone are fetched")
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
  add_skip_layers_option(*command, options->options.skip_layers,
                         "Layers that the engine is told to leave in 16 bits, as 0,1");
  command->add_flag("--rocm", options->options.is_rocm,
                    "On a platform that stores E4M3 as FNUZ (MI300)");
  add_number(*command, "--tp-size", options->options.tp_size,
             "Tensor parallel ranks the engine runs", 1, 1024);
  add_text(*command, "--scales", options->options.scales,
           "A kv_cache_scales.json that the engine is given beside the checkpoint");
  command->add_flag("--allow-16-bit", options->allow_16_bit,
                    "Accept a checkpoint without scales; otherwise it is an error");
  command->add_flag("--json", options->json, "Print JSON instead of tables");
  command->callback([options, &run] {
    run = [options] { in_name_of(options->checkpoint, [&] { run_verify(*options); }); };
  });
}

}  // namespace kvcal
