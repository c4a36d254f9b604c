#include "export/manifest.h"

#include <algorithm>
#include <functional>

#include "core/hash.h"
#include "quant/observations.h"

namespace kvcal {

namespace {

/// A list of a number of each item.
template <class Item, class NumberOf>
Json list_of(const std::vector<Item>& items, const NumberOf& number_of) {
  Json list = Json::array();
  for (const Item& item : items) list.push_back(std::invoke(number_of, item));
  return list;
}

Json histogram_json(const KvTensorCalibration& side) {
  const OctaveCounts octaves = octave_counts(side.head_histograms);
  return {
      {"zeros", octaves.zeros}, {"first_octave", octaves.first_octave}, {"counts", octaves.counts}};
}

/// Fraction of saturated values; null where they were not counted.
Json saturated_json(const KvTensorCalibration& side) {
  if (!side.num_saturated) return nullptr;
  const uint64_t values = side.num_values;
  return values == 0 ? 0.0 : static_cast<double>(*side.num_saturated) / static_cast<double>(values);
}

Json amax_json(const std::vector<Amax>& values) {
  return list_of(values, &Amax::value);
}

Json convergence_json(const AttentionCalibration& layer) {
  const AmaxConvergence &k = layer.k.convergence, &v = layer.v.convergence;
  Json json = {{"num_samples", k.num_samples},
               {"k_amax", amax_json(k.running)},
               {"v_amax", amax_json(v.running)},
               {"k_interval", {k.low.value, k.high.value}},
               {"v_interval", {v.low.value, v.high.value}}};
  if (!layer.q) return json;
  const AmaxConvergence& q = layer.q->convergence;
  json["q_amax"] = amax_json(q.running);
  json["q_interval"] = {q.low.value, q.high.value};
  return json;
}

/// Where the largest magnitude is, with the number of its record.
Json place_json(const AmaxPlace& place, const std::vector<int64_t>& records) {
  Json json = {{"record", records[static_cast<size_t>(place.sample)]},
               {"first", place.first},
               {"last", place.last}};
  if (!place.text.empty()) json["text"] = place.text;
  return json;
}

/// The largest magnitudes by bucket of positions. records: of the samples.
Json positions_json(const AttentionCalibration& layer, const std::vector<int64_t>& records) {
  Json first = Json::array();
  for (size_t bucket = 0; bucket < layer.k.position_amax.size(); ++bucket)
    first.push_back(first_position(bucket));
  Json json = {{"first", std::move(first)},
               {"k_amax", amax_json(layer.k.position_amax)},
               {"v_amax", amax_json(layer.v.position_amax)}};
  for (const auto& [key, side] :
       {std::pair{"k_largest", &layer.k}, std::pair{"v_largest", &layer.v}})
    if (side->amax_place && side->amax_place->sample < std::ssize(records))
      json[key] = place_json(*side->amax_place, records);
  return json;
}

Json damage_json(const std::vector<AttentionError>& heads) {
  const auto error_of = [](const AttentionError& one) {
    return static_cast<float>(one.relative_error());
  };
  const auto kl_of = [](const AttentionError& one) { return static_cast<float>(one.mean_kl()); };
  const AttentionError all = sum_of(heads);
  return {{"output_error", error_of(all)},
          {"weights_kl", kl_of(all)},
          {"head_output_error", list_of(heads, error_of)},
          {"head_weights_kl", list_of(heads, kl_of)}};
}

/// What the cache does to the layer's attention.
Json damage_json(const AttentionDamage& damage) {
  return {{"num_queries", damage.calibrated.empty() ? 0 : damage.calibrated[0].queries},
          {"calibrated", damage_json(damage.calibrated)},
          {"unit", damage_json(damage.unit)}};
}

/// Numbers of K, V or Q, each by its name behind "k_".
Json side_json(const KvTensorCalibration& side, bool ignored) {
  return {
      {"amax", side.range().amax().value},
      {"scale", scales_json(side.scales, ignored)},
      {"head_amax", list_of(side.head_ranges, [](const Range& head) { return head.amax().value; })},
      {"saturated", saturated_json(side)},
      {"histogram", histogram_json(side)}};
}

/// The largest magnitudes of one kind of tokens.
Json kind_json(const AttentionCalibration& layer, Amax KindAmax::*kind) {
  return {{"k_amax", ((*layer.k.kind_amax).*kind).value},
          {"v_amax", ((*layer.v.kind_amax).*kind).value}};
}

Json layer_json(const AttentionCalibration& layer, const Calibration& calibration,
                const std::vector<int64_t>& records) {
  Json json = layer_marks(layer, calibration);
  const Json k = side_json(layer.k, layer.ignored), v = side_json(layer.v, layer.ignored);
  for (const auto& [name, value] : k.items()) {
    json["k_" + name] = value;
    json["v_" + name] = v.at(name);
  }
  if (!layer.k.convergence.num_samples.empty()) json["convergence"] = convergence_json(layer);
  if (!layer.k.position_amax.empty()) json["positions"] = positions_json(layer, records);
  if (layer.k.kind_amax && layer.v.kind_amax)
    json["tokens"] = {{"text", kind_json(layer, &KindAmax::text)},
                      {"images", kind_json(layer, &KindAmax::images)}};
  if (layer.damage) json["attention_damage"] = damage_json(*layer.damage);
  if (!layer.q) return json;
  const Json q = side_json(*layer.q, layer.ignored);
  for (const auto& [name, value] : q.items()) json["q_" + name] = value;
  return json;
}

/// Entry of every module of the plan in order; missing values are null.
Json linears_json(const Calibration& calibration, const WrittenCheckpoint& written) {
  std::map<std::string_view, const LinearCalibration*> inputs;
  for (const LinearCalibration& linear : calibration.linears)
    inputs.emplace(linear.module, &linear);
  Json linears = Json::object();
  for (const PlannedLinear& planned : calibration.plan.linears) {
    const auto input = inputs.find(planned.module);
    const auto weight = written.weights.find(planned.module);
    const bool has_input = input != inputs.end(), has_weight = weight != written.weights.end();
    Json& json = linears[planned.module] = Json::object();
    json["input_amax"] = has_input ? Json(input->second->input_amax.value) : Json();
    json["input_scale"] = has_input ? Json(input->second->input_scale.value) : Json();
    json["weight_amax"] =
        has_weight && weight->second.amax ? Json(weight->second.amax->value) : Json();
    json["weight_scale"] = has_weight ? Json(weight->second.largest_scale.value) : Json();
    if (has_input) json["input_tokens"] = input->second->input_tokens;
  }
  return linears;
}

/// Names in one field of all modifiers, each once.
Json names_of(const Recipe& recipe, std::vector<std::string> Modifier::*names) {
  Json all = Json::array();
  for (const Modifier& modifier : recipe.modifiers)
    for (const std::string& name : modifier.*names)
      if (std::ranges::find(all, Json(name)) == all.end()) all.push_back(name);
  return all;
}

Json recipe_json(const ManifestInput& input, const Recipe& recipe, const Calibration& calibration) {
  Json json = {
      {"path", input.recipe_path},
      {"sha256", sha256_hex(recipe.source)},
      {"targets", names_of(recipe, &Modifier::targets)},
      {"ignore", names_of(recipe, &Modifier::ignore)},
      {"kv_cache_scheme", calibration.layers.empty() ? Json() : to_json(calibration.kv_args)}};
  if (Json groups = config_groups(calibration); !groups.empty())
    json["config_groups"] = std::move(groups);
  return json;
}

Json move_json(const ScaleMove& move) {
  Json json = {{"ratio", move.ratio ? Json(*move.ratio) : Json()},
               {"num_samples", move.num_samples},
               {"module", move.module},
               {"layer", move.layer},
               {"scale", move.scale}};
  if (move.head) json["head"] = *move.head;
  if (move.channel) json["channel"] = *move.channel;
  return json;
}

Json stop_json(const StopOutcome& stop) {
  return {{"ratio", stop.rule.ratio},
          {"window", stop.rule.window},
          {"num_samples", stop.num_samples},
          {"max_samples", stop.max_samples},
          {"is_stable", stop.is_stable},
          {"largest_move", stop.largest_move ? move_json(*stop.largest_move) : Json()}};
}

Json dataset_json(const Provenance& origin) {
  if (origin.dataset_path.empty()) return nullptr;
  Json json = {{"path", origin.dataset_path}, {"sha256", origin.dataset_sha256}};
  if (!origin.dataset_columns.empty()) json["columns"] = parse_json(origin.dataset_columns);
  json["sample_indices"] = origin.sample_indices;
  json["num_samples"] = origin.sample_indices.size();
  json["num_tokens"] = origin.num_tokens;
  if (origin.longest_sample > 0) json["longest_sample"] = origin.longest_sample;
  return json;
}

}  // namespace

Json scales_json(const std::vector<Scale>& scales, bool ignored) {
  if (ignored) return nullptr;
  return scales.size() == 1 ? Json(scales[0].value) : list_of(scales, &Scale::value);
}

Json layer_marks(const AttentionCalibration& layer, const Calibration& calibration) {
  Json json = {{"layer", layer.layer}, {"module", layer.module}};
  if (calibration.is_draft(layer)) json["draft"] = true;
  if (layer.reads_cache_of) json["reads_cache_of"] = *layer.reads_cache_of;
  return json;
}

Json make_manifest(const ManifestInput& input, const Recipe& recipe, const Calibration& calibration,
                   const WrittenCheckpoint& written) {
  const Provenance& origin = input.origin;
  Json manifest = Json::object();
  manifest["kvcal_version"] = input.version;
  manifest["created_by"] = "kvcal " + input.version;
  manifest["model"] = {{"path", origin.model_path},
                       {"model_type", origin.model_type},
                       {"sha256", origin.model_sha256}};
  if (!origin.family.empty()) manifest["model"]["family"] = origin.family;
  if (!origin.family_sha256.empty()) manifest["model"]["family_sha256"] = origin.family_sha256;
  manifest["recipe"] = recipe_json(input, recipe, calibration);
  manifest["dataset"] = dataset_json(origin);
  if (manifest["dataset"].is_object()) manifest["dataset"].update(input.reading);
  manifest["compute_dtype"] = origin.compute_dtype;
  manifest["kv_forward"] = origin.kv_forward;
  if (!origin.inputs.empty()) manifest["inputs"] = origin.inputs;
  if (calibration.headroom != 1.0) manifest["headroom"] = calibration.headroom;
  if (input.stop) manifest["stop"] = stop_json(*input.stop);
  if (!input.leave_out_machine) {
    manifest["device"] = origin.device;
    if (!input.products.is_null()) manifest["products"] = input.products;
    manifest["seconds"] = input.seconds;
    manifest["peak_rss_bytes"] = input.peak_rss_bytes;
  }
  if (!input.summary.is_null()) manifest["summary"] = input.summary;
  if (!input.kl_budget.is_null()) manifest["kl_budget"] = input.kl_budget;
  manifest["layers"] = Json::array();
  for (const AttentionCalibration& layer : calibration.layers)
    manifest["layers"].push_back(layer_json(layer, calibration, origin.sample_indices));
  manifest["linears"] = linears_json(calibration, written);
  return manifest;
}

}  // namespace kvcal
