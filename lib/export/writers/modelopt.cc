#include "export/checkpoint_copy.h"
#include "export/scalar_scales.h"
#include "export/writer.h"

namespace kvcal {
namespace {

constexpr std::string_view kTitle = "ModelOpt";
/// The release whose layout this is (docs/formats.md).
constexpr std::string_view kVersion = "0.47.0";

/// Readers take the checkpoint for ModelOpt's by this name alone.
Json producer() {
  return {{"name", "modelopt"}, {"version", kVersion}};
}

/// Of config.json. Readers ask for an algorithm of the weights even where there is none (vLLM
/// refuses null); "*" then keeps every Linear in 16 bits. Source: vLLM 0.32
/// `ModelOptQuantConfigBase.from_config`, SGLang 0.5.23 `ModelOptFp8Config.from_config`.
Json flat_config() {
  return {{"ignore", Json::array({"*"})},
          {"kv_cache_scheme", {{"dynamic", false}, {"num_bits", 8}, {"type", "float"}}},
          {"producer", producer()},
          {"quant_algo", "FP8"},
          {"quant_method", "modelopt"}};
}

/// Of hf_quant_config.json, which TensorRT-LLM reads first; it keeps kv_cache_quant_algo for
/// excluded modules. Source: TensorRT-LLM `apply_quant_config_exclude_modules`.
Json nested_config() {
  return {{"producer", producer()},
          {"quantization",
           {{"quant_algo", "FP8"},
            {"kv_cache_quant_algo", "FP8"},
            {"exclude_modules", Json::array({"*"})}}}};
}

/// ModelOpt has no other names where Q, K and V are one Linear (Phi-3). Source: ModelOpt 0.47
/// `postprocess_state_dict`.
const KvForm& form() {
  return kv_form("modelopt");
}

/// Source: vLLM 0.32 `get_cache_scale_mapper`, SGLang 0.5.23 `maybe_remap_kv_scale_name`.
bool is_placed(std::string_view module) {
  return module.ends_with(".self_attn") || module.ends_with(".mixer");
}

class ModelOptWriter : public Writer {
 public:
  void check(const ExportInput& input) const override {
    check_scalar_scales(input, form(), kTitle);
    for (const AttentionCalibration& layer : input.calibration.layers)
      if (!layer.ignored && !is_placed(layer.module))
        fail(layer.module, ": vLLM and SGLang have no place for ", form().k,
             " of modules not named self_attn or mixer; use compressed-tensors");
  }

  WrittenCheckpoint write(const ExportInput& input,
                          const std::filesystem::path& folder) const override {
    write_scalar_checkpoint(input, form(), flat_config(), folder);
    write_text_file(folder / "hf_quant_config.json", dump_json(nested_config(), 4));
    return {};
  }

  std::vector<std::string> notes(const ExportInput& input) const override {
    return scalar_scale_notes(input.calibration, kTitle);
  }
};

}  // namespace

std::unique_ptr<Writer> make_modelopt_writer() {
  return std::make_unique<ModelOptWriter>();
}

}  // namespace kvcal
