#include <iostream>

#include "commands.h"
#include "conversion.h"
#include "convert/kept_quantization.h"
#include "export/overlay.h"
#include "stored/kv_scales.h"

namespace kvcal {
namespace {

struct ApplyCommand {
  std::string overlay, checkpoint;
  ConversionCommand conversion;
};

/// The overlay's format, or that of the checkpoint's quantized weights where it is another: scales
/// that lie beside them are read in their form alone.
std::string format_for(const Overlay& overlay, const ModelDir& model) {
  const auto kept = read_kept_quantization(model);
  if (!kept) return overlay.format;
  if (keeps_weights(*kept, overlay.format)) return overlay.format;
  std::cerr << "note: the checkpoint's weights are quantized in the form " << kept->format
            << ", and the scales of the overlay (" << overlay.format
            << ") are written in that form\n";
  return kept->format;
}

void run_apply(ApplyCommand command) {
  const Overlay overlay = read_overlay(command.overlay);
  const ModelDir model(command.checkpoint);
  const ModelConfig config = read_model_config(model);
  if (const KvForm* form = find_form(scale_tensors_of(model), config))
    fail(command.checkpoint, ": has KV scales already (", form->name,
         "); kvcal convert --scales replaces them");
  check_target(ModelDir(command.checkpoint), command.conversion.output.output);
  command.conversion.checkpoint = command.checkpoint;
  command.conversion.scales = command.overlay;
  command.conversion.output.formats = {format_for(overlay, model)};
  run_conversion(command.conversion);
}

}  // namespace

void add_apply(CLI::App& app, std::function<void()>& run) {
  auto options = std::make_shared<ApplyCommand>();
  CLI::App* command =
      app.add_subcommand("apply", "Put an overlay (--scales-only) on a checkpoint, 16-bit or FP8");
  command->add_option("overlay", options->overlay, "Folder that --scales-only wrote")
      ->required()
      ->check(is_not_empty());
  command->add_option("checkpoint", options->checkpoint, "Model folder")
      ->required()
      ->check(is_not_empty());
  OutputOptions& output = options->conversion.output;
  command->add_option("--output", output.output, "Folder to write; appears complete or not at all")
      ->required()
      ->check(is_not_empty());
  command->add_flag("--overwrite", output.overwrite, "Replace the output if it exists");
  command->add_flag("--json", options->conversion.json, "Print the manifest instead of tables");
  command->callback([options, &run] { run = [options] { run_apply(*options); }; });
}

}  // namespace kvcal
