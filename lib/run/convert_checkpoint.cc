#include "run/convert_checkpoint.h"

#include <algorithm>
#include <functional>

#include "convert/output_model.h"
#include "core/file.h"
#include "core/registry.h"
#include "core/text.h"
#include "export/checkpoint_copy.h"
#include "export/writer.h"
#include "hub/hub_cache.h"
#include "run/command_paths.h"
#include "run/subject.h"
#include "stored/kv_scales.h"
#include "stored/weights.h"

namespace kvcal {
namespace {

ConversionOptions options_of(const ConversionRequest& request) {
  static const Registry<Strategy> kStrategies{
      "--strategy", {{"attn_head", Strategy::kAttnHead}, {"tensor", Strategy::kTensor}}};
  static const Registry<fp8::Format> kDialects{
      "--fp8-dialect", {{"fn", fp8::Format::kE4m3Fn}, {"fnuz", fp8::Format::kE4m3Fnuz}}};
  ConversionOptions options{
      .scales = request.scales, .strategy = {}, .dialect = {}, .family = request.family};
  if (!request.strategy.empty()) options.strategy = kStrategies.at(request.strategy);
  if (!request.dialect.empty()) options.dialect = kDialects.at(request.dialect);
  return options;
}

/// Throws Error where an output would replace the source of the scales, or lie in it.
std::vector<FormatLosses> all_losses(const Conversion& conversion, const OutputFormats& formats,
                                     int64_t tp_size) {
  std::vector<FormatLosses> losses;
  for (const std::string& format : formats.names())
    for (const std::string& name : joined_names(format))
      if (std::ranges::find(losses, name, &FormatLosses::format) == losses.end())
        losses.push_back({name, losses_of(conversion, *make_writer(name), tp_size)});
  return losses;
}

/// Reports wrong names before the checkpoint is read.
OutputFormats formats_of(const ConversionRequest& request, Diagnostics& diagnostics) {
  OutputOptions output = request.output;
  if (output.formats.empty() || !output.engines.empty()) {
    const ModelDir model(request.checkpoint);
    settle_formats(output, model, request.family,
                   {.makes_weights = read_kept_quantization(model).has_value()}, diagnostics);
  }
  return OutputFormats(output);
}

/// Format of the overlay, or of the checkpoint's quantized weights where that differs: readers find
/// scales beside such weights only in their form.
std::string format_for(const Overlay& overlay, const ModelDir& model, Diagnostics& diagnostics) {
  const auto kept = read_kept_quantization(model);
  if (!kept) return overlay.format;
  if (keeps_weights(*kept, overlay.format)) return overlay.format;
  if (!kWriters.find(kept->format)) return usual_recoding(*kept);
  diagnostics.note("the checkpoint's weights are quantized in the form " + kept->format +
                   ", and the scales of the overlay (" + overlay.format +
                   ") are written in that form");
  return kept->format;
}

bool loses(const LayerLoss& loss) {
  return loss.k_octaves > 0.0 || loss.v_octaves > 0.0;
}

std::string octaves_text(double value) {
  return value > 0.0 ? short_float(value) : "0";
}

/// The layers that lose most, and how many octaves.
std::string worst_text(std::vector<LayerLoss> layers, bool is_int8) {
  constexpr ptrdiff_t kWorst = 3;
  const auto octaves_of = [](const LayerLoss& loss) {
    return std::max(loss.k_octaves, loss.v_octaves);
  };
  const auto num_losing = std::ranges::count_if(layers, loses);
  std::ranges::stable_sort(layers, std::greater{}, octaves_of);
  layers.resize(static_cast<size_t>(std::min(num_losing, kWorst)));
  const auto shown = [&](const LayerLoss& loss) {
    return std::to_string(loss.layer) + " (" + octaves_text(octaves_of(loss)) + ")";
  };
  return std::to_string(num_losing) + (num_losing == 1 ? " layer loses" : " layers lose") +
         " range for small values, of " + (is_int8 ? "INT8's 7" : "E4M3's 17.8") +
         " octaves: the most in " + (layers.size() == 1 ? "layer " : "layers ") +
         join(layers, ", ", shown);
}

/// The layers where several scales became one, and by how much the range of codes is smaller.
std::string losses_text(const FormatLosses& format, bool is_int8, bool is_whole) {
  if (format.layers.empty()) return "";
  if (std::ranges::none_of(format.layers, loses))
    return format.format + ": " + counted(format.layers.size(), "layer") +
           " with the scales of the source\n";
  const std::string worst = format.format + ": the largest scale stands for several; " +
                            worst_text(format.layers, is_int8);
  if (!is_whole) return worst + " (--verbose lists all layers)\n";
  TextTable table(
      {"layer", "k_scale", "v_scale", "k_written", "v_written", "k_octaves", "v_octaves"});
  for (const LayerLoss& loss : format.layers)
    table.add({std::to_string(loss.layer), short_float(static_cast<double>(loss.k_scale)),
               short_float(static_cast<double>(loss.v_scale)),
               short_float(static_cast<double>(loss.k_written)),
               short_float(static_cast<double>(loss.v_written)), octaves_text(loss.k_octaves),
               octaves_text(loss.v_octaves)});
  return worst + '\n' + table.text();
}

std::string source_text(const ConversionResult& result) {
  std::string text;
  if (result.num_scaled_layers > 0)
    text += "scales: " + result.scales_format + " of " +
            counted(result.num_scaled_layers, "layer") + ", from " + result.scales_path + '\n';
  if (!result.kept_weights.empty())
    text += "weights: " + result.kept_weights + ", left as they are\n";
  else if (result.num_rewritten_linears > 0)
    text += "weights: FP8, " + std::to_string(result.num_rewritten_linears) +
            " with their codes, scales written anew\n";
  return text;
}

}  // namespace

ConversionResult convert_checkpoint(const ConversionRequest& request, Diagnostics& diagnostics) {
  const OutputFormats formats = formats_of(request, diagnostics);
  const Conversion conversion(request.checkpoint, formats.names(), options_of(request),
                              diagnostics);
  for (const std::string& warning : conversion.warnings()) diagnostics.warn(warning);
  const ExportInput input = conversion.input();
  formats.check(input);
  check_target(conversion.model(), request.output.output);
  check_keeps_inputs(request.output.output, {request.scales, request.family.file()});
  ConversionResult result{.config = conversion.config(),
                          .scales_format = conversion.source().format,
                          .scales_path = name_of_source(conversion.source().path),
                          .num_scaled_layers = input.calibration.layers.size(),
                          .is_int8 = input.calibration.kv_format.is_int8(),
                          .losses = all_losses(conversion, formats, request.output.tp_size)};
  if (const SourceQuantization* kept = conversion.kept())
    result.kept_weights = kept->format;
  else if (input.calibration.plan.quantizes_weights())
    result.num_rewritten_linears = input.calibration.plan.linears.size();
  AtomicDirectory output(formats.place(), request.output.overwrite);
  const bool has_weights = std::ranges::any_of(formats.names(), [](const std::string& format) {
    return any_has(format, &OutputFormat::is_checkpoint);
  });
  if (has_weights && !request.output.scales_only)
    check_room(request.output.output, tensor_bytes(conversion.model()));
  const auto manifest = [&](const WrittenCheckpoint&) {
    Json json =
        conversion_manifest(conversion, request.version,
                            {.losses = result.losses,
                             .writer = formats.names().size() == 1 ? &formats.writer(0) : nullptr,
                             .tp_size = request.output.tp_size});
    json["conversion"]["scales"] = result.scales_path;
    return json;
  };
  result.output = write_output(formats, input, output, 1,
                               {.manifest = manifest, .config = result.config}, diagnostics);
  for (const std::string& note : conversion.notes()) diagnostics.note(note);
  formats.tell_notes(input, diagnostics);
  return result;
}

ConversionResult apply_overlay(const std::string& overlay, const std::string& checkpoint,
                               ConversionRequest request, Diagnostics& diagnostics) {
  const Overlay scales = read_overlay(overlay);
  const ModelDir model(checkpoint);
  const ModelConfig config = read_model_config(model, request.family);
  if (const KvScaleNames* stored = find_kv_scale_format(scale_tensors_of(model), config))
    fail(checkpoint, ": has KV scales already (", stored->name,
         "); kvcal convert --scales replaces them");
  check_target(model, request.output.output);
  request.checkpoint = checkpoint;
  request.scales = overlay;
  request.output.formats = {format_for(scales, model, diagnostics)};
  return convert_checkpoint(request, diagnostics);
}

std::string conversion_text(const ConversionResult& result, bool is_whole) {
  return source_text(result) + join(result.losses, "", [&](const FormatLosses& format) {
           return losses_text(format, result.is_int8, is_whole);
         });
}

}  // namespace kvcal
