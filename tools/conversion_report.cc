#include "options.h"

#include <algorithm>
#include <iostream>

#include "core/number_text.h"
#include "core/text_table.h"
#include "terminal/progress.h"
#include "terminal/session.h"

namespace kvcal {
namespace {

bool loses(const LayerLoss& loss) {
  return loss.k_octaves > 0.0 || loss.v_octaves > 0.0;
}

std::string octaves(double value) {
  return value > 0.0 ? short_float(value) : "0";
}

void print_worst(const std::vector<LayerLoss>& layers) {
  const auto octaves_of = [](const LayerLoss& loss) {
    return std::max(loss.k_octaves, loss.v_octaves);
  };
  const LayerLoss& worst = *std::ranges::max_element(layers, {}, octaves_of);
  std::cout << std::ranges::count_if(layers, loses) << " of " << layers.size()
            << " layers lose some, layer " << worst.layer
            << " the most: " << octaves(octaves_of(worst)) << " (--verbose lists them)\n";
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
    if (format.layers.size() > most_rows()) {
      print_worst(format.layers);
      continue;
    }
    TextTable table(
        {"layer", "k_scale", "v_scale", "k_written", "v_written", "k_octaves", "v_octaves"});
    for (const LayerLoss& loss : format.layers)
      table.add({std::to_string(loss.layer), short_float(static_cast<double>(loss.k_scale)),
                 short_float(static_cast<double>(loss.v_scale)),
                 short_float(static_cast<double>(loss.k_written)),
                 short_float(static_cast<double>(loss.v_written)), octaves(loss.k_octaves),
                 octaves(loss.v_octaves)});
    std::cout << table.text();
  }
}

void print_source(const ConversionResult& result) {
  if (result.num_scaled_layers > 0)
    std::cout << "scales: " << result.scales_form << " of " << result.num_scaled_layers
              << " layers, from " << result.scales_path << '\n';
  if (!result.kept_weights.empty())
    std::cout << "weights: " << result.kept_weights << ", left as they are\n";
  else if (result.num_rewritten_linears > 0)
    std::cout << "weights: FP8, " << result.num_rewritten_linears
              << " with their codes, scales written anew\n";
}

}  // namespace

void print_conversion(const ConversionRequest& request, const ConversionResult& result, bool json) {
  TerminalDiagnostics diagnostics;
  const std::vector<ServedEngine> engines =
      engines_served(result.output.folders, result.config, result.num_scaled_layers > 0,
                     request.checkpoint, request.output, diagnostics);
  print_output(result.output, engines, json, [&] {
    print_source(result);
    print_losses(result.losses);
  });
  check_engines_asked(engines, request.output);
}

}  // namespace kvcal
