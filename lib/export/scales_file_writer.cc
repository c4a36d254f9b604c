#include "export/scales_file_writer.h"

#include <algorithm>

#include "core/text.h"
#include "export/layer_scales.h"

namespace kvcal {

void ScalesFileWriter::check(const ExportInput& input) const {
  const Calibration& calibration = input.calibration;
  check_calibration(calibration);
  if (calibration.layers.empty()) fail(file_, " holds KV scales, the recipe asks for none");
  check_holds(calibration, format_);
  check_covers_model(input.model, calibration);
  const std::vector<fp8::Format> known = formats();
  const std::optional<fp8::Format> own = calibration.kv_format.floats();
  if (own && std::ranges::find(known, *own) == known.end())
    fail(file_, " holds scales of ",
         join(known, " or ", [](fp8::Format format) { return fp8::name_of(format); }),
         ", the calibration has those of ", fp8::name_of(*own));
  if (input.scale_in_model_dtype) fail(file_, " holds no dtype; scale dtype 'model' is not for it");
  check_file(input);
  for (const AttentionCalibration& layer : layers_of_model(calibration))
    if (layer.ignored)
      fail(layer.module, " is ignored and has no scale; ", file_, " must have one for every layer");
}

FormatParts ScalesFileWriter::parts(const ExportInput& input) const {
  FormatParts parts{.has_checkpoint = false};
  parts.files.emplace(file_, dump_json(content(input), 4));
  return parts;
}

std::vector<std::string> ScalesFileWriter::notes(const ExportInput& input) const {
  std::vector<std::string> notes = file_notes(input);
  if (input.calibration.plan.quantizes_weights())
    notes.push_back(file_ + " holds KV scales alone: weights and inputs are not in it");
  if (layers_of_model(input.calibration).size() < input.calibration.layers.size())
    notes.push_back(file_ + " has no scales of the draft layer");
  if (has_query_scales(input.calibration)) notes.push_back(file_ + " has no scales of queries");
  return notes;
}

void ScalesFileWriter::check_has_every_layer(const Calibration& calibration) const {
  int64_t next = 0;
  for (const AttentionCalibration& layer : layers_of_model(calibration)) {
    if (layer.layer != next) break;
    ++next;
  }
  const int64_t count = calibration.num_hidden_layers;
  if (next != count || layers_of_model(calibration).size() != static_cast<size_t>(count))
    fail("layer ", next, " has no scale; ", file_, " must have one for each of ",
         counted(count, "layer"));
}

}  // namespace kvcal
