#include "run/smooth_checkpoint.h"

#include <iostream>

#include "commands.h"
#include "input_options.h"
#include "kvcal_version.h"
#include "run/calibration_text.h"
#include "terminal/progress.h"
#include "terminal/session.h"

namespace kvcal {
namespace {

void run_smooth(const SmoothRequest& request, bool json) {
  TerminalDiagnostics diagnostics;
  const SmoothResult result = smooth_checkpoint(request, diagnostics);
  if (json)
    std::cout << dump_json(result.manifest);
  else if (!is_quiet())
    std::cout << labelled_text(smoothing_lines(result)) << "wrote " << request.output << '\n';
}

}  // namespace

void add_smooth(CLI::App& app, std::function<void()>& run) {
  auto request = std::make_shared<SmoothRequest>();
  auto json = std::make_shared<bool>(false);
  request->version = KVCAL_VERSION;
  CLI::App* command = app.add_subcommand(
      "smooth", "Write a model of the same function whose K and V lose less in one kind of cache");
  add_model(*command, "model", request->model,
            "Hugging Face model of 16 or 32 bits: a folder, or an id of the hub")
      ->required();
  command
      ->add_option_function<std::string>(
          "--for",
          [request](const std::string& name) {
            request->cache =
                name == name_of(SmoothedFor::kFp8E4m3) ? SmoothedFor::kFp8E4m3 : SmoothedFor::kInt8;
          },
          "The cache that is meant: int8, for all uniform codes, or fp8_e4m3, which is for one "
          "scale "
          "a layer or head and ruins other caches")
      ->check(CLI::IsMember({"int8", "fp8_e4m3"}))
      ->default_str("int8");
  add_dataset(*command, "--dataset", request->dataset,
              "Text that shows how far channels reach, as of calibrate; default: calibration");
  add_record_options(*command, request->records);
  add_number(*command, "--num-samples", request->samples.num_calibration_samples, "Samples to run",
             1, int64_t{1} << 40);
  add_number(*command, "--max-seq-length", request->samples.max_seq_length,
             "Tokens of a sample at most", 1, int64_t{1} << 30);
  add_text(*command, "-o,--output", request->output,
           "Folder to write; appears complete or not at all")
      ->required();
  command->add_flag("--overwrite", request->overwrite, "Replace the output if it exists");
  command->add_flag("--json", *json, "Print the manifest instead of a summary");
  add_family_options(*command, request->family);
  add_device_options(*command, request->device);
  command->callback(
      [request, json, &run] { run = [request, json] { run_smooth(*request, *json); }; });
}

}  // namespace kvcal
