#include "inspect/page_values.h"

#include <algorithm>
#include <cmath>

#include "core/file.h"
#include "core/folder.h"
#include "core/text.h"
#include "engines/verify.h"
#include "hub/hub_cache.h"

namespace kvcal {
namespace {

using report::CacheLayer;
using report::CacheTensor;
using report::CheckpointReport;

CacheTensor cache_tensor_of(const InspectedLayer& row, const std::vector<Scale>& scales,
                            const std::string& side) {
  CacheTensor tensor = row.statistics ? cache_tensor(*row.statistics, side) : CacheTensor();
  for (const Scale& scale : scales) tensor.scales.push_back(scale.value);
  return tensor;
}

std::vector<CacheLayer> cache_layers(const InspectionResult& checkpoint) {
  std::vector<CacheLayer> layers;
  for (const InspectedLayer& row : checkpoint.layers)
    in_context(kManifestName, [&] {
      in_context("layer " + std::to_string(row.layer), [&] {
        layers.push_back({.layer = row.layer,
                          .dtype = row.dtype ? std::string(name_of(*row.dtype)) : "–",
                          .bytes = row.bytes,
                          .k = cache_tensor_of(row, row.k_scales, "k"),
                          .v = cache_tensor_of(row, row.v_scales, "v"),
                          .has_channel_scales =
                              std::ssize(row.k_scales) > checkpoint.config.cache(row.layer).heads,
                          .damage = row.statistics ? layer_damage(*row.statistics) : std::nullopt});
      });
    });
  return layers;
}

std::string input_words(const LinearQuantization& linear) {
  switch (linear.input) {
    case InputQuantization::kNone:
      return "16 bits";
    case InputQuantization::kStatic:
      return "static";
    case InputQuantization::kDynamicToken:
      return "dynamic, per token";
    case InputQuantization::kDynamicGroup:
      break;
  }
  return "dynamic, per group of " + std::to_string(linear.group);
}

/// The name without its layer's prefix, experts' numbers as *.
std::string kind_of_module(std::string name) {
  std::string kind;
  while (!name.empty()) {
    const size_t end = std::min(name.find('.'), name.size());
    const std::string part = name.substr(0, end);
    const bool is_number =
        !part.empty() && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
    kind += (kind.empty() ? "" : ".") + (is_number ? std::string("*") : part);
    name.erase(0, end + 1);
  }
  return kind;
}

std::vector<report::Fp8Linear> fp8_linears(const InspectionResult& checkpoint) {
  std::vector<report::Fp8Linear> linears;
  for (const auto& [module, linear] : checkpoint.quantization.linears) {
    const std::vector<float> scales = as_float32({&linear.weight_scale, 1});
    if (scales.empty()) continue;
    report::Fp8Linear one{.module = module,
                          .layer = std::nullopt,
                          .kind = module,
                          .weight_scale = std::ranges::max(scales),
                          .num_weight_scales = static_cast<int64_t>(scales.size()),
                          .input = input_words(linear),
                          .input_scale = std::nullopt};
    if (linear.input == InputQuantization::kStatic) one.input_scale = linear.input_scale;
    for (int64_t layer = 0; layer < checkpoint.config.num_hidden_layers; ++layer)
      if (const std::string prefix = checkpoint.config.layer_prefix(layer);
          module.starts_with(prefix)) {
        one.layer = layer;
        one.kind = kind_of_module(module.substr(prefix.size()));
      }
    linears.push_back(std::move(one));
  }
  return linears;
}

/// A number or text of the manifest; empty where there is none.
template <class... Keys>
std::string text_at(const Json& manifest, const Keys&... keys) {
  const Json* value = member(manifest, keys...);
  if (!value || value->is_null() || value->is_structured()) return {};
  return value->is_string() ? value->get<std::string>() : value->dump();
}

/// "one file, sha256 1234abcd"
std::string named_source(const Json& manifest, const char* key) {
  const std::string path = text_at(manifest, key, "path"), sha = text_at(manifest, key, "sha256");
  return path + (path.empty() || sha.empty() ? "" : ", ") + (sha.empty() ? "" : "sha256 " + sha);
}

/// Seconds of all stages; empty where none is told.
std::string all_seconds(const Json& manifest) {
  const Json* stages = member(manifest, "seconds");
  if (!stages || !stages->is_object()) return {};
  double sum = 0;
  for (const auto& [stage, seconds] : stages->items())
    if (seconds.is_number()) sum += seconds.get<double>();
  return time_text(sum);
}

/// What a reader asks of a calibration; the manifest has the rest.
report::Pairs origin_of(const Json& manifest) {
  const std::string samples = text_at(manifest, "dataset", "num_samples"),
                    tokens = text_at(manifest, "dataset", "num_tokens");
  const Json* peak = member(manifest, "peak_rss_bytes");
  report::Pairs pairs{
      {"written by", text_at(manifest, "created_by")},
      {"model", named_source(manifest, "model")},
      {"recipe", named_source(manifest, "recipe")},
      {"observer", text_at(manifest, "recipe", "kv_cache_scheme", "observer")},
      {"scales by", text_at(manifest, "recipe", "kv_cache_scheme", "strategy")},
      {"data set", named_source(manifest, "dataset")},
      {"samples", samples + (tokens.empty() ? "" : ", " + tokens + " tokens")},
      {"longest sample, tokens", text_at(manifest, "dataset", "longest_sample")},
      {"computed in", text_at(manifest, "compute_dtype")},
      {"cache while calibrating", text_at(manifest, "kv_forward")},
      {"device", text_at(manifest, "device")},
      {"time", all_seconds(manifest)},
      {"peak memory", peak && peak->is_number() ? byte_text(peak->get<double>()) : ""}};
  std::erase_if(pairs, [](const auto& pair) { return pair.second.empty(); });
  return pairs;
}

/// The name of the data set's file; empty where the manifest has none.
std::string dataset_name(const Json& manifest) {
  const Json* path = member(manifest, "dataset", "path");
  return path && path->is_string() ? fs::path(path->get<std::string>()).filename().string() : "";
}

/// Whether scales of tensors and of the manifest tell the same: rounding to 16 bits apart.
bool agree(const std::vector<float>& tensor, const std::vector<float>& manifest) {
  if (tensor.empty() || manifest.empty()) return true;
  return std::fabs(std::ranges::max(tensor) - std::ranges::max(manifest)) <=
         0.01f * std::ranges::max(manifest);
}

std::vector<std::string> scale_gaps(const InspectionResult& checkpoint,
                                    const std::vector<CacheLayer>& layers) {
  std::vector<int64_t> without, different;
  for (size_t i = 0; i < layers.size(); ++i) {
    const CacheLayer& layer = layers[i];
    const Json* seen = checkpoint.layers[i].statistics;
    if (layer.k.scales.empty()) without.push_back(layer.layer);
    if (seen && (!agree(layer.k.scales, magnitudes(*seen, "k_scale")) ||
                 !agree(layer.v.scales, magnitudes(*seen, "v_scale"))))
      different.push_back(layer.layer);
  }
  std::vector<std::string> gaps;
  if (!layers.empty() && without.size() == layers.size())
    gaps.push_back("No layer has KV scales: an FP8 cache would run with scale 1.0.");
  else if (!without.empty())
    gaps.push_back("Layers without KV scales: " + range_text(without) +
                   ". Engines take 1.0 there, or must be told to leave them in 16 bits.");
  if (!different.empty())
    gaps.push_back("Scales differ from those in " + std::string(kManifestName) + " in layers " +
                   range_text(different) +
                   ": one was changed, or the manifest belongs to another output (TGI's one scale "
                   "for K and V is such a change).");
  return gaps;
}

std::vector<std::string> gaps_of(const InspectionResult& checkpoint,
                                 const std::vector<CacheLayer>& layers) {
  std::vector<std::string> gaps = scale_gaps(checkpoint, layers);
  const std::string name(kManifestName);
  if (checkpoint.manifest.is_null()) {
    gaps.push_back(
        "There is no " + name +
        " beside the checkpoint, as kvcal calibrate writes it: a checkpoint holds scales "
        "alone, so extremes, clipping and magnitudes are not known.");
    return gaps;
  }
  std::vector<int64_t> without_histogram;
  for (const CacheLayer& layer : layers)
    if (!layer.k.histogram || !layer.v.histogram) without_histogram.push_back(layer.layer);
  if (!without_histogram.empty())
    gaps.push_back(name + " has no histograms of layers " + range_text(without_histogram) +
                   ": a kvcal that kept none wrote it. Calibrate again to see magnitudes.");
  return gaps;
}

/// The reports of all engines. One whose rules cannot be held against the checkpoint says why as a
/// finding.
std::vector<VerifyReport> engine_reports(const InspectionResult& checkpoint) {
  std::vector<VerifyReport> reports;
  for (const std::string& engine : engine_rules().names()) try {
      reports.push_back(verify_checkpoint(checkpoint.model_dir.given_path(), engine,
                                          {.scales = {}, .family = checkpoint.config.chosen}));
    } catch (const SystemError&) {
      throw;
    } catch (const Error& error) {
      VerifyReport& report = reports.emplace_back();
      report.engine = engine;
      report.kv_cache_dtype = "not known";
      report.loads = false;
      report.findings.push_back(
          {.severity = Severity::kError, .layers = {}, .message = error.what(), .remedy = {}});
    }
  return reports;
}

/// "out/" and "." have no name of their own.
std::string name_of_folder(const fs::path& folder) {
  const fs::path whole = resolved(folder);
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

/// A checkpoint's name: owner/name of one of the hub, else its folder's.
std::string title_of(const fs::path& folder) {
  const std::string name = name_of_source(folder);
  return name == folder.string() ? name_of_folder(folder) : name.substr(0, name.find('@'));
}

/// The folder that holds the checkpoint of an output, itself or the first of its formats; empty for
/// none.
fs::path checkpoint_in(const fs::path& output) {
  if (is_there(output / "config.json")) return output;
  for (const fs::path& folder : paths_in(output))
    if (is_there(folder / "config.json")) return folder;
  return {};
}

}  // namespace

CheckpointReport page_values(const InspectionResult& checkpoint, const std::string& version) {
  CheckpointReport page;
  page.path = checkpoint.path;
  page.name = title_of(checkpoint.model_dir.path());
  page.model_type = checkpoint.config.model_type;
  page.scale_format = checkpoint.scale_format;
  page.version = version;
  page.format = checkpoint.quantization.kv.format();
  const Json* type = member(checkpoint.manifest, "recipe", "kv_cache_scheme", "type");
  if (checkpoint.has_scales_elsewhere && type && *type == "int") page.format = KvFormat::int8();
  page.parameters = checkpoint.parameters;
  page.bytes = checkpoint.bytes;
  page.cache_bytes_fp8 = static_cast<uint64_t>(checkpoint.cache.values_per_token);
  page.cache_bytes_16_bit = 2 * page.cache_bytes_fp8;
  page.tensors = group_sizes(checkpoint.tensors);
  page.layers = cache_layers(checkpoint);
  page.gaps = gaps_of(checkpoint, page.layers);
  page.linears = fp8_linears(checkpoint);
  // The rules of engines do not say what they load from a checkpoint with a file of scales.
  if (!checkpoint.has_scales_elsewhere) page.engines = engine_reports(checkpoint);
  page.images = in_context(kManifestName, [&] { return image_magnitudes_of(checkpoint.manifest); });
  page.late = in_context(kManifestName, [&] { return late_positions_of(checkpoint.manifest); });
  page.verdicts = in_context(kManifestName, [&] { return verdicts_of(checkpoint.manifest); });
  page.warnings = in_context(kManifestName, [&] { return warnings_of_run(checkpoint.manifest); });
  page.stop = in_context(kManifestName, [&] { return stop_outcome(checkpoint.manifest); });
  page.origin = origin_of(checkpoint.manifest);
  page.dataset = dataset_name(checkpoint.manifest);
  page.architecture = shown(checkpoint.properties);
  page.served = checkpoint.consumers.served;
  page.engine_words = checkpoint.consumers.engines;
  return page;
}

CheckpointReport page_values(const fs::path& output, const fs::path& place,
                             const std::string& model, const std::string& version,
                             const FamilyChoice& family) {
  const fs::path checkpoint = checkpoint_in(output);
  if (checkpoint.empty()) {
    CheckpointReport page = page_values(InspectionResult(model, output, family), version);
    page.scale_format = "in " + place.string();
    return page;
  }
  CheckpointReport page = page_values(InspectionResult(checkpoint.string(), {}, family), version);
  const fs::path shown = checkpoint == output ? place : place / checkpoint.filename();
  std::vector<std::string*> texts;
  for (VerifyReport& report : page.engines)
    for (Finding& finding : report.findings)
      texts.insert(texts.end(), {&finding.message, &finding.remedy});
  for (ServedEngine& engine : page.served) texts.push_back(&engine.note);
  for (std::string* text : texts) *text = replaced(*text, checkpoint.string(), shown.string());
  page.path = shown.string();
  page.name = name_of_folder(shown);
  return page;
}

}  // namespace kvcal
