#include "commands.h"
#include "input_options.h"
#include "kvcal_version.h"
#include "options.h"
#include "terminal/progress.h"

namespace kvcal {

void add_convert(CLI::App& app, std::function<void()>& run) {
  auto request = std::make_shared<ConversionRequest>();
  auto json = std::make_shared<bool>(false);
  request->version = KVCAL_VERSION;
  CLI::App* command = app.add_subcommand(
      "convert", "Write a checkpoint's KV scales, and its FP8 weights, in another format");
  add_model(*command, "checkpoint", request->checkpoint, "Model folder, or an id of the hub")
      ->required();
  command
      ->add_option("--format,--to", request->output.formats,
                   "compressed-tensors, fp8, modelopt, quark, tgi or scales-json; may be repeated, "
                   "or joined by '+' for one folder; needed without --for")
      ->take_all();
  add_family_options(*command, request->family);
  add_engine_option(*command, request->output);
  add_target_options(*command, request->output)->required();
  add_model(*command, "--scales", request->scales,
            "Where the scales are from instead of the checkpoint: kv_cache_scales.json, a "
            "folder of TensorRT-LLM rank files, an overlay, or another checkpoint");
  command
      ->add_option("--strategy", request->strategy,
                   "tensor merges the scales of heads; attn_head gives each head that of its rank; "
                   "default: as the source has them, "
                   "ranks merged unless scales-json alone is written")
      ->check(CLI::IsMember({"tensor", "attn_head"}));
  command
      ->add_option("--fp8-dialect", request->dialect,
                   "What the scales are for: fn (E4M3FN) or fnuz (E4M3FNUZ, MI300), where the "
                   "format and its readers know both")
      ->check(CLI::IsMember({"fn", "fnuz"}));
  command->add_flag("--json", *json, "Print the manifest instead of tables");
  command->callback([request, json, &run] {
    if (request->output.formats.empty() && request->output.engines.empty())
      throw CLI::RequiredError("--format or --for");
    run = [request, json] {
      TerminalDiagnostics diagnostics;
      print_conversion(*request, convert_checkpoint(*request, diagnostics), *json);
    };
  });
}

}  // namespace kvcal
