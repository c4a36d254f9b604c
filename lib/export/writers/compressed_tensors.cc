#include <algorithm>

#include "export/attention_scales.h"
#include "export/checkpoint_copy.h"
#include "export/checkpoint_files.h"
#include "export/compressed_tensors_config.h"
#include "export/layer_scales.h"
#include "export/planned_weights.h"
#include "export/weight_notes.h"
#include "export/writer.h"
#include "stored/dialect.h"

namespace kvcal {
namespace {

constexpr std::string_view kTitle = "compressed-tensors";
constexpr WeightForm kWeights{.title = kTitle};

/// Throws Error where the scheme is one that vLLM and transformers do not load. Source: vLLM
/// `CompressedTensorsKVCacheMethod.validate_kv_cache_scheme`.
void check_scheme(const Calibration& calibration) {
  const QuantArgs& args = calibration.kv_args;
  if (args.type != QuantType::kFloat || args.num_bits != 8 || !args.symmetric || args.dynamic)
    fail("kv_cache_scheme of type ", name_of(args.type), ", ", args.num_bits, " bits, symmetric ",
         args.symmetric, ", dynamic ", args.dynamic,
         "; engines load float, 8 bits, symmetric, static");
  if (calibration.kv_format == fp8::Format::kE5m2)
    fail("a compressed-tensors checkpoint holds scales of E4M3, the calibration is of E5M2");
}

/// The source's config with the scheme of K and V added.
Json with_cache(Json config, const Calibration& calibration) {
  if (calibration.layers.empty()) return config;
  config["kv_cache_scheme"] = to_json(calibration.kv_args);
  Json& ignore = config["ignore"];
  if (!ignore.is_array()) ignore = Json::array();
  for (const AttentionCalibration& layer : calibration.layers)
    if (!layer.ignored)
      ignore.erase(std::remove(ignore.begin(), ignore.end(), Json(layer.module)), ignore.end());
  for (const std::string& module : ignored_modules(calibration))
    if (std::ranges::find(ignore, Json(module)) == ignore.end()) ignore.push_back(module);
  return config;
}

class CompressedTensorsWriter : public Writer {
 public:
  void check(const ExportInput& input) const override {
    const Calibration& calibration = input.calibration;
    // Kept weights alone are a checkpoint, too.
    if (!input.kept || !calibration.layers.empty()) check_calibration(calibration);
    if (!calibration.layers.empty()) check_scheme(calibration);
    check_kept(input, kTitle, kTitle);
    check_covers_model(input.model, calibration);
    check_tensors_are_new(input.model, attention_tensor_names(calibration));
    if (calibration.plan.quantizes_weights()) check_weights(input, kWeights);
    check_ranks(input);
    if (input.scale_in_model_dtype) check_attention_scales_fit(input);
  }

  FormatParts parts(const ExportInput& input) const override {
    const Calibration& calibration = input.calibration;
    FormatParts parts{.tensors = attention_tensors(input),
                      .files = recipe_and_arguments(input),
                      .weights = &kWeights};
    parts.config["quantization_config"] =
        input.kept ? with_cache(input.kept->config, calibration) : quantization_config(calibration);
    // Engines do not read it in this format; later conversions do.
    if (calibration.kv_format == fp8::Format::kE4m3Fnuz)
      parts.config[std::string(kDialectKey)] = fp8::name_of(calibration.kv_format);
    return parts;
  }

  HeldScales held(const AttentionCalibration& layer, int64_t tp_size) const override {
    return {tied_over_ranks(layer.k.scales, tp_size), tied_over_ranks(layer.v.scales, tp_size)};
  }

  std::vector<std::string> notes(const ExportInput& input) const override {
    std::vector<std::string> notes = weight_notes(input);
    if (input.calibration.is_latent && !input.calibration.layers.empty())
      notes.emplace_back(kLatentNote);
    if (input.calibration.kv_format == fp8::Format::kE4m3Fnuz)
      notes.emplace_back(
          "scales of E4M3FNUZ are for vLLM on MI300, which uses those of compressed-tensors as "
          "they are; SGLang doubles them once more there, and elsewhere the cache would use half "
          "of "
          "its range");
    if (const auto note = ignored_layers_note(input.calibration)) notes.push_back(*note);
    return notes;
  }

 private:
  static void check_ranks(const ExportInput& input) {
    for (const AttentionCalibration& layer : input.calibration.layers)
      if (!layer.ignored)
        in_context(layer.module, [&] {
          tied_over_ranks(layer.k.scales, input.tp_size);
          if (layer.q) tied_over_ranks(layer.q->scales, input.tp_size);
        });
  }
};

}  // namespace

std::unique_ptr<Writer> make_compressed_tensors_writer() {
  return std::make_unique<CompressedTensorsWriter>();
}

}  // namespace kvcal
