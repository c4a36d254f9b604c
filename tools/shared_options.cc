#include "shared_options.h"

#include <iostream>

#include "calib/scales/derive.h"
#include "core/error.h"
#include "core/registry.h"
#include "core/text.h"
#include "datasets/dataset.h"
#include "descriptors/family_file.h"
#include "engines/engine_rules.h"
#include "export/writer.h"
#include "kernels/backends.h"
#include "quant/cache_type.h"
#include "recipe/presets.h"
#include "terminal/session.h"

namespace kvcal {
namespace {

/// A text that names a place, which a function replaces by a local path.
Option& declare_input(Options& options, const std::string& names, std::string& target,
                      const std::string& help,
                      std::string (*local)(const std::string&, Diagnostics&)) {
  Option& option = options.text(names, target, help);
  option.fetch = [&target, local](Diagnostics& diagnostics) {
    target = local(target, diagnostics);
  };
  return option;
}

Json parse_variables(const std::string& text) {
  Json variables = parse_json(text, {.max_bytes = size_t{1} << 20});
  if (!variables.is_object()) fail("found ", kind_of(variables), ", expected an object");
  return variables;
}

size_t parse_record_size(const std::string& text) {
  const uint64_t size = parse_byte_size(text);
  if (size == 0) fail("0 is no limit, expected a size like 8MiB");
  return size;
}

/// Whether a word is any type of cache, or leaves the choice to the checkpoint.
void check_cache_type(const std::string& word) {
  if (normalised_name(word) != "auto" && normalised_name(word) != "nvfp4") parse_cache_type(word);
}

/// Whether a word names a kind of device; this build need not have it.
void check_device(const std::string& word) {
  static const Registry<int> kKinds{
      "device", {{"auto", 0}, {"cpu", 0}, {"reference", 0}, {"cuda", 0}, {"hip", 0}}};
  kKinds.at(word.substr(0, word.find(':')));
}

std::vector<std::string> with_auto(std::vector<std::string> names) {
  names.insert(names.begin(), "auto");
  return names;
}

}  // namespace

Option& declare_model(Options& options, const std::string& names, std::string& model,
                      const std::string& help) {
  return declare_input(options, names, model, help, local_model).of_kind(ValueKind::kFolder);
}

Option& declare_dataset(Options& options, const std::string& names, std::string& dataset,
                        const std::string& help) {
  return declare_input(options, names, dataset, help, local_dataset)
      .of_kind(ValueKind::kPath)
      .python("dataset", "Data");
}

void declare_checkpoint(Options& options, CheckpointSource& checkpoint, bool offline_config,
                        const std::string& help) {
  Option& option =
      options.text("checkpoint", checkpoint.path, help).of_kind(ValueKind::kFolder).required();
  option.fetch = [&checkpoint, offline_config](Diagnostics& diagnostics) {
    checkpoint = checkpoint_source(checkpoint.path, offline_config, diagnostics);
  };
}

void declare_family(Options& options, FamilyChoice& family) {
  options.group(kModelAndData);
  options.text(
      "--family",
      [&options, &family](const std::string& name) {
        family = in_context(options.shown("--family"), [&] { return choose_family(name); });
      },
      "Family to run a model_type as that kvcal does not know (kvcal families lists them); every "
      "tensor and key of config.json must be that family's");
  const auto file = std::make_shared<std::optional<FamilyFile>>();
  options
      .text(
          "--family-file",
          [&family, file](const std::string& path) {
            file->emplace(fs::path(path));
            family = (*file)->choice();
          },
          "YAML file that describes the family of such a model_type (kvcal families --template "
          "prints one)")
      .of_kind(ValueKind::kFile)
      .excludes({"--family"});
}

void declare_columns(Options& options, RecordColumns& columns) {
  options.text("--text-column", columns.text, "Column or key of the data set that holds text");
  options.text("--prompt-column", columns.prompt,
               "Column that holds what the user says, for the chat template");
  options.text("--response-column", columns.response,
               "Column that holds the answer to --prompt-column");
  options.text("--messages-column", columns.messages,
               "Column that holds a conversation: messages, or ShareGPT turns");
  options
      .text(
          "--delimiter",
          [&columns](const std::string& text) { columns.delimiter = parse_delimiter(text); },
          "Character between the columns of CSV files, such as ';', or tab; default: a comma, in "
          "files that end in .tsv a tab")
      .check = check_of(parse_delimiter);
}

void declare_chat(Options& options, ChatOptions& chat) {
  options
      .text("--chat-template", chat.template_file,
            "File with the chat template to use instead of the model's")
      .of_kind(ValueKind::kFile);
  options
      .text(
          "--chat-template-kwargs",
          [&chat](const std::string& text) { chat.variables = parse_variables(text); },
          "Variables of the chat template, as a JSON object")
      .python("chat_template_kwargs", "dict[str, Any]")
      .check = check_of(parse_variables);
}

void declare_record_limits(Options& options, RecordOptions& records) {
  options
      .number_text(
          "--skip-bad-records",
          [&records](const std::string& text) { records.skip = parse_skip_limit(text); },
          "Records that cannot be used to pass over at most, such as 10, or 1% of all",
          "int | float | str")
      .shown_default("0");
  options
      .number_text(
          "--max-record-bytes",
          [&records](const std::string& text) { records.max_bytes = parse_record_size(text); },
          "The longest record of a data set; reading one takes about 20 times as much memory",
          "int | str")
      .shown_default("8MiB");
}

void declare_records(Options& options, RecordOptions& records) {
  declare_columns(options, records.columns);
  declare_chat(options, records.chat);
  declare_record_limits(options, records);
}

void declare_recipe(Options& options, std::string& recipe) {
  options.group(kRecipe);
  options
      .text("--recipe", recipe,
            "Recipe in llm-compressor's form: a file, or a name: " + join(recipe_names(), ", "))
      .of_kind(ValueKind::kFile);
}

void declare_scaled_cache(Options& options, OutputOptions& output) {
  options.group(kCacheAndScales);
  options
      .text("--kv-cache-dtype", output.kv_cache_dtype,
            "Type of cache the scales are for: fp8_e4m3, fp8_e4m3fnuz, fp8_e5m2 or nvfp4")
      .choices_of({"fp8_e4m3", "fp8_e4m3fnuz", "fp8_e5m2", "nvfp4"})
      .check = check_of(check_cache_type);
}

void declare_skip_layers(Options& options, std::vector<int64_t>& layers, const std::string& help) {
  options.numbers("--kv-cache-dtype-skip-layers", layers, help);
}

void declare_scale_options(Options& options, OutputOptions& output, double& headroom) {
  options
      .text("--scale-dtype", output.scale_dtype,
            "Of the scales in the checkpoint: float32, or model, which rounds as llm-compressor "
            "does")
      .only({"float32", "model"});
  options.number("--headroom", headroom,
                 "Room of the scales of K and V beyond the largest values seen: scale = headroom * "
                 "amax / largest code, such as 1.25",
                 1.0, kMostHeadroom);
}

std::vector<std::string> cache_types() {
  std::vector<std::string> names = with_auto(kv_dtype_names());
  for (const CacheFormat format : kCacheFormats) names.emplace_back(name_of(format));
  return names;
}

void declare_cache(Options& options, CacheOptions& cache) {
  options.group(kCacheAndScales);
  options
      .text("--kv-cache-dtype", cache.kv_cache_dtype,
            "auto, float32, float16, bfloat16, fp8_e4m3, fp8_e5m2, fp8_e4m3fnuz, or a simulated "
            "one: " +
                join(kCacheFormats, ", ", [](CacheFormat format) { return name_of(format); }))
      .choices_of(cache_types())
      .check = check_of(check_cache_type);
  declare_skip_layers(options, cache.skip_layers,
                      "Layers whose cache stays in 16 bits, of every quantized cache, as 0,1");
  declare_model(options, "--scales", cache.scales,
                "Scales to use instead of the checkpoint's: the file of scales-json, lightllm or "
                "onnxruntime-genai, a scales-only overlay, a checkpoint, a folder of rank files")
      .of_kind(ValueKind::kPath);
  options.flag("--unit-scales", cache.unit_scales,
               "Scale 1.0 in every layer, as engines use without scales");
}

void declare_engine(Options& options, OutputOptions& output) {
  options.group(kEngine);
  options
      .list("--for", output.engines,
            "Engine that must use the scales, as vllm or vllm@0.33: chooses the format for this "
            "model, and ends with an error where the engine would lose them; may be repeated "
            "(kvcal engines lists them)")
      .python("engine")
      .check = check_of([](const std::string& name) { choose_engine(name); });
  options.number("--tp-size", output.tp_size,
                 "Ranks of tensor parallelism: of kv_cache_scales.json, and over which heads' "
                 "scales are tied",
                 1, 1024);
}

Option& declare_output(Options& options, std::string& output) {
  options.group(kOutput);
  return options.text("-o,--output", output, "Folder to write; appears complete or not at all")
      .written(ValueKind::kFolder);
}

Option& declare_format(Options& options, OutputOptions& output, const std::string& help) {
  return options.list("--format", output.formats, help).choices_of(kWriters.names(), true);
}

std::string format_help() {
  return list_formats() + "; may be repeated, or joined by '+' for one folder";
}

void declare_scales_only(Options& options, OutputOptions& output) {
  options.flag("--scales-only", output.scales_only,
               "Write an overlay: scales, config.json and index without the weights, for kvcal "
               "apply or to drop into a sharded checkpoint's folder");
}

void declare_card(Options& options, CardNames& card) {
  options.text("--base-model", card.base_model,
               "Id of the hub that the model card names as the base; default: the source's");
  options.text("--license", card.license,
               "Licence that the model card names, as the hub writes it: apache-2.0; default: the "
               "source's");
}

void declare_overwrite(Options& options, bool& overwrite, const std::string& help) {
  options.flag("--overwrite", overwrite, help);
}

void declare_report(Options& options, ReportFiles& files) {
  options.text("--html", files.page, "Also draw it all as a page, in this file")
      .old_name("--report")
      .written(ValueKind::kFile)
      .program_only();
  options.text("--plots", files.plots, "Also write its drawings as SVG files, into this folder")
      .written(ValueKind::kFolder)
      .program_only();
}

void declare_sampling(Options& options, SamplingOptions& sampling) {
  options.number("--temperature", sampling.temperature, "0: greedy", 0.0, 1e6);
  options.number("--top-p", sampling.top_p, "Smallest set of tokens with this probability", 1e-9,
                 1.0);
  options.number("--top-k", sampling.top_k, "Most likely tokens to choose from; 0: all", 0,
                 int64_t{1} << 24);
  options.number("--seed", sampling.seed, "Of the sampling", 0, UINT64_MAX);
}

void declare_threads(Options& options, int& threads) {
  options.group(kMachine);
  options.number("--threads", threads, "0: one for each core", 0, 4096);
}

void declare_device(Options& options, DeviceOptions& device, bool has_inputs) {
  options.group(kMachine);
  options.text("--device", device.device, "auto, cpu, reference, cuda[:N[,N...]] or hip[:N[,N...]]")
      .choices_of(with_auto(kBackends.names()))
      .check = check_of(check_device);
  options.text("--compute-dtype", device.compute_dtype, "auto, float32, bfloat16 or float16")
      .choices_of({"auto", "float32", "bfloat16", "float16"});
  if (has_inputs)
    options
        .text("--inputs", device.inputs, "Inputs that the checkpoint quantizes: as-served or 16bit")
        .choices_of({"as-served", "16bit"});
  declare_threads(options, device.threads);
}

void declare_json(Options& options, bool& json, const std::string& help) {
  options.group(kPrinting);
  options.flag("--json", json, help).program_only();
}

void declare_quiet(Options& options) {
  options
      .flag(
          "-q,--quiet", [](bool) { set_verbosity(Verbosity::kQuiet); },
          "Print neither progress nor a summary of what was written; warnings stay")
      .program_only();
}

void declare_colours(Options& options) {
  options.group(kPrinting);
  options
      .text("--color", set_colours,
            "Colours in text: auto (on a terminal, unless NO_COLOR is set), always or never")
      .only({"auto", "always", "never"})
      .shown_default("auto")
      .program_only();
}

Option& declare_verbose(Options& options) {
  return options
      .flag(
          "-v,--verbose", [](bool) { set_verbosity(Verbosity::kVerbose); },
          "Print all that is known: every row of tables, every layer, every engine")
      .program_only();
}

void declare_verbosity(Options& options) {
  declare_verbose(options).excludes({"--quiet"});
  declare_quiet(options);
}

Json folders_json(const std::vector<WrittenFolder>& folders) {
  Json list = Json::array();
  for (const WrittenFolder& folder : folders)
    list.push_back({{"format", folder.format},
                    {"path", folder.path.string()},
                    {"is_overlay", folder.is_overlay}});
  return list;
}

namespace {

Json served_json(const std::vector<ServedEngine>& engines) {
  Json list = Json::array();
  for (const ServedEngine& engine : engines) {
    const bool is_loaded = engine.outcome == LoadOutcome::kLoaded;
    list.push_back({{"name", engine.name},
                    {"title", engine.title},
                    {"verdict", name_of(engine.outcome)},
                    {is_loaded ? "command" : "reason", engine.note}});
  }
  return list;
}

}  // namespace

void warn_of_scales(const WrittenOutput& output, Diagnostics& diagnostics) {
  if (const Json* warnings = member(output.manifest, "summary", "warnings"))
    for (const Json& warning : *warnings) diagnostics.warn(warning.get<std::string>());
}

Json manifest_with_outputs(const WrittenOutput& output, const std::vector<ServedEngine>& engines) {
  Json json = output.manifest;
  json["outputs"] = folders_json(output.folders);
  json["engines"] = served_json(engines);
  return json;
}

void print_output(const WrittenOutput& output, const std::vector<ServedEngine>& engines,
                  const OutputOptions& options, bool json,
                  const std::function<void()>& print_result) {
  if (json) {
    std::cout << dump_json(manifest_with_outputs(output, engines)) << std::flush;
    return;
  }
  if (is_quiet()) return;
  print_result();
  const bool has_line_each = is_verbose() || !options.engines.empty();
  std::cout << output_text(output.folders, engines,
                           has_line_each ? EngineLines::kEach : EngineLines::kLoading);
  std::cout.flush();  // before an error of check_engines_asked
}

Json output_json(const WrittenOutput& written, const std::vector<ServedEngine>& engines,
                 const OutputOptions& options) {
  Json result{{"manifest", written.manifest},
              {"folders", folders_json(written.folders)},
              {"engines", served_json(engines)}};
  try {
    check_engines_asked(engines, options);
  } catch (const Error& error) {
    result["problem"] = error.message();
  }
  return result;
}

}  // namespace kvcal
