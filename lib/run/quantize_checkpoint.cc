#include "run/quantize_checkpoint.h"

#include <algorithm>

#include "checkpoint/model_dir.h"
#include "core/file.h"
#include "export/checkpoint_copy.h"
#include "export/packed_copy.h"
#include "export/writer.h"
#include "quant/weight_packer.h"
#include "run/command_output.h"
#include "run/command_paths.h"
#include "run/subject.h"

namespace kvcal {
namespace {

uint64_t kept_bytes(const ModelDir& model, const WeightsByName& found) {
  uint64_t bytes = 0;
  for (const SafetensorsFile& shard : model.shards())
    for (const TensorView& tensor : shard.tensors())
      if (!found.replaced.contains(tensor.name)) bytes += tensor.bytes.size();
  for (const RenamedTensor& copy : found.renamed)
    bytes += byte_count(copy.shape(), copy.source->dtype);
  return bytes;
}

/// Bytes of the output's weights without their scales.
uint64_t least_bytes(const ModelDir& model, const WeightsByName& found,
                     const WeightScheme& scheme) {
  uint64_t bytes = kept_bytes(model, found);
  for (const PlannedWeight& weight : found.quantized)
    bytes += element_count(weight.shape) * static_cast<uint64_t>(scheme.weights.num_bits) / 8;
  return bytes;
}

Json manifest_of(const QuantizeRequest& request, const ModelDir& model, const WeightScheme& scheme,
                 const WeightsByName& found) {
  Json quantized = Json::array(), kept = Json::object();
  for (const PlannedWeight& weight : found.quantized) quantized.push_back(weight.module);
  for (const CopiedWeight& one : found.kept) kept[one.name] = one.reason;
  const auto model_type = optional_string(model.config(), "model_type");
  return {{"kvcal_version", request.version},
          {"created_by", "kvcal " + request.version},
          {"model",
           {{"path", name_of_model(model)},
            {"model_type", or_null(model_type)},
            {"sampled_sha256", sampled_sha256(model)}}},
          {"scheme", scheme.name},
          {"ignore", request.ignore},
          {"quantized", std::move(quantized)},
          {"left_alone", std::move(kept)}};
}

/// Makes config.json of the output; tied modules keep their key, since neither is quantized.
std::string config_of(const ModelDir& model, const WeightScheme& scheme,
                      const WeightsByName& found) {
  Json config = model.config();
  config["quantization_config"] = packed_config(scheme, found.ignore);
  return config_text(config);
}

}  // namespace

QuantizeResult quantize_checkpoint(const QuantizeRequest& request, Diagnostics& diagnostics) {
  const WeightScheme scheme = in_context("--scheme", [&] { return weight_scheme(request.scheme); });
  const ModelDir model(request.checkpoint);
  model.check_complete();
  const WeightsByName found = weights_by_name(model, request.ignore);
  check_fit(found, model, scheme.weights, scheme.name);
  check_target(model, request.output);
  AtomicDirectory output(request.output, request.overwrite);
  check_room(request.output, least_bytes(model, found, scheme));
  ThreadPool pool(request.threads);
  copy_sidecar_files(model, {}, output.path());
  write_packed_weights(
      {.model = model, .found = found, .scheme = scheme, .pool = pool, .progress = diagnostics},
      output.path());
  write_text_file(output.path() / "config.json", config_of(model, scheme, found));
  QuantizeResult result{.scheme = scheme.name,
                        .format = std::string(storage_of(scheme.weights, scheme.inputs).format),
                        .num_quantized = found.quantized.size(),
                        .source_bytes = tensor_bytes(model),
                        .output_bytes = tensor_bytes(ModelDir(output.path())),
                        .kept = found.kept,
                        .kept_bytes = kept_bytes(model, found),
                        .manifest = manifest_of(request, model, scheme, found)};
  write_text_file(output.path() / kManifestName, dump_json(result.manifest));
  const std::vector<std::string> notes = packed_notes(found, scheme);
  write_card(output.path(), "compressed-tensors", model, result.manifest, {.notes = notes},
             request.card);
  output.commit();
  for (const std::string& note : notes) diagnostics.note(note);
  return result;
}

}  // namespace kvcal
