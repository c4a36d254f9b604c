#include "convert/support/convert_case.h"

#include <algorithm>
#include <cmath>

#include "calib/plan/resolve_plan.h"
#include "calib/scales/derive.h"
#include "convert/conversion.h"
#include "convert/output_model.h"
#include "export/checkpoint_copy.h"
#include "stored/read_model_config.h"
#include "stored/weights.h"

namespace kvcal::test {

float scales_apart(int64_t layer, char side, int64_t head) {
  const float own = static_cast<float>(2 * layer + 3) / 64.0f;
  return std::ldexp(own, static_cast<int>(side == 'v' ? -2 * head - 3 : 2 * head - 1));
}

float one_scale_a_layer(int64_t layer, char, int64_t) {
  return static_cast<float>(2 * layer + 3) / 100.0f;
}

std::string recipe_text(const std::string& weights, const std::string& kv_strategy,
                        const std::string& ignored) {
  std::string text = "default_stage:\n  default_modifiers:\n    QuantizationModifier:\n";
  std::string names = ignored;
  // Families differ in what they call the head; a pattern that matches nothing is an error.
  constexpr const char* kHead = "'re:(lm_head|embed_out|output|output_projection)$'";
  if (!weights.empty()) names += (ignored.empty() ? "" : ", ") + std::string(kHead);
  if (!names.empty()) text += "      ignore: [" + names + "]\n";
  if (!weights.empty()) text += "      " + weights + "\n";
  if (!kv_strategy.empty())
    text += "      kv_cache_scheme: {num_bits: 8, type: float, strategy: " + kv_strategy +
            ", dynamic: false, symmetric: true, observer: static_minmax}\n";
  return text;
}

namespace {

std::vector<Scale> scales_of(const Calibrated& all, int64_t layer, char side,
                             const ScaleOf& scale_of) {
  const bool per_head = resolved_strategy(all.calibration.kv_args) == Strategy::kAttnHead;
  std::vector<Scale> scales;
  for (int64_t head = 0; head < (per_head ? all.config.cache(layer).heads : 1); ++head)
    scales.push_back({scale_of(layer, side, head)});
  return scales;
}

/// Of static inputs; any will do.
void add_inputs(Calibration& calibration) {
  for (const PlannedLinear& linear : calibration.plan.linears) {
    const auto& inputs = calibration.plan.groups.at(linear.group).input_activations;
    if (!inputs || inputs->dynamic) continue;
    const float scale = 0.003f * static_cast<float>(calibration.linears.size() + 1);
    calibration.linears.push_back({.module = linear.module,
                                   .input_amax = {scale * 448.0f},
                                   .input_scale = {scale},
                                   .input_tokens = 7});
  }
}

}  // namespace

Calibrated::Calibrated(const fs::path& folder, const std::string& recipe_text,
                       const ScaleOf& scale_of)
    : model(folder), config(read_model_config(model)), recipe(parse_recipe(recipe_text)) {
  SilentDiagnostics silent;
  const QuantPlan plan = resolve_plan(recipe, config, silent, unrun_modules(model, config));
  calibration = empty_calibration(plan, config, KvDType::kFp8E4m3);
  for (const PlannedAttention& planned : plan.attention) {
    AttentionCalibration& layer = calibration.layers.emplace_back();
    layer.layer = planned.layer;
    layer.module = planned.module;
    layer.ignored = planned.ignored;
    if (planned.ignored) continue;
    layer.k.scales = scales_of(*this, planned.layer, 'k', scale_of);
    layer.v.scales = scales_of(*this, planned.layer, 'v', scale_of);
  }
  add_inputs(calibration);
}

void write_calibrated(const ExportInput& input, const std::string& format, const fs::path& folder) {
  fs::create_directories(folder);
  const auto writer = make_writer(format);
  writer->check(input);
  const WrittenCheckpoint written = writer->write(input, folder);
  if (!input.recipe) return;
  ManifestInput made;
  made.version = "0.0.1";
  made.leave_out_machine = true;
  write_json(folder / kManifestName,
             make_manifest(made, *input.recipe, input.calibration, written));
}

namespace {

using Writers = std::vector<std::unique_ptr<Writer>>;

/// As OutputFormats does: each format in its folder, weights linked to those of the first.
void write_all(const ConvertRun& run, const Writers& writers, const ExportInput& input) {
  WrittenCheckpoint first;
  for (size_t i = 0; i < writers.size(); ++i) {
    const fs::path folder = writers.size() == 1 ? run.target : run.target / run.formats[i];
    fs::create_directories(folder);
    if (run.scales_only) {
      write_overlay(input, writers[i]->parts(input), run.formats[i], folder);
      continue;
    }
    WrittenCheckpoint written =
        writers[i]->write(input, folder, first.folder.empty() ? nullptr : &first);
    if (first.folder.empty() && !written.folder.empty()) first = std::move(written);
  }
}

}  // namespace

Converted convert(const ConvertRun& run) {
  SilentDiagnostics silent;
  const Conversion conversion(run.checkpoint, run.formats, run.options, silent);
  ExportInput input = conversion.input();
  input.tp_size = run.tp_size;
  input.shares_weights = std::ranges::count_if(run.formats, [](const auto& name) {
                           return any_has(name, &OutputFormat::is_checkpoint);
                         }) > 1;
  Writers writers;
  for (const std::string& format : run.formats) {
    writers.push_back(make_writer(format));
    writers.back()->check(input);
  }
  check_target(conversion.model(), run.target);
  std::vector<FormatLosses> losses;
  for (size_t i = 0; i < writers.size(); ++i)
    losses.push_back({run.formats[i], losses_of(conversion, *writers[i], run.tp_size)});
  fs::create_directories(run.target);
  write_all(run, writers, input);
  if (run.has_manifest)
    write_json(run.target / kManifestName,
               conversion_manifest(conversion, "0.0.2",
                                   {.losses = losses,
                                    .writer = writers.size() == 1 ? writers[0].get() : nullptr,
                                    .tp_size = run.tp_size}));
  return {conversion.notes(), conversion.warnings(), losses.front().layers};
}

Converted apply(const fs::path& overlay, const fs::path& checkpoint, const fs::path& target) {
  std::string format = read_overlay(overlay).format;
  if (const auto kept = read_kept_quantization(ModelDir(checkpoint))) format = kept->format;
  return convert({.checkpoint = checkpoint,
                  .formats = {format},
                  .target = target,
                  .options = {.scales = overlay, .strategy = {}, .dialect = {}}});
}

std::map<std::string, std::string> outputs_of(const fs::path& folder) {
  auto files = contents_of(folder);
  files.erase("recipe.yaml");
  files.erase(std::string(kManifestName));
  // Without manifest and card, the source's files count as another tool's.
  std::erase_if(files, [](const auto& file) { return file.first.starts_with("source_"); });
  return files;
}

std::string difference(const std::map<std::string, std::string>& actual,
                       const std::map<std::string, std::string>& expected) {
  for (const auto& [name, content] : expected) {
    const auto found = actual.find(name);
    if (found == actual.end()) return name + " is missing";
    if (found->second != content)
      return name + " differs: " + found->second.substr(0, 1500) + "\n, expected " +
             content.substr(0, 1500);
  }
  for (const auto& [name, content] : actual)
    if (!expected.contains(name)) return name + " is new";
  return {};
}

std::vector<float> values_of(const ModelDir& model, const std::string& tensor) {
  return as_float32(std::span(&model.tensor(tensor), 1));
}

std::string refusal_of(ConvertRun run) {
  const ScratchFolder scratch;
  if (run.target.empty()) run.target = scratch / "out";
  return message_of([&] { convert(run); });
}

void write_json(const fs::path& file, const Json& json) {
  write_file(file, dump_json(json));
}

void change_config(const fs::path& folder, const std::function<void(Json& config)>& change) {
  Json config = parse_json(read_text(folder / "config.json"));
  change(config);
  write_json(folder / "config.json", config);
}

void copy_folder(const fs::path& source, const fs::path& target) {
  fs::create_directories(target.parent_path());
  fs::copy(source, target, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
}

void write_scales_json(const fs::path& file, const std::vector<std::vector<float>>& scales,
                       const std::string& dtype, const std::string& model_type) {
  Json ranks = Json::object();
  for (size_t rank = 0; rank < scales.size(); ++rank)
    for (size_t layer = 0; layer < scales[rank].size(); ++layer)
      ranks[std::to_string(rank)][std::to_string(layer)] = scales[rank][layer];
  write_json(file, {{"model_type", model_type},
                    {"kv_cache", {{"dtype", dtype}, {"scaling_factor", ranks}}}});
}

bool tells(const std::vector<std::string>& lines, std::string_view part) {
  return std::ranges::any_of(lines, [&](const std::string& line) { return contains(line, part); });
}

}  // namespace kvcal::test
