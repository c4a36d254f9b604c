#include "convert/output_model.h"

#include "convert/kept_quantization.h"
#include "convert/recoded_weights.h"
#include "stored/dialect.h"
#include "stored/kv_scales.h"

namespace kvcal {

std::optional<OutputModel> output_model(const ModelDir& source, const ModelConfig& config,
                                        const std::vector<std::string>& formats,
                                        Diagnostics& diagnostics) {
  std::optional<KeptQuantization> kept = read_kept_quantization(source);
  const bool has_scales = find_form(scale_tensors_of(source), config) != nullptr;
  if (has_scales)
    diagnostics.note(source.given_path().string() +
                     ": has KV scales already, which the new ones replace");
  const std::string target = kept ? recoding_target(*kept, formats) : "";
  if (!has_scales && target.empty()) return std::nullopt;

  OutputModel output{
      .model = ModelDir(source.given_path()), .kept = std::move(kept), .recoded = {}};
  if (!target.empty()) {
    output.recoded = read_checkpoint_quantization(output.model, config);
    // Contradictions are reported with those of other weights.
    if (output.recoded.has_coded() && output.recoded.problems.empty()) {
      Recoded recoded =
          recode_weights(output.model, config, output.recoded, output.kept->format, target);
      diagnostics.note(recoded.note);
      if (!recoded.caveat.empty()) diagnostics.warn(recoded.caveat);
      output.kept = std::move(recoded.kept);
    }
  }
  strip_queries(output.kept);
  strip_scales(output.model, config);
  return output;
}

void strip_scales(ModelDir& model, const ModelConfig& config,
                  const std::set<std::string, std::less<>>& tensors) {
  auto names = kv_scale_names(config);
  names.insert(tensors.begin(), tensors.end());
  model.leave_out(names);
  Json stripped = model.config();
  for (const std::string_view key : {std::string_view("quantization_config"),
                                     std::string_view("compression_config"), kDialectKey})
    stripped.erase(key);
  model.set_config(std::move(stripped));
}

}  // namespace kvcal
