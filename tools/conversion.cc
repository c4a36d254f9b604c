#include "conversion.h"

#include <algorithm>
#include <iostream>

#include "convert/conversion.h"
#include "convert/conversion_manifest.h"
#include "core/file.h"
#include "core/registry.h"
#include "export/checkpoint_copy.h"
#include "export/joined_writer.h"
#include "export/manifest.h"
#include "kvcal_version.h"
#include "progress.h"
#include "table.h"

namespace kvcal {
namespace {

ConversionOptions options_of(const ConversionCommand& command) {
  static const Registry<Strategy> kStrategies{
      "--strategy", {{"attn_head", Strategy::kAttnHead}, {"tensor", Strategy::kTensor}}};
  static const Registry<fp8::Format> kDialects{
      "--fp8-dialect", {{"fn", fp8::Format::kE4m3Fn}, {"fnuz", fp8::Format::kE4m3Fnuz}}};
  ConversionOptions options{.scales = command.scales, .strategy = {}, .dialect = {}};
  if (!command.strategy.empty()) options.strategy = kStrategies.at(command.strategy);
  if (!command.dialect.empty()) options.dialect = kDialects.at(command.dialect);
  return options;
}

/// No output replaces what the scales are from, nor lies in it.
void check_scales_stay(const ConversionCommand& command) {
  if (command.scales.empty()) return;
  const fs::path scales = command.scales, output = command.output.output;
  if (lies_in(scales, output) || lies_in(output, scales))
    fail(output.string(), ": holds ", scales.string(),
         ", where the scales are from, or lies in it");
}

bool loses(const LayerLoss& loss) {
  return loss.k_octaves > 0.0 || loss.v_octaves > 0.0;
}

std::vector<FormatLosses> all_losses(const Conversion& conversion, const OutputFormats& formats,
                                     int64_t tp_size) {
  std::vector<FormatLosses> losses;
  for (const std::string& format : formats.names())
    for (const std::string& name : joined_names(format))
      if (std::ranges::find(losses, name, &FormatLosses::format) == losses.end())
        losses.push_back({name, losses_of(conversion, *make_writer(name), tp_size)});
  return losses;
}

std::string octaves(double value) {
  return value > 0.0 ? short_float(value) : "0";
}

/// Every layer where scales were merged, and by how much the range of its codes is smaller.
void print_losses(const std::vector<FormatLosses>& losses) {
  for (const FormatLosses& format : losses) {
    if (std::ranges::none_of(format.layers, loses)) {
      if (!format.layers.empty())
        std::cout << format.format << ": " << format.layers.size()
                  << " layers, no scale changes for being merged\n";
      continue;
    }
    std::cout << format.format
              << ": scales are merged by the largest; octaves are lost at the lower end, of 17.8 "
                 "that E4M3 has\n";
    Table table(
        {"layer", "k_scale", "v_scale", "k_written", "v_written", "k_octaves", "v_octaves"});
    for (const LayerLoss& loss : format.layers)
      table.add({std::to_string(loss.layer), short_float(static_cast<double>(loss.k_scale)),
                 short_float(static_cast<double>(loss.v_scale)),
                 short_float(static_cast<double>(loss.k_written)),
                 short_float(static_cast<double>(loss.v_written)), octaves(loss.k_octaves),
                 octaves(loss.v_octaves)});
    table.print(std::cout);
  }
}

void print_source(const Conversion& conversion) {
  const Calibration& calibration = conversion.input().calibration;
  if (!calibration.layers.empty())
    std::cout << "scales: " << conversion.source().form << " of " << calibration.layers.size()
              << " layers, from " << conversion.source().path << '\n';
  if (const KeptQuantization* kept = conversion.kept())
    std::cout << "weights: " << kept->format << ", left as they are\n";
  else if (calibration.plan.quantizes_weights())
    std::cout << "weights: FP8, " << calibration.plan.linears.size()
              << " with their codes, scales written anew\n";
}

}  // namespace

void run_conversion(const ConversionCommand& command) {
  TerminalDiagnostics diagnostics;
  const OutputFormats formats(command.output, command.format_option);
  const Conversion conversion(command.checkpoint, formats.names(), options_of(command),
                              diagnostics);
  for (const std::string& warning : conversion.warnings()) diagnostics.warn(warning);
  const ExportInput input = conversion.input();
  formats.check(input);
  check_target(conversion.model(), command.output.output);
  check_scales_stay(command);
  const auto losses = all_losses(conversion, formats, command.output.tp_size);
  AtomicDirectory output(command.output.output, command.output.overwrite);
  formats.write(input, output.path(), 1, diagnostics);
  const Json manifest =
      conversion_manifest(conversion, KVCAL_VERSION,
                          {.losses = losses,
                           .writer = formats.names().size() == 1 ? &formats.writer(0) : nullptr,
                           .tp_size = command.output.tp_size});
  write_text_file(output.path() / kManifestName, dump_json(manifest));
  output.commit();
  for (const std::string& note : conversion.notes()) std::cerr << "note: " << note << '\n';
  formats.tell_notes(input, diagnostics);
  if (command.json) {
    std::cout << dump_json(manifest);
    return;
  }
  print_source(conversion);
  print_losses(losses);
  print_folders(formats, conversion.config());
}

}  // namespace kvcal
