#include "export/checkpoint_copy.h"
#include "export/layer_scales.h"
#include "export/writer.h"

namespace kvcal {
namespace {

/// AutoFP8 stores one scale as [], DeepSeek one scale per block under another name.
constexpr WeightScaleNames kWeights{
    .title = "fp8", .block_suffix = "weight_scale_inv", .scalars_have_no_dims = true};

/// Keys of AutoFP8, or of DeepSeek for scales per block. Source: AutoFP8's and Quark's export; vLLM
/// 0.32 `Fp8Config.from_config`. Throws Error where no key expresses the plan.
Json weight_config(const QuantPlan& plan) {
  const LinearScheme scheme = one_scheme(plan, kWeights.title);
  const bool is_static = scheme.input == InputQuantization::kStatic;
  const bool is_tensor = scheme.strategy == Strategy::kTensor &&
                         (is_static || scheme.input == InputQuantization::kDynamicToken);
  const bool is_block =
      scheme.strategy == Strategy::kBlock && scheme.input == InputQuantization::kDynamicGroup &&
      scheme.block_rows == scheme.block_columns && scheme.group == scheme.block_columns;
  if (!is_tensor && !is_block)
    fail("quant_method fp8 has no word for ", to_text(scheme),
         "; expected strategy tensor with inputs static or dynamic by token, or FP8_BLOCK");
  Json config = {{"activation_scheme", is_static ? "static" : "dynamic"},
                 {"ignored_layers", excluded_modules(plan)},
                 {"quant_method", "fp8"}};
  if (is_block) {
    config["fmt"] = "e4m3";
    config["weight_block_size"] = {scheme.block_rows, scheme.block_columns};
  }
  return config;
}

/// Checkpoints with quant_method fp8, with FP8 weights of the source or of the plan. Source: vLLM
/// `Fp8Config` and `BaseKVCacheMethod`, which read one k_scale and one v_scale per attention
/// module.
class Fp8Writer : public ScalarWriter {
 public:
  Fp8Writer() : ScalarWriter("fp8", kWeights) {}

  void check(const ExportInput& input) const override {
    const bool has_weights = input.kept || input.calibration.plan.quantizes_weights();
    if (!has_weights)
      fail(
          "is for FP8 weights; the checkpoint has none and none are made; for 16-bit weights use "
          "compressed-tensors");
    ScalarWriter::check(input);
    if (!input.kept) weight_config(input.calibration.plan);
  }

  FormatParts parts(const ExportInput& input) const override {
    FormatParts parts = ScalarWriter::parts(input);
    parts.files = recipe_and_arguments(input);
    Json config = input.kept ? input.kept->config : weight_config(input.calibration.plan);
    if (!input.calibration.layers.empty()) config["kv_cache_scheme"] = "static";
    parts.config["quantization_config"] = std::move(config);
    return parts;
  }

  std::vector<std::string> notes(const ExportInput& input) const override {
    std::vector<std::string> notes = ScalarWriter::notes(input);
    const QuantPlan& plan = input.calibration.plan;
    // Behind the note on the cache.
    if (plan.quantizes_weights() && one_scheme(plan, kWeights.title).strategy == Strategy::kTensor)
      notes.insert(notes.begin() + (input.calibration.layers.empty() ? 0 : 1),
                   "transformers 5.17 drops one scale a weight of quant_method fp8 and computes "
                   "with the codes; it loads compressed-tensors");
    return notes;
  }

 private:
  const KvScaleNames& names(const ExportInput&) const override {
    return kv_scale_format("compressed-tensors");
  }
  Shape scale_shape() const override { return Shape{1}; }
};

}  // namespace

std::unique_ptr<Writer> make_fp8_writer() {
  return std::make_unique<Fp8Writer>();
}

}  // namespace kvcal
