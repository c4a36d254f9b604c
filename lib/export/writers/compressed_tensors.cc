#include <cmath>
#include <limits>

#include "export/checkpoint_copy.h"
#include "export/layer_scales.h"
#include "export/writer.h"

namespace kvcal {
namespace {

/// compressed-tensors release whose layout this is (docs/formats.md).
constexpr std::string_view kVersion = "0.19.0";

/// Throws Error where the scheme is one that vLLM and transformers do not load. Source: vLLM
/// `CompressedTensorsKVCacheMethod.validate_kv_cache_scheme`.
void check_scheme(const Calibration& calibration) {
  const QuantArgs& args = calibration.kv_args;
  if (args.type != QuantType::kFloat || args.num_bits != 8 || !args.symmetric || args.dynamic)
    fail("kv_cache_scheme of type ", name_of(args.type), ", ", args.num_bits, " bits, symmetric ",
         args.symmetric, ", dynamic ", args.dynamic,
         "; engines load float, 8 bits, symmetric, static");
  if (calibration.kv_format != fp8::Format::kE4m3Fn)
    fail(
        "a compressed-tensors checkpoint holds scales of E4M3FN, the calibration has another "
        "format");
}

/// Throws Error where rounding a scale to dtype leaves less than its full precision: a subnormal
/// scale may be off by half, and so would be everything it multiplies.
void check_fits(const std::vector<Scale>& scales, DType dtype) {
  const float smallest = dtype == DType::kF16 ? 0x1p-14f : std::numeric_limits<float>::min();
  for (const Scale scale : scales) {
    const float rounded = rounded_to(dtype, scale.value);
    if (!std::isfinite(rounded) || rounded < smallest)
      fail("scale ", scale.value, " is out of the normal range of ", dtype,
           "; write scales as float32 (--scale-dtype float32)");
  }
}

Json quantization_config(const Calibration& calibration) {
  Json config = Json::object();
  config["config_groups"] = Json::object();
  config["format"] = "dense";
  config["global_compression_ratio"] = nullptr;
  config["ignore"] = ignored_modules(calibration);
  config["kv_cache_scheme"] = to_json(calibration.kv_args);
  config["quant_method"] = "compressed-tensors";
  config["quantization_status"] = "compressed";
  config["sparsity_config"] = Json::object();
  config["transform_config"] = Json::object();
  config["version"] = kVersion;
  return config;
}

class CompressedTensorsWriter : public Writer {
 public:
  void check(const ExportInput& input) const override {
    check_calibration(input.calibration);
    check_scheme(input.calibration);
    check_is_unquantized(input.model);
    check_covers_model(input.model, input.calibration);
    check_tensors_are_new(input.model, k_and_v_scale_names(input.calibration));
    if (!input.scale_in_model_dtype) return;
    for (const AttentionCalibration& layer : input.calibration.layers) {
      if (layer.ignored) continue;
      const DType dtype = module_dtype(input.model, layer.module);
      in_context(layer.module + ".k_scale", [&] { check_fits(layer.k.scales, dtype); });
      in_context(layer.module + ".v_scale", [&] { check_fits(layer.v.scales, dtype); });
    }
  }

  void write(const ExportInput& input, const std::filesystem::path& folder) const override {
    Json config = input.model.config();
    config["quantization_config"] = quantization_config(input.calibration);
    copy_sidecar_files(input.model, folder);
    copy_weights(input.model,
                 k_and_v_scale_tensors(input.model, input.calibration, input.scale_in_model_dtype),
                 folder);
    write_text_file(folder / "config.json", config_text(config));
    write_text_file(folder / "recipe.yaml", to_yaml(input.recipe));
  }

  std::vector<std::string> notes(const ExportInput& input) const override {
    std::vector<std::string> notes;
    if (input.calibration.is_latent) notes.emplace_back(kLatentNote);
    std::string layers;
    for (const AttentionCalibration& layer : input.calibration.layers)
      if (layer.ignored) layers += " " + std::to_string(layer.layer);
    if (!layers.empty())
      notes.push_back(
          "ignored layers have no scale, and an FP8 cache would use 1.0 there; start vLLM with "
          "--kv-cache-dtype-skip-layers" +
          layers);
    return notes;
  }
};

}  // namespace

std::unique_ptr<Writer> make_compressed_tensors_writer() {
  return std::make_unique<CompressedTensorsWriter>();
}

}  // namespace kvcal
