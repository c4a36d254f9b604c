#include "export/writer.h"

#include <algorithm>
#include <set>

#include "core/file.h"
#include "export/checkpoint_files.h"
#include "export/layer_scales.h"
#include "quant/usable_scale.h"

namespace kvcal {

// One maker for each file of writers/.
std::unique_ptr<Writer> make_compressed_tensors_writer();
std::unique_ptr<Writer> make_fp8_writer();
std::unique_ptr<Writer> make_modelopt_writer();
std::unique_ptr<Writer> make_quark_writer();
std::unique_ptr<Writer> make_scales_json_writer();
std::unique_ptr<Writer> make_tgi_writer();

const Registry<OutputFormat> kWriters{
    "format",
    {
        {"compressed-tensors",
         {.make = make_compressed_tensors_writer, .holds_heads = true, .holds_queries = true}},
        {"fp8", {.make = make_fp8_writer}},
        {"modelopt", {.make = make_modelopt_writer, .holds_nvfp4 = true, .has_config_file = true}},
        {"quark", {.make = make_quark_writer}},
        {"scales-json",
         {.make = make_scales_json_writer,
          .keeps_any_weights = true,
          .is_checkpoint = false,
          .holds_ranks = true}},
        {"tgi", {.make = make_tgi_writer, .keeps_any_weights = true}},
    }};

std::string list_formats() {
  std::vector<std::string> names = kWriters.names();
  std::stable_partition(names.begin(), names.end(),
                        [](const std::string& name) { return kWriters.at(name).is_checkpoint; });
  std::string all = names.front() + " (default)";
  for (size_t i = 1; i < names.size(); ++i)
    all += (i + 1 == names.size() ? " or " : ", ") + names[i];
  return all;
}

namespace {

void check_side(const KvTensorCalibration& side, Strategy strategy) {
  const size_t heads = side.head_ranges.size();
  if (side.scales.empty()) fail("has no scale");
  if (strategy == Strategy::kTensor && side.scales.size() != 1)
    fail("has ", side.scales.size(), " scales, strategy tensor has one");
  if (strategy == Strategy::kAttnHead && heads != 0 && side.scales.size() != heads)
    fail("has ", side.scales.size(), " scales for ", heads, " heads");
  for (size_t i = 0; i < side.scales.size(); ++i) {
    const float value = side.scales[i].value;
    if (!is_usable({value})) fail("head ", i, ": scale ", value, ", expected ", kUsableScale);
  }
}

void check_layer(const AttentionCalibration& layer, Strategy strategy) {
  in_context("K", [&] { check_side(layer.k, strategy); });
  in_context("V", [&] { check_side(layer.v, strategy); });
  if (layer.k.scales.size() != layer.v.scales.size())
    fail(layer.k.scales.size(), " scales of K, ", layer.v.scales.size(), " of V");
}

void check_layers(const Calibration& calibration) {
  const Strategy strategy = resolved_strategy(calibration.kv_args);
  if (strategy != Strategy::kTensor && strategy != Strategy::kAttnHead)
    fail("KV cache scales of strategy ", name_of(strategy), ", expected tensor or attn_head");
  const bool has_queries = has_query_scales(calibration);
  std::set<std::string_view> modules;
  bool has_scales = false;
  int64_t previous = -1;
  for (const AttentionCalibration& layer : calibration.layers) {
    in_context(layer.module, [&] {
      if (layer.module.empty() || !modules.insert(layer.module).second)
        fail("layer ", layer.layer, " has no module name of its own");
      if (layer.layer <= previous) fail("layer ", layer.layer, " comes after layer ", previous);
      previous = layer.layer;
      if (layer.ignored) return;
      check_layer(layer, strategy);
      if (has_queries && !layer.q) fail("Q: has no scale");
      if (has_queries) in_context("Q", [&] { check_side(*layer.q, strategy); });
      has_scales = true;
    });
  }
  if (!has_scales) fail("the calibration has no scale: no layer, or all are ignored");
}

/// Checks that every static input of the plan has a scale, and every scale an input.
void check_inputs(const Calibration& calibration) {
  const QuantPlan& plan = calibration.plan;
  auto next = calibration.linears.begin();
  for (const PlannedLinear& linear : plan.linears) {
    const auto& inputs = plan.groups.at(linear.group).input_activations;
    if (!inputs || inputs->dynamic) continue;
    if (next == calibration.linears.end() || next->module != linear.module)
      fail(linear.module, ": its input has no scale");
    const float value = next->input_scale.value;
    if (!is_usable({value}))
      fail(linear.module, ": scale ", value, " of its input, expected ", kUsableScale);
    ++next;
  }
  if (next != calibration.linears.end())
    fail(next->module, ": has a scale of its input, and the plan none");
}

}  // namespace

void check_calibration(const Calibration& calibration) {
  if (!calibration.layers.empty() || !calibration.plan.quantizes_weights())
    check_layers(calibration);
  check_inputs(calibration);
}

void check_is_kv_only(const Calibration& calibration, std::string_view format) {
  if (calibration.plan.quantizes_weights())
    fail(format,
         ", and FP8 weights are made; expected kv_cache_scheme alone, or this format in a run of "
         "its "
         "own");
  check_calibration(calibration);
}

void check_kept(const ExportInput& input, std::string_view format, std::string_view title) {
  if (!input.kept) return check_is_unquantized(input.model);
  const std::string& kept = input.kept->format;
  if (kept == format) return;
  const std::string problem =
      "the weights of the source are quantized in another form (quant_method '" + kept + "'): ";
  if (!kWriters.find(kept))
    fail(problem, "compressed-tensors holds the same codes where it has such, scales-json stands ",
         "beside them");
  fail(problem, kept, " keeps them, kvcal convert writes FP8 weights in ", title, "'s");
}

WrittenCheckpoint Writer::write(const ExportInput& input, const std::filesystem::path& folder,
                                const WrittenCheckpoint* first) const {
  const FormatParts parts = this->parts(input);
  WrittenCheckpoint written;
  if (parts.has_checkpoint) {
    written = write_checkpoint(input, parts, folder, first);
    written.folder = folder;
  }
  for (const auto& [name, content] : parts.files) write_text_file(folder / name, content);
  return written;
}

void check_target(const ModelDir& model, const std::filesystem::path& target) {
  for (const auto& folder : {model.path(), model.given_path()}) {
    if (lies_in(target, folder))
      fail(target.string(), ": lies in the source folder ", folder.string(),
           ", which is never written to");
    if (lies_in(folder, target))
      fail(target.string(), ": holds the source folder ", folder.string(),
           ", which an output would replace");
  }
  // Shards of a hub cache are links into another folder.
  for (const SafetensorsFile& shard : model.shards())
    if (lies_in(shard.file().path(), target))
      fail(target.string(), ": holds ", shard.file().path().string(),
           ", a file of the source, which an output would replace");
}

}  // namespace kvcal
