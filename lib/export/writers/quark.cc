#include "export/scalar_scales.h"
#include "export/writer.h"

namespace kvcal {
namespace {

constexpr std::string_view kTitle = "Quark";

/// Everything but what vLLM calls attention, which it would give no scales. Quark's own export of
/// KV scales excludes nothing, and vLLM looks for a scheme of the 16-bit Linears there. Source:
/// vLLM 0.32 and SGLang 0.5.23 `should_ignore_layer`.
constexpr std::string_view kExcluded = "re:.*(?<!\\.attn)$";

/// The outputs of a Linear, null where they are not quantized. Source: AMD Quark 0.13's export.
Json layer_config(const Json& output_tensors) {
  return {{"bias", nullptr},
          {"input_tensors", nullptr},
          {"output_tensors", output_tensors},
          {"target_device", nullptr},
          {"weight", nullptr}};
}

Json kv_tensors() {
  return {{"ch_axis", nullptr},
          {"dtype", "fp8_e4m3"},
          {"group_size", nullptr},
          {"is_dynamic", false},
          {"observer_cls", "PerTensorMinMaxObserver"},
          {"qscheme", "per_tensor"},
          {"round_method", "half_even"},
          {"scale_type", "float"},
          {"symmetric", nullptr}};
}

/// Source: AMD Quark 0.13's export; vLLM 0.32 `QuarkConfig.from_config`, which wants the same for K
/// and V.
Json quantization_config() {
  const Json names = Json::array({"*k_proj", "*v_proj"});
  Json layers = Json::object();
  for (const Json& name : names) layers[name.get<std::string>()] = layer_config(kv_tensors());
  return {{"algo_config", nullptr},
          {"exclude", Json::array({kExcluded})},
          {"export",
           {{"kv_cache_group", names},
            {"min_kv_scale", 0.0},
            {"pack_method", "reorder"},
            {"weight_format", "real_quantized"},
            {"weight_merge_groups", nullptr}}},
          {"global_quant_config", layer_config(nullptr)},
          {"layer_quant_config", layers},
          {"layer_type_quant_config", Json::object()},
          {"quant_method", "quark"},
          {"quant_mode", "eager_mode"}};
}

const KvForm& form() {
  return kv_form("output scales");
}

/// K and V keep scales of their own, which readers take, where Quark gives both the larger.
class QuarkWriter : public Writer {
 public:
  void check(const ExportInput& input) const override {
    check_scalar_scales(input, form(), kTitle);
  }

  WrittenCheckpoint write(const ExportInput& input,
                          const std::filesystem::path& folder) const override {
    write_scalar_checkpoint(input, form(), quantization_config(), folder);
    return {};
  }

  std::vector<std::string> notes(const ExportInput& input) const override {
    std::vector<std::string> notes{
        "quant_method quark does not turn the FP8 cache on by itself; start vLLM with "
        "--kv-cache-dtype fp8"};
    for (std::string& note : scalar_scale_notes(input.calibration, kTitle))
      notes.push_back(std::move(note));
    return notes;
  }
};

}  // namespace

std::unique_ptr<Writer> make_quark_writer() {
  return std::make_unique<QuarkWriter>();
}

}  // namespace kvcal
