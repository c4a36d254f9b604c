#include "export/attention_scales.h"
#include "export/checkpoint_copy.h"
#include "export/layer_scales.h"
#include "export/writer.h"

namespace kvcal {
namespace {

/// Scales for a checkpoint whose weights are FP8 already: its quantization_config stays as it is.
/// Source: vLLM `Fp8Config` and `BaseKVCacheMethod`, which read one k_scale and one v_scale an
/// attention module.
class Fp8Writer : public Writer {
 public:
  void check(const ExportInput& input) const override {
    check_is_kv_only(input.calibration, "a checkpoint with quant_method fp8 keeps its weights");
    check_source(input.model);
    if (resolved_strategy(input.calibration.kv_args) != Strategy::kTensor)
      fail(
          "strategy attn_head; a checkpoint with quant_method fp8 has one scale a layer, strategy "
          "tensor");
    if (has_query_scales(input.calibration))
      fail("a checkpoint with quant_method fp8 has no scales of queries, the recipe asks for them");
    if (input.calibration.kv_format != fp8::Format::kE4m3Fn)
      fail("a checkpoint with quant_method fp8 has E4M3FN scales, the calibration has others");
    if (input.scale_in_model_dtype)
      fail("scales beside FP8 weights are float32; scale dtype 'model' is not for them");
    check_covers_model(input.model, input.calibration);
    check_tensors_are_new(input.model, attention_tensor_names(input.calibration));
  }

  WrittenCheckpoint write(const ExportInput& input,
                          const std::filesystem::path& folder) const override {
    copy_sidecar_files(input.model, folder);
    copy_weights(input.model, attention_tensors(input), folder);
    write_text_file(folder / "config.json", config_text(input.model.config()));
    write_text_file(folder / "recipe.yaml", to_yaml(input.recipe));
    write_vllm_arguments(input.calibration, folder);
    return {};
  }

  std::vector<std::string> notes(const ExportInput& input) const override {
    std::vector<std::string> notes{
        "quant_method fp8 does not turn the FP8 cache on by itself; start vLLM with "
        "--kv-cache-dtype fp8"};
    if (input.calibration.is_latent) notes.emplace_back(kLatentNote);
    return notes;
  }

 private:
  static void check_source(const ModelDir& model) {
    const Json* found = find_field(model.config(), "quantization_config");
    const auto method =
        found && found->is_object() ? optional_string(*found, "quant_method") : std::nullopt;
    if (method.value_or("") != "fp8")
      fail("adds scales to a checkpoint whose weights are FP8 already; config.json has ",
           method ? "quant_method '" + *method + "'" : "no quantization_config",
           ", for 16-bit weights use compressed-tensors");
  }
};

}  // namespace

std::unique_ptr<Writer> make_fp8_writer() {
  return std::make_unique<Fp8Writer>();
}

}  // namespace kvcal
