#include "run/output_formats.h"

#include <algorithm>

#include "convert/output_model.h"
#include "core/folder.h"
#include "core/output.h"
#include "core/text.h"
#include "core/usage_error.h"
#include "engines/engine_rules.h"
#include "engines/engine_verdicts.h"
#include "export/checkpoint_copy.h"
#include "forward/engine_cache.h"
#include "stored/kv_scales.h"
#include "stored/weights.h"

namespace kvcal {

namespace {

/// The first format that holds such weights, in the order of preference.
std::string format_of(const OutputWeights& weights, Diagnostics& diagnostics) {
  if (!weights.kept) return "compressed-tensors";
  if (kWriters.find(weights.kept->format)) return weights.kept->format;
  const std::string form = usual_recoding(*weights.kept);
  if (form != "compressed-tensors") return form;
  std::string problem = recoding_problem(*weights.weights);
  if (problem.empty()) problem = recoding_caveat(*weights.weights);
  if (problem.empty()) return form;
  diagnostics.note("the weights are quantized in the form " + weights.kept->format +
                   ", beside which engines read no scales, and no other form serves (" + problem +
                   "): --format scales-json is written");
  return "scales-json";
}

bool is_nvfp4(const std::string& kv_cache_dtype) {
  return normalised_name(kv_cache_dtype) == normalised_name(name_of(CacheFormat::kNvfp4));
}

/// Throws Error for a format that no engine reads NVFP4's scales of, and where blocks do not divide
/// heads.
void check_nvfp4(const std::vector<std::string>& formats, const ExportInput& input) {
  for (const std::string& format : formats)
    if (!kWriters.find(format) || !kWriters.at(format).holds_nvfp4)
      fail_usage(
          "--kv-cache-dtype nvfp4: engines read its scales of ModelOpt's form alone; --format ",
          format, " has no word for it, give --format modelopt");
  const ModelConfig config = read_model_config(input.model);
  for (const int64_t layer : config.cached_layers()) {
    const std::string problem = head_problem(CacheFormat::kNvfp4, config, layer);
    if (!problem.empty()) fail(problem);
  }
}

}  // namespace

void settle_formats(OutputOptions& options, const ModelDir& model, const FamilyChoice& family,
                    const OutputWeights& weights, Diagnostics& diagnostics) {
  if (!options.engines.empty() && options.scales_only)
    fail_usage("--for asks what engines make of a checkpoint, --scales-only writes an overlay");
  for (const std::string& engine : options.engines)
    if (const std::string newer =
            in_context("--for", [&] { return choose_engine(engine); }).warning();
        !newer.empty())
      diagnostics.warn("--for " + newer);
  if (!options.formats.empty()) return;
  if (is_nvfp4(options.kv_cache_dtype) && options.engines.empty()) {
    options.formats.emplace_back("modelopt");
    return;
  }
  if (options.engines.empty()) {
    options.formats.push_back(format_of(weights, diagnostics));
    return;
  }
  const std::string model_type = required_string(model.config(), "model_type");
  const ModelConfig config = read_model_config(model, family);
  options.formats = formats_for(options.engines,
                                {.model_type = model_type,
                                 .has_weights = weights.kept || weights.makes_weights,
                                 .json = &model.config(),
                                 .config = &config},
                                diagnostics);
  diagnostics.note("--for " + join(options.engines, ", ") + ": --format " +
                   join(options.formats, " --format "));
}

OutputFormats::OutputFormats(OutputOptions options) : options_(std::move(options)) {
  for (std::string& format : options_.formats) format = format_name(format);
  const std::vector<std::string>& formats = options_.formats;
  for (auto format = formats.begin(); format != formats.end(); ++format) {
    writers_.push_back(make_writer(*format));
    if (std::find(formats.begin(), format, *format) != format)
      fail_usage("--format ", *format, " is given twice");
  }
}

ExportInput OutputFormats::completed(const ExportInput& input) const {
  ExportInput all = input;
  all.tp_size = options_.tp_size;
  all.is_nvfp4 = is_nvfp4(options_.kv_cache_dtype);
  all.scale_in_model_dtype = options_.scale_dtype == "model";
  const auto has_weights = [](const std::string& format) {
    return any_has(format, &OutputFormat::is_checkpoint);
  };
  all.shares_weights = std::ranges::count_if(options_.formats, has_weights) > 1;
  return all;
}

fs::path OutputFormats::folder_of(const fs::path& output, size_t index) const {
  return writers_.size() == 1 ? output : output / options_.formats[index];
}

void OutputFormats::check(const ExportInput& input) const {
  if (is_nvfp4(options_.kv_cache_dtype)) check_nvfp4(options_.formats, input);
  for (size_t i = 0; i < writers_.size(); ++i)
    in_context("--format " + options_.formats[i], [&] { writers_[i]->check(completed(input)); });
  if (options_.scales_only && input.calibration.plan.quantizes_weights())
    fail("--scales-only writes scales of K and V; FP8 weights make a whole checkpoint");
}

WrittenCheckpoint OutputFormats::write(const ExportInput& input, const fs::path& folder,
                                       int threads, Diagnostics& progress) const {
  ExportInput all = completed(input);
  ThreadPool pool(threads);
  all.pool = &pool;
  all.progress = &progress;
  WrittenCheckpoint first;
  for (size_t i = 0; i < writers_.size(); ++i) {
    const fs::path own = folder_of(folder, i);
    if (own != folder) fs::create_directory(own);  // folder itself is there, or has vanished
    in_context("--format " + options_.formats[i], [&] {
      if (options_.scales_only)
        return write_overlay(all, writers_[i]->parts(all), options_.formats[i], own);
      WrittenCheckpoint written =
          writers_[i]->write(all, own, first.folder.empty() ? nullptr : &first);
      if (first.folder.empty() && !written.folder.empty()) first = std::move(written);
    });
  }
  return first;
}

void OutputFormats::tell_notes(const ExportInput& input, Diagnostics& diagnostics) const {
  std::vector<std::string> told;
  for (size_t i = 0; i < writers_.size(); ++i)
    for (const std::string& note : notes(i, input))
      if (std::ranges::find(told, note) == told.end()) {
        diagnostics.note(note);
        told.push_back(note);
      }
}

std::vector<std::string> OutputFormats::notes(size_t index, const ExportInput& input) const {
  return writers_[index]->notes(completed(input));
}

std::vector<WrittenFolder> OutputFormats::placed_folders(const fs::path& output) const {
  std::vector<WrittenFolder> all;
  for (size_t i = 0; i < writers_.size(); ++i)
    all.push_back(
        {.format = options_.formats[i],
         .path = folder_of(options_.output, i),
         .is_overlay = options_.scales_only && is_there(folder_of(output, i) / kOverlayName)});
  return all;
}

bool OutputFormats::is_for_nvfp4() const {
  return is_nvfp4(options_.kv_cache_dtype);
}

std::string_view OutputFormats::only_file() const {
  const bool is_single = options_.formats.size() == 1;
  const OutputFormat* row = is_single ? kWriters.find(options_.formats[0]) : nullptr;
  return row ? row->file : std::string_view();
}

bool OutputFormats::is_file() const {
  return !only_file().empty() && !options_.scales_only &&
         fs::path(options_.output).extension() == ".json";
}

fs::path OutputFormats::place() const {
  if (!is_file()) return options_.output;
  check_replaceable(options_.output, OutputKind::kFile, options_.overwrite);
  return options_.output + ".folder";
}

void OutputFormats::stage(AtomicDirectory& output, StagedOutputs& outputs) const {
  if (!is_file()) return outputs.add(output);
  auto file = std::make_unique<AtomicFile>(options_.output, options_.overwrite);
  write_text_file(file->path(), read_text(output.path() / only_file()));
  outputs.add(std::move(file));
}

void settle_cache_dtype(std::string& kv_cache_dtype, const QuantPlan& plan) {
  const auto kept = std::ranges::find(plan.attention, false, &PlannedAttention::ignored);
  const bool is_int8 = kept != plan.attention.end() && kept->kv.type == QuantType::kInt;
  const std::string asked = normalised_name(kv_cache_dtype);
  if (!is_int8 && asked == name_of(CacheFormat::kInt8))
    fail(
        "--kv-cache-dtype int8, and the recipe's scales are of type float; expected one with type: "
        "int, such as --recipe int8_kv_tensor");
  if (is_int8 && asked != name_of(CacheFormat::kInt8) && asked != OutputOptions().kv_cache_dtype)
    fail("--kv-cache-dtype ", kv_cache_dtype,
         ", and the recipe's scales are of type int; expected int8");
  if (is_int8) kv_cache_dtype = name_of(CacheFormat::kInt8);
}

KvDType parse_fp8_cache_dtype(const std::string& name) {
  if (is_nvfp4(name) || normalised_name(name) == name_of(CacheFormat::kInt8))
    return KvDType::kFp8E4m3;
  const CacheType type = parse_cache_type(name);
  if (type.format)
    fail_usage("--kv-cache-dtype ", name,
               needs_scales(type) ? ": no checkpoint holds its scales"
                                  : " makes its scales for each token",
               ", expected an FP8 type, int8 or nvfp4");
  if (!is_fp8(type.dtype))
    fail_usage("--kv-cache-dtype ", name, " needs no scales, expected an FP8 type, int8 or nvfp4");
  return type.dtype;
}

}  // namespace kvcal
