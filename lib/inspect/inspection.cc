#include "inspect/inspection.h"

#include <algorithm>
#include <functional>
#include <map>

#include "convert/conversion.h"
#include "convert/output_model.h"
#include "core/folder.h"
#include "export/layer_scales.h"
#include "export/manifest.h"
#include "export/writer.h"
#include "inspect/page_values.h"
#include "stored/fp8_checkpoint.h"
#include "stored/kv_scales.h"

namespace kvcal {
namespace {

/// Tells tensors of the model from scales that quantization adds.
class ParameterCount {
 public:
  ParameterCount(const ModelConfig& config, const CheckpointQuantization& quantization)
      : kv_scales_(kv_scale_names(config)), quantization_(quantization) {}

  uint64_t of(const std::string& name, const TensorView& tensor) const {
    const bool is_scale = kv_scales_.contains(name) || quantization_.tensors.contains(name);
    return is_scale ? 0 : element_count(tensor.shape);
  }

 private:
  std::set<std::string, std::less<>> kv_scales_;
  const CheckpointQuantization& quantization_;
};

std::vector<Scale> manifest_scales(const Json& layer, const std::string& key) {
  std::vector<Scale> scales;
  for (const float value : magnitudes(layer, key)) scales.push_back({value});
  return scales;
}

void add_scales(InspectedLayer& row, const InspectionResult& found) {
  if (found.has_scales_elsewhere && row.statistics) {
    row.k_scales = manifest_scales(*row.statistics, "k_scale");
    row.v_scales = manifest_scales(*row.statistics, "v_scale");
    row.q_scales = manifest_scales(*row.statistics, "q_scale");
  } else if (auto scales =
                 read_layer_scales(scale_tensors_of(found.model_dir), found.config, row.layer)) {
    row.k_scales = std::move(scales->k);
    row.v_scales = std::move(scales->v);
    row.q_scales = std::move(scales->q);
  }
}

InspectedLayer inspected_layer(const InspectionResult& found, const ParameterCount& parameters,
                               int64_t layer) {
  InspectedLayer row{.layer = layer,
                     .statistics = find_layer(found.manifest, layer),
                     .kv_heads = found.config.cache(layer).heads};
  if (const TensorView* weight =
          found.model_dir.find(found.config.attention_module(layer) + ".k_proj.weight"))
    row.dtype = weight->dtype;
  const std::string prefix = found.config.layer_prefix(layer);
  for (const ListedTensor& entry : found.tensors)
    if (entry.name.starts_with(prefix)) {
      row.bytes += entry.tensor->bytes.size();
      row.parameters += parameters.of(entry.name, *entry.tensor);
    }
  add_scales(row, found);
  return row;
}

std::string scale_format_name(const ModelDir& model_dir, const ModelConfig& config) {
  const KvScaleNames* format = find_kv_scale_format(scale_tensors_of(model_dir), config);
  return format ? std::string(format->name) : "none";
}

Json layer_json(const InspectedLayer& layer) {
  Json row = {{"layer", layer.layer},
              {"dtype", layer.dtype ? Json(name_of(*layer.dtype)) : Json(nullptr)},
              {"bytes", layer.bytes},
              {"parameters", layer.parameters}};
  const std::pair<const char*, const std::vector<Scale>*> scales[] = {
      {"k_scale", &layer.k_scales}, {"v_scale", &layer.v_scales}, {"q_scale", &layer.q_scales}};
  for (const auto& [key, values] : scales)
    if (!values->empty()) row[key] = scales_json(*values, false);
  if (layer.statistics)
    for (const char* key :
         {"k_amax", "v_amax", "k_saturated", "v_saturated", "k_head_amax", "v_head_amax"})
      if (const Json* value = find_field(*layer.statistics, key)) row[key] = *value;
  return row;
}

Json cache_json(const CacheSize& cache) {
  const auto common = [&](int64_t LayerCache::*size) {
    return cache.shapes.size() == 1 ? Json(cache.shapes[0].cache.*size) : Json(nullptr);
  };
  Json json = {{"heads", common(&LayerCache::heads)},
               {"k_dim", common(&LayerCache::k_dim)},
               {"v_dim", common(&LayerCache::v_dim)},
               {"layers", cache.layers},
               {"values_per_token", cache.values_per_token},
               {"bytes_per_token_16_bit", 2 * cache.values_per_token},
               {"bytes_per_token_fp8", cache.values_per_token},
               {"state_bytes_per_sequence", cache.state_bytes_per_sequence}};
  if (cache.shapes.size() == 1) return json;
  for (const CacheShape& shape : cache.shapes)
    json["shapes"].push_back({{"layers", shape.layers},
                              {"heads", shape.cache.heads},
                              {"k_dim", shape.cache.k_dim},
                              {"v_dim", shape.cache.v_dim}});
  return json;
}

/// nullptr: given has weights.
std::unique_ptr<HollowCheckpoint> hollow_of(const fs::path& given, const FamilyChoice& family) {
  const fs::path config = is_there(given) ? lone_config(given) : fs::path();
  return config.empty() ? nullptr : std::make_unique<HollowCheckpoint>(config, family);
}

Json tensor_json(const ListedTensor& entry) {
  return {{"name", entry.name},
          {"role", entry.role},
          {"kind", entry.group},
          {"dtype", name_of(entry.tensor->dtype)},
          {"shape", entry.tensor->shape.dims}};
}

}  // namespace

InspectionResult::InspectionResult(const std::string& checkpoint, const fs::path& scales_folder,
                                   const FamilyChoice& family)
    : path(checkpoint),
      hollow(hollow_of(checkpoint, family)),
      model_dir(hollow ? hollow->path() : fs::path(checkpoint)),
      config(read_model_config(model_dir, family)),
      quantization(read_checkpoint_quantization(model_dir, config)),
      has_scales_elsewhere(!scales_folder.empty()) {
  const Weights weights =
      in_context(checkpoint, [&] { return Weights(model_dir, config, &quantization); });
  properties = model_properties(config, weights);
  if (!quantization.linears.empty()) properties.push_back(quantization_property(quantization));
  tensors = list_tensors(model_dir, config);
  const ParameterCount count(config, quantization);
  for (const ListedTensor& entry : tensors) {
    bytes += entry.tensor->bytes.size();
    parameters += count.of(entry.name, *entry.tensor);
  }
  if (!hollow) manifest = find_manifest(has_scales_elsewhere ? scales_folder : model_dir.path());
  scale_format =
      has_scales_elsewhere ? "in " + scales_folder.string() : scale_format_name(model_dir, config);
  cache = cache_size(config);
  consumers = consumers_of(model_dir, config);
  for (const int64_t layer : config.attention_layers())
    layers.push_back(inspected_layer(*this, count, layer));
}

Json inspection_json(const InspectionResult& found, bool with_tensors) {
  Json report = {{"path", found.path},
                 {"model_type", found.config.model_type},
                 {"parameters", found.parameters},
                 {"bytes", found.bytes},
                 {"kv_scales", found.scale_format}};
  if (found.hollow) report["weights"] = "none, config.json alone";
  if (found.config.chosen) report["family"] = found.config.architecture->name;
  for (const Property& property : found.properties)
    report["architecture"][property.key] = property.value;
  report["tensors"] = Json::object();
  for (const report::TensorKind& group : group_sizes(found.tensors))
    report["tensors"][group.kind] = {{"count", group.count}, {"bytes", group.bytes}};
  report["kv_cache"] = cache_json(found.cache);
  report["supported_by"] = consumers_json(found.consumers);
  report["layers"] = Json::array();
  for (const InspectedLayer& layer : found.layers) report["layers"].push_back(layer_json(layer));
  if (with_tensors)
    for (const ListedTensor& entry : found.tensors)
      report["all_tensors"].push_back(tensor_json(entry));
  return report;
}

namespace {

/// Scale 1.0 in every layer: a format that cannot hold it can hold none.
Calibration unit_calibration(const ModelConfig& config, Strategy strategy, QuantType type) {
  Calibration calibration;
  calibration.kv_args.type = type;
  calibration.kv_format = kv_format_of(calibration.kv_args, KvDType::kFp8E4m3);
  calibration.kv_args.num_bits = 8;
  calibration.kv_args.strategy = strategy;
  calibration.num_hidden_layers = config.num_hidden_layers;
  calibration.is_latent = config.architecture->has_latent_attention;
  for (const int64_t layer : config.attention_layers()) {
    const LayerCache& cache = config.cache(layer);
    const auto side = [&](int64_t head_dim) {
      const int64_t count = strategy == Strategy::kChannel    ? cache.heads * head_dim
                            : strategy == Strategy::kAttnHead ? cache.heads
                                                              : 1;
      return KvTensorCalibration{.scales = std::vector<Scale>(static_cast<size_t>(count))};
    };
    calibration.layers.push_back({.layer = layer,
                                  .module = config.attention_module(layer),
                                  .ignored = false,
                                  .k = side(cache.k_dim),
                                  .v = side(cache.v_dim)});
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

/// Adds some strategies that a format can hold. give: calls its second argument with the writer's
/// input for a strategy.
template <class Give>
void try_strategies(FormatSupport& support, const Writer& writer,
                    std::initializer_list<Strategy> strategies, const Give& give) {
  for (const Strategy strategy : strategies) {
    const std::function<void(const ExportInput&)> use = [&](const ExportInput& input) {
      writer.check(input);
      const std::string codes = input.calibration.kv_format.is_int8() ? " (INT8)" : "";
      support.strategies.push_back(name_of(strategy) + codes);
      if (support.strategies.size() == 1) support.notes = writer.notes(input);
    };
    const std::string refusal = refusal_of([&] { give(strategy, use); }, &support.is_known);
    if (support.reason.empty()) support.reason = refusal;
  }
}

/// What convert would say. scales: the checkpoint's; nullptr where they cannot be read.
FormatSupport conversion_support(const std::string& name, const Writer& writer,
                                 const ModelDir& model_dir, const ModelConfig& config,
                                 const SourceScales* scales) {
  FormatSupport support{.format = name};
  SilentDiagnostics silent;
  const auto all = {Strategy::kTensor, Strategy::kAttnHead};
  try_strategies(support, writer, all, [&](Strategy strategy, const auto& use) {
    const Conversion conversion(model_dir.given_path(), {name},
                                {.scales = {},
                                 .strategy = strategy,
                                 .dialect = {},
                                 .family = config.chosen,
                                 .own_scales = scales},
                                silent);
    use(conversion.input());
  });
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
  const auto give = [&](QuantType type, Strategy strategy, const auto& use) {
    Recipe recipe;
    const Calibration calibration = unit_calibration(config, strategy, type);
    recipe.modifiers.emplace_back().kv_cache_scheme = calibration.kv_args;
    use({.model = other ? other->model : model_dir,
         .calibration = calibration,
         .config = &config,
         .recipe = &recipe,
         .kept = kept ? &*kept : nullptr});
  };
  const auto with = [&](QuantType type) {
    return [&give, type](Strategy strategy, const auto& use) { give(type, strategy, use); };
  };
  if (kWriters.at(name).holds_fp8)
    try_strategies(support, writer, {Strategy::kTensor, Strategy::kAttnHead},
                   with(QuantType::kFloat));
  else
    try_strategies(support, writer, {Strategy::kTensor, Strategy::kAttnHead, Strategy::kChannel},
                   with(QuantType::kInt));
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
  const bool has_scales = find_kv_scale_format(scale_tensors_of(model_dir), config) != nullptr;
  std::optional<SourceScales> scales;  // read once: each format and strategy converts them
  if (has_scales) refusal_of([&] { scales = read_scales_of_checkpoint(model_dir, config); });
  const SourceScales* read = scales ? &*scales : nullptr;
  for (const auto& [name, row] : kWriters.rows()) {
    const std::string format(name);
    consumers.formats.push_back(
        has_scales ? conversion_support(format, *row.make(), model_dir, config, read)
                   : format_support(format, *row.make(), model_dir, config));
  }
  if (has_scales)
    consumers.served =
        served_engines({{.checkpoint = model_dir.given_path()}}, config, checkpoint_engines(), 1);
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
  for (const EngineVerdict& verdict : consumers.engines) engines.push_back(verdict_json(verdict));
  Json served = Json::array();
  for (const ServedEngine& engine : consumers.served)
    served.push_back({{"engine", engine.name},
                      {"title", engine.title},
                      {"fate", name_of(engine.outcome)},
                      {"note", engine.note}});
  return {{"calibration", support_json(consumers.calibration_refusal)},
          {"formats", formats},
          {"engines", engines},
          {"served", served}};
}

namespace {

constexpr std::string_view kWeight = ".weight";

/// "weight_scale" or another word of an FP8 Linear; empty for any other tensor.
std::string_view scale_word(std::string_view name, const std::map<std::string, Role>& roles) {
  for (const std::string_view word :
       {"weight_scale", "input_scale", "activation_scale", "weight_zero_point", "input_zero_point"})
    if (name.ends_with(word) &&
        roles.contains(std::string(name.substr(0, name.size() - word.size())) + "weight"))
      return word;
  return {};
}

/// Names of all tensors that the family may have, with their roles; those of absent ones too. A
/// name that stands for several has the role that it has in its layer.
std::map<std::string, Role> roles_of(const ModelConfig& config) {
  std::map<std::string, Role> roles;
  const auto add = [&](const TensorRow& row, const std::string& prefix, const LayerConfig* layer) {
    const int64_t count = row.is_numbered() ? config.size_of(row.repeat, layer) : 1;
    for (int64_t i = 0; i < count; ++i) {
      const std::string name = prefix + row.name_of(i);
      roles.emplace(name, row.role);
      if (!name.ends_with(kWeight)) continue;
      const std::string other = renamed_expert(name.substr(0, name.size() - kWeight.size()));
      if (!other.empty()) roles.emplace(other + std::string(kWeight), row.role);
    }
    for (const SplitRow& part : row.split)
      for (int64_t i = 0; i < config.size_of(row.repeat, layer); ++i)
        roles.emplace(prefix + numbered(part.name, i), part.role);
  };
  for (const TensorRow& row : config.architecture->model_tensors)
    add(row, row.is_of_head() ? config.head_prefix : config.backbone_prefix, nullptr);
  for (const bool wanted : {true, false})
    for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
      for (const TensorRow& row : config.architecture->layer_tensors) {
        const LayerConfig& own = config.layers[static_cast<size_t>(layer)];
        if (config.holds(row.conditions, &own) == wanted)
          add(row, config.layer_prefix(layer), &own);
      }
  return roles;
}

}  // namespace

std::vector<ListedTensor> list_tensors(const ModelDir& model_dir, const ModelConfig& config) {
  constexpr std::string_view kBlockScale = "_scale_inv";
  const std::map<std::string, Role> roles = roles_of(config);
  const auto kv_scales = kv_scale_names(config);
  std::vector<ListedTensor> tensors;
  for (const std::string& name : model_dir.tensor_names()) {
    ListedTensor entry{name, "none", "not read", &model_dir.tensor(name)};
    if (const auto role = roles.find(name); role != roles.end()) {
      entry.role = row_of(role->second).name;
      entry.group = row_of(role->second).group;
    } else if (kv_scales.contains(name)) {
      entry.role = "kv_scale";
      entry.group = "KV scales";
    } else if (name.ends_with(kBlockScale) &&
               roles.contains(name.substr(0, name.size() - kBlockScale.size()))) {
      entry.role = "block_scale";
      entry.group = "block scales";
    } else if (const std::string_view word = scale_word(name, roles); !word.empty()) {
      entry.role = word;
      entry.group = "FP8 scales";
    }
    tensors.push_back(std::move(entry));
  }
  return tensors;
}

std::vector<report::TensorKind> group_sizes(const std::vector<ListedTensor>& tensors) {
  std::vector<report::TensorKind> groups;
  for (const ListedTensor& entry : tensors) {
    auto group = std::ranges::find(groups, entry.group, &report::TensorKind::kind);
    if (group == groups.end())
      group = groups.insert(groups.end(), {.kind = std::string(entry.group)});
    ++group->count;
    group->bytes += entry.tensor->bytes.size();
  }
  return groups;
}

}  // namespace kvcal
