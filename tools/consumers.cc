#include "consumers.h"

#include "engines/engine_rules.h"
#include "export/layer_scales.h"
#include "export/writer.h"
#include "model_facts.h"
#include "output_formats.h"

namespace kvcal {
namespace {

/// Scale 1.0 in every layer: a format that cannot hold it can hold none.
Calibration unit_calibration(const ModelConfig& config, const std::vector<int64_t>& layers,
                             Strategy strategy) {
  Calibration calibration;
  calibration.kv_args.type = QuantType::kFloat;
  calibration.kv_args.num_bits = 8;
  calibration.kv_args.strategy = strategy;
  calibration.num_hidden_layers = config.num_hidden_layers;
  calibration.is_latent = config.architecture->has_latent_attention;
  const auto count =
      strategy == Strategy::kAttnHead ? static_cast<size_t>(config.cache_heads()) : size_t{1};
  const KvTensorCalibration side{.statistics = {}, .scales = std::vector<Scale>(count)};
  for (const int64_t layer : layers)
    calibration.layers.push_back({.layer = layer,
                                  .module = config.attention_module(layer),
                                  .ignored = false,
                                  .k = side,
                                  .v = side});
  return calibration;
}

Json calibration_json(const ModelDir& model_dir, const ModelConfig& config) {
  try {
    if (config.weight_block_rows == 0) check_is_unquantized(model_dir);
    return {{"supported", true}, {"reason", nullptr}};
  } catch (const SystemError&) {
    throw;
  } catch (const Error& error) {
    return {{"supported", false}, {"reason", error.what()}};
  }
}

Json format_json(const Writer& writer, const ModelDir& model_dir, const ModelConfig& config,
                 const std::vector<int64_t>& layers) {
  Json strategies = Json::array(), notes = Json::array(), reason;
  for (const Strategy strategy : {Strategy::kTensor, Strategy::kAttnHead}) {
    Recipe recipe;
    const Calibration calibration = unit_calibration(config, layers, strategy);
    recipe.modifiers.emplace_back().kv_cache_scheme = calibration.kv_args;
    const auto kept = kept_weights(model_dir, config);
    const ExportInput input{.model = model_dir,
                            .calibration = calibration,
                            .recipe = &recipe,
                            .kept = kept ? &*kept : nullptr};
    try {
      writer.check(input);
      strategies.push_back(name_of(strategy));
      if (strategies.size() == 1) notes = writer.notes(input);
    } catch (const SystemError&) {
      throw;
    } catch (const Error& error) {
      if (reason.is_null()) reason = error.what();
    }
  }
  const bool is_supported = !strategies.empty();
  return {{"supported", is_supported},
          {"strategies", strategies},
          {"reason", is_supported ? Json() : reason},
          {"notes", notes}};
}

}  // namespace

Json consumers_json(const ModelDir& model_dir, const ModelConfig& config) {
  const std::vector<int64_t> layers = attention_layers(config);
  Json formats = Json::array(), engines = Json::array();
  for (const auto& [name, make] : kWriters.rows()) {
    Json format = {{"format", name}};
    format.update(format_json(*make(), model_dir, config, layers));
    formats.push_back(std::move(format));
  }
  for (const EngineVerdict& verdict :
       engine_verdicts(required_string(model_dir.config(), "model_type")))
    engines.push_back({{"engine", verdict.engine},
                       {"version", verdict.version},
                       {"format", verdict.format},
                       {"reads", name_of(verdict.reads)},
                       {"note", verdict.note}});
  return {{"calibration", calibration_json(model_dir, config)},
          {"formats", formats},
          {"engines", engines}};
}

}  // namespace kvcal
