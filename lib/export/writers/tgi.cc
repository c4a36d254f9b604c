
#include "export/checkpoint_copy.h"
#include "export/layer_scales.h"
#include "export/writer.h"
#include "stored/kv_scales.h"

namespace kvcal {
namespace {

class TgiWriter : public Writer {
 public:
  void check(const ExportInput& input) const override {
    if (input.has_weights_beside)
      check_calibration(input.calibration);
    else
      check_is_kv_only(input.calibration, "TGI's form keeps the weights of the source");
    check_holds(input.calibration, "tgi");
    if (input.calibration.kv_format == fp8::Format::kE5m2)
      fail("TGI reads scales of E4M3FN and E4M3FNUZ, the calibration is of E5M2");
    if (input.scale_in_model_dtype)
      fail("TGI's kv_scale is float32; scale dtype 'model' is not for it");
    if (!input.kept) check_is_unquantized(input.model);
    check_covers_model(input.model, input.calibration);
    std::vector<std::string> names;
    for (const AttentionCalibration& layer : layers_of_model(input.calibration)) {
      if (layer.ignored) continue;
      // K and V scales of their own would take precedence.
      for (const char* suffix : {".kv_scale", ".k_scale", ".v_scale"})
        names.push_back(layer.module + suffix);
      // TGI casts kv_scale to its compute dtype (`get_kv_scales` calls get_tensor without
      // to_dtype=False), so the scale must survive 16 bits.
      check_survives(layer.module + ".kv_scale", shared_scale(layer),
                     run_dtype(input.model, layer.module), "the 16 bits TGI casts it to");
    }
    check_tensors_are_new(input.model, names);
  }

  FormatParts parts(const ExportInput& input) const override {
    FormatParts parts;
    for (const AttentionCalibration& layer : layers_of_model(input.calibration))
      if (!layer.ignored)
        // A scalar, as in TGI's create_fp8_kv_scales_model.py; readers require one element.
        parts.tensors.push_back(
            scale_tensor(layer.module + ".kv_scale", Shape{}, {shared_scale(layer)}, DType::kF32));
    parts.config[std::string(kDialectKey)] = name_of(input.calibration.kv_format);
    if (input.kept) keep_quantization(*input.kept, parts);
    return parts;
  }

  WrittenScales held(const AttentionCalibration& layer, int64_t) const override {
    return {{shared_scale(layer)}, {shared_scale(layer)}};
  }

  std::vector<std::string> notes(const ExportInput& input) const override {
    std::vector<std::string> notes;
    if (has_head_scales(input.calibration))
      notes.push_back("TGI has one scale a layer: the largest of all heads was taken");
    if (!ignored_modules(input.calibration).empty())
      notes.push_back("ignored layers have no scale; TGI uses 1.0 there");
    if (has_query_scales(input.calibration))
      notes.push_back("TGI reads no scales of queries: they are not written");
    return notes;
  }
};

}  // namespace

std::unique_ptr<Writer> make_tgi_writer() {
  return std::make_unique<TgiWriter>();
}

}  // namespace kvcal
