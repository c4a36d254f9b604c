#include "export/attention_scales.h"
#include "export/checkpoint_copy.h"
#include "export/layer_scales.h"
#include "export/planned_weights.h"
#include "export/quantization_config.h"
#include "export/quantized_copy.h"
#include "export/weight_notes.h"
#include "export/writer.h"

namespace kvcal {
namespace {

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

class CompressedTensorsWriter : public Writer {
 public:
  void check(const ExportInput& input) const override {
    const Calibration& calibration = input.calibration;
    check_calibration(calibration);
    if (!calibration.layers.empty()) check_scheme(calibration);
    check_is_unquantized(input.model);
    check_covers_model(input.model, calibration);
    check_tensors_are_new(input.model, attention_tensor_names(calibration));
    if (calibration.plan.quantizes_weights()) check_weights(input);
    check_ranks(input);
    if (input.scale_in_model_dtype) check_attention_scales_fit(input);
  }

  WrittenCheckpoint write(const ExportInput& input,
                          const std::filesystem::path& folder) const override {
    const QuantPlan& plan = input.calibration.plan;
    Json config = input.model.config();
    config["quantization_config"] = quantization_config(input.calibration);
    if (plan.unties_embedding) untie(config);
    WrittenCheckpoint written;
    copy_sidecar_files(input.model, folder);
    if (plan.quantizes_weights())
      written = write_quantized_weights(input, folder);
    else
      copy_weights(input.model, attention_tensors(input), folder);
    write_text_file(folder / "config.json", config_text(config));
    write_text_file(folder / "recipe.yaml", to_yaml(input.recipe));
    write_vllm_arguments(input.calibration, folder);
    return written;
  }

  std::vector<std::string> notes(const ExportInput& input) const override {
    std::vector<std::string> notes = weight_notes(input);
    if (input.calibration.is_latent && !input.calibration.layers.empty())
      notes.emplace_back(kLatentNote);
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
