#include "run/conversion_text.h"

#include <algorithm>

#include "core/join.h"
#include "core/number_text.h"
#include "core/text_table.h"

namespace kvcal {
namespace {

bool loses(const LayerLoss& loss) {
  return loss.k_octaves > 0.0 || loss.v_octaves > 0.0;
}

std::string octaves_text(double value) {
  return value > 0.0 ? short_float(value) : "0";
}

std::string worst_text(const std::vector<LayerLoss>& layers) {
  const auto octaves_of = [](const LayerLoss& loss) {
    return std::max(loss.k_octaves, loss.v_octaves);
  };
  const LayerLoss& worst = *std::ranges::max_element(layers, {}, octaves_of);
  return std::to_string(std::ranges::count_if(layers, loses)) + " of " +
         std::to_string(layers.size()) + " layers lose some, layer " + std::to_string(worst.layer) +
         " the most: " + octaves_text(octaves_of(worst)) + " (--verbose lists them)\n";
}

/// Every layer where scales were merged, and by how much the range of its codes is smaller.
std::string losses_text(const FormatLosses& format, size_t most_rows) {
  if (format.layers.empty()) return "";
  if (std::ranges::none_of(format.layers, loses))
    return format.format + ": " + std::to_string(format.layers.size()) +
           " layers, no scale changes for being merged\n";
  const std::string heading =
      format.format +
      ": scales are merged by the largest; octaves are lost at the lower end, of 17.8 that E4M3 "
      "has\n";
  if (format.layers.size() > most_rows) return heading + worst_text(format.layers);
  TextTable table(
      {"layer", "k_scale", "v_scale", "k_written", "v_written", "k_octaves", "v_octaves"});
  for (const LayerLoss& loss : format.layers)
    table.add({std::to_string(loss.layer), short_float(static_cast<double>(loss.k_scale)),
               short_float(static_cast<double>(loss.v_scale)),
               short_float(static_cast<double>(loss.k_written)),
               short_float(static_cast<double>(loss.v_written)), octaves_text(loss.k_octaves),
               octaves_text(loss.v_octaves)});
  return heading + table.text();
}

std::string source_text(const ConversionResult& result) {
  std::string text;
  if (result.num_scaled_layers > 0)
    text += "scales: " + result.scales_form + " of " + std::to_string(result.num_scaled_layers) +
            " layers, from " + result.scales_path + '\n';
  if (!result.kept_weights.empty())
    text += "weights: " + result.kept_weights + ", left as they are\n";
  else if (result.num_rewritten_linears > 0)
    text += "weights: FP8, " + std::to_string(result.num_rewritten_linears) +
            " with their codes, scales written anew\n";
  return text;
}

}  // namespace

std::string conversion_text(const ConversionResult& result, size_t most_rows) {
  return source_text(result) + join(result.losses, "", [&](const FormatLosses& format) {
           return losses_text(format, most_rows);
         });
}

}  // namespace kvcal
