#include "inspect/consumers.h"

#include "convert/conversion.h"
#include "convert/kept_quantization.h"
#include "convert/output_model.h"
#include "export/layer_scales.h"
#include "export/writer.h"
#include "stored/kv_scales.h"

namespace kvcal {
namespace {

/// Scale 1.0 in every layer: a format that cannot hold it can hold none.
Calibration unit_calibration(const ModelConfig& config, Strategy strategy) {
  Calibration calibration;
  calibration.kv_args.type = QuantType::kFloat;
  calibration.kv_args.num_bits = 8;
  calibration.kv_args.strategy = strategy;
  calibration.num_hidden_layers = config.num_hidden_layers;
  calibration.is_latent = config.architecture->has_latent_attention;
  for (const int64_t layer : config.attention_layers()) {
    const int64_t count = strategy == Strategy::kAttnHead ? config.cache(layer).heads : 1;
    const KvTensorCalibration side{.scales = std::vector<Scale>(static_cast<size_t>(count))};
    calibration.layers.push_back({.layer = layer,
                                  .module = config.attention_module(layer),
                                  .ignored = false,
                                  .k = side,
                                  .v = side});
  }
  return calibration;
}

/// The message of the Error that body throws, empty for none. is_known: whether it depends on no
/// value that was not fetched.
template <class Body>
std::string refusal_of(const Body& body, bool* is_known = nullptr) {
  try {
    body();
  } catch (const SystemError&) {
    throw;
  } catch (const HollowTensor& error) {
    if (is_known) *is_known = false;
    return error.what();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

/// What convert would say.
FormatSupport conversion_support(const std::string& name, const Writer& writer,
                                 const ModelDir& model_dir, const ModelConfig& config) {
  FormatSupport support{.format = name};
  SilentDiagnostics silent;
  for (const Strategy strategy : {Strategy::kTensor, Strategy::kAttnHead}) {
    const std::string refusal = refusal_of(
        [&] {
          const Conversion conversion(
              model_dir.given_path(), {name},
              {.scales = {}, .strategy = strategy, .dialect = {}, .family = config.chosen}, silent);
          const ExportInput input = conversion.input();
          writer.check(input);
          support.strategies.emplace_back(name_of(strategy));
          if (support.strategies.size() == 1) support.notes = writer.notes(input);
        },
        &support.is_known);
    if (support.reason.empty()) support.reason = refusal;
  }
  return support;
}

/// What calibrate would say of new scales.
FormatSupport format_support(const std::string& name, const Writer& writer,
                             const ModelDir& model_dir, const ModelConfig& config) {
  FormatSupport support{.format = name};
  SilentDiagnostics silent;
  std::optional<OutputModel> other;
  support.reason = refusal_of([&] { other = output_model(model_dir, config, {name}, silent); },
                              &support.is_known);
  if (!support.reason.empty()) return support;
  const auto kept = other ? other->kept : read_kept_quantization(model_dir);
  for (const Strategy strategy : {Strategy::kTensor, Strategy::kAttnHead}) {
    Recipe recipe;
    const Calibration calibration = unit_calibration(config, strategy);
    recipe.modifiers.emplace_back().kv_cache_scheme = calibration.kv_args;
    const ExportInput input{.model = other ? other->model : model_dir,
                            .calibration = calibration,
                            .recipe = &recipe,
                            .kept = kept ? &*kept : nullptr};
    const std::string refusal = refusal_of(
        [&] {
          writer.check(input);
          support.strategies.emplace_back(name_of(strategy));
          if (support.strategies.size() == 1) support.notes = writer.notes(input);
        },
        &support.is_known);
    if (support.reason.empty()) support.reason = refusal;
  }
  return support;
}

Json support_json(const std::string& refusal) {
  return {{"supported", refusal.empty()}, {"reason", refusal.empty() ? Json() : Json(refusal)}};
}

}  // namespace

Consumers consumers_of(const ModelDir& model_dir, const ModelConfig& config) {
  Consumers consumers;
  consumers.calibration_refusal = refusal_of([&] {
    SilentDiagnostics silent;
    const auto other = output_model(model_dir, config, {}, silent);
    if (!read_kept_quantization(model_dir)) check_is_unquantized(other ? other->model : model_dir);
  });
  const bool has_scales = find_form(scale_tensors_of(model_dir), config) != nullptr;
  for (const auto& [name, row] : kWriters.rows())
    consumers.formats.push_back((has_scales ? conversion_support : format_support)(
        std::string(name), *row.make(), model_dir, config));
  if (has_scales)
    consumers.served =
        served_engines({{.checkpoint = model_dir.given_path()}}, config, engine_rules().names(), 1);
  consumers.engines = engine_verdicts(required_string(model_dir.config(), "model_type"));
  return consumers;
}

Json consumers_json(const Consumers& consumers) {
  Json formats = Json::array(), engines = Json::array();
  for (const FormatSupport& format : consumers.formats) {
    const bool is_supported = !format.strategies.empty();
    formats.push_back({{"format", format.format},
                       {"supported", format.is_known ? Json(is_supported) : Json()},
                       {"strategies", format.strategies},
                       {"reason", is_supported ? Json() : Json(format.reason)},
                       {"notes", format.notes}});
  }
  for (const EngineVerdict& verdict : consumers.engines)
    engines.push_back({{"engine", verdict.engine},
                       {"version", verdict.version},
                       {"format", verdict.format},
                       {"reads", name_of(verdict.reads)},
                       {"note", verdict.note}});
  Json served = Json::array();
  for (const ServedEngine& engine : consumers.served)
    served.push_back({{"engine", engine.name},
                      {"title", engine.title},
                      {"fate", name_of(engine.fate)},
                      {"note", engine.note}});
  return {{"calibration", support_json(consumers.calibration_refusal)},
          {"formats", formats},
          {"engines", engines},
          {"served", served}};
}

}  // namespace kvcal
