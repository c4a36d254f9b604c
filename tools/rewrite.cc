#include <algorithm>
#include <iostream>
#include <map>

#include "commands.h"
#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "core/usage_error.h"
#include "engines/engine_rules.h"
#include "kvcal_version.h"
#include "recipe/presets.h"
#include "rewrite/rewritten_checkpoint.h"
#include "run/calibration_result.h"
#include "run/command_paths.h"
#include "run/quantize_checkpoint.h"
#include "run/smooth_checkpoint.h"
#include "shared_options.h"
#include "synth/synthetic.h"
#include "terminal/progress.h"
#include "terminal/session.h"

// Commands that write a model's weights anew: quantize, smooth, synth.

namespace kvcal {
namespace {

/// "embedding: model.embed_tokens", a line a reason; of many modules the first few.
void print_kept(const QuantizeResult& result) {
  constexpr size_t kMaxShown = 4;
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const CopiedWeight& one : result.kept) by_reason[one.reason].push_back(one.name);
  for (auto& [reason, names] : by_reason) {
    const size_t count = names.size();
    names.resize(std::min(count, kMaxShown));
    std::cout << "left alone, " << reason << ": " << join(names, ", ");
    if (count > kMaxShown) std::cout << ", ... (" << count << ")";
    std::cout << '\n';
  }
}

/// The manifest with what was written where, and how vLLM serves it, which reads all of it.
Json quantized_json(const QuantizeRequest& request, const QuantizeResult& result) {
  const EngineChoice vllm = choose_engine("vllm");
  Json json = result.manifest;
  json["outputs"] = folders_json({{.format = "compressed-tensors", .path = request.output}});
  json["engines"] = Json::array();
  json["engines"].push_back(
      {{"name", "vllm"},
       {"title", vllm.title()},
       {"command", std::string(vllm.rules().command) + " " + shell_word(request.output)}});
  json["bytes"] = {{"source", result.source_bytes}, {"output", result.output_bytes}};
  return json;
}

void print_result(const QuantizeRequest& request, const QuantizeResult& result) {
  std::cout << "quantized: " << counted(result.num_quantized, "weight") << ", " << result.scheme
            << " (" << result.format << ")\n";
  print_kept(result);
  std::cout << "bytes: " << result.source_bytes << " became " << result.output_bytes
            << ", of which " << result.kept_bytes << " are left alone\n"
            << "wrote compressed-tensors: " << request.output << '\n';
}

class QuantizeCommand : public Subcommand {
 public:
  QuantizeCommand();
  void run() override;

 private:
  QuantizeRequest request_;
  bool json_ = false;
};

QuantizeCommand::QuantizeCommand()
    : Subcommand("quantize",
                 "Quantize a checkpoint's weights by rounding, of any architecture, without data",
                 {{"FP8 weights with dynamic inputs",
                   "kvcal quantize MODEL --scheme FP8_DYNAMIC -o FP8-Dynamic"},
                  {"Weights of 4 bits, but not those of the attention",
                   "kvcal quantize MODEL --scheme W4A16 --ignore 're:.*self_attn.*' -o W4A16"}}) {
  request_.version = KVCAL_VERSION;
  declare_model(options, "checkpoint", request_.checkpoint, "Model folder, or an id of the hub")
      .required();
  options.group(kRecipe);
  options
      .text("--scheme", request_.scheme,
            "FP8_DYNAMIC, FP8_BLOCK, W8A8, W4A16, W4A16_ASYM, W8A16, W4AFP8, NVFP4A16, MXFP4, "
            "MXFP8 or another preset of compressed-tensors that needs no data")
      .required()
      .check = check_of(weight_scheme);
  options
      .list("--ignore", request_.ignore,
            "Module to leave as it is, by name or 're:REGEX' (Python's re.match); may be repeated. "
            "Embeddings, heads, norms, routers and towers are left anyway")
      .not_empty();
  declare_output(options, request_.output).required();
  declare_overwrite(options, request_.overwrite);
  done = std::make_unique<DoneOutput>(options, request_.output, request_.overwrite);
  declare_card(options, request_.card);
  declare_threads(options, request_.threads);
  declare_json(options, json_, "Print the manifest instead of a summary");
  declare_quiet(options);
}

void QuantizeCommand::run() {
  TerminalDiagnostics diagnostics;
  const QuantizeResult result = quantize_checkpoint(request_, diagnostics);
  if (json_)
    std::cout << dump_json(quantized_json(request_, result));
  else if (!is_quiet())
    print_result(request_, result);
}

class SmoothCommand : public Subcommand {
 public:
  SmoothCommand();
  void run() override;

 private:
  SmoothRequest request_;
  bool json_ = false;
};

SmoothCommand::SmoothCommand()
    : Subcommand(
          "smooth",
          "Write a model of the same function whose K and V lose less in one kind of cache",
          {{"A model whose INT8 or INT4 cache loses less", "kvcal smooth MODEL -o Even"},
           {"The same with text of your own", "kvcal smooth MODEL --dataset chats.jsonl -o Even"},
           {"A model with large biases of K, whose FP8 cache loses less",
            "kvcal smooth MODEL --for fp8_e4m3 -o Aligned"}}) {
  request_.version = KVCAL_VERSION;
  declare_model(options, "model", request_.model,
                "Hugging Face model of 16 or 32 bits: a folder, or an id of the hub")
      .required();
  options.group(kModelAndData);
  declare_dataset(options, "--dataset", request_.dataset,
                  "Text that shows how far channels reach, as of calibrate; default: calibration");
  declare_records(options, request_.records);
  options.number("--num-samples", request_.samples.num_calibration_samples, "Samples to run", 1,
                 kMostSamples);
  options.number("--max-seq-length", request_.samples.max_seq_length, "Tokens of a sample at most",
                 1, int64_t{1} << 30);
  declare_family(options, request_.family);
  options.group(kEngine);
  const std::string fp8(name_of(SmoothedFor::kFp8E4m3)), int8(name_of(SmoothedFor::kInt8));
  options
      .text(
          "--for",
          [this, fp8](const std::string& name) {
            request_.cache = name == fp8 ? SmoothedFor::kFp8E4m3 : SmoothedFor::kInt8;
          },
          "The cache that is meant: int8, for all uniform codes, or fp8_e4m3, which is for one "
          "scale a layer or head and ruins other caches")
      .only({int8, fp8})
      .shown_default(int8);
  declare_output(options, request_.output).required();
  declare_overwrite(options, request_.overwrite);
  done = std::make_unique<DoneOutput>(options, request_.output, request_.overwrite);
  declare_device(options, request_.device, false);
  declare_json(options, json_, "Print the manifest instead of a summary");
  declare_quiet(options);
}

void SmoothCommand::run() {
  TerminalDiagnostics diagnostics;
  const SmoothResult result = smooth_checkpoint(request_, diagnostics);
  if (json_)
    std::cout << dump_json(result.manifest);
  else if (!is_quiet())
    std::cout << labelled_text(smoothing_lines(result)) << "wrote " << request_.output << '\n';
}

struct SynthOptions {
  std::string config, from, outliers, output, dtype = "auto", max_shard_size = "4GiB";
  SyntheticOptions synthetic;
  bool overwrite = false, json = false;
};

SyntheticOptions checked_options(const SynthOptions& options) {
  SyntheticOptions checked = options.synthetic;
  for (const auto& [word, dtype] :
       {std::pair{"float32", DType::kF32}, {"float16", DType::kF16}, {"bfloat16", DType::kBF16}})
    if (options.dtype == word) checked.dtype = dtype;
  checked.max_shard_bytes =
      in_context("--max-shard-size", [&] { return parse_byte_size(options.max_shard_size); });
  if (checked.max_shard_bytes == 0) fail_usage("--max-shard-size is 0, expected a size like 4GiB");
  return checked;
}

Json json_of(const SynthOptions& options, const SyntheticCheckpoint& made) {
  return {{"path", options.output},
          {"model_type", made.model_type},
          {"seed", options.synthetic.seed},
          {"num_hidden_layers", made.num_layers},
          {"dtype", name_of(made.dtype)},
          {"num_tensors", made.num_tensors},
          {"bytes", made.bytes},
          {"num_files", made.num_files}};
}

/// A real checkpoint with outliers.
void run_outliers(const SynthOptions& options) {
  const OutlierSpec outliers =
      in_context("--outliers", [&] { return parse_outlier_spec(options.outliers); });
  ModelDir model(options.from);
  check_keeps_inputs(options.output, {options.from, options.synthetic.family.file()});
  AtomicDirectory output(options.output, options.overwrite);
  ThreadPool pool(options.synthetic.threads);
  const RewrittenCheckpoint made = write_outliers(
      std::move(model),
      {.outliers = outliers, .seed = options.synthetic.seed, .family = options.synthetic.family},
      pool, output.path());
  output.commit();
  if (options.json) {
    std::cout << dump_json(Json{{"path", options.output},
                                {"from", options.from},
                                {"outliers", options.outliers},
                                {"seed", options.synthetic.seed},
                                {"changed_tensors", made.changed},
                                {"widened_tensors", made.widened},
                                {"added_tensors", made.added},
                                {"largest_error", made.largest_error}});
    return;
  }
  if (is_quiet()) return;
  std::cout << options.output << ": " << options.from << " with " << options.outliers << ", "
            << counted(made.changed, "tensor") << " changed";
  if (made.widened > 0) std::cout << ", " << made.widened << " of them float32 now";
  std::cout << "; "
            << (outliers.bias_norm          ? "another function"
                : made.largest_error == 0.0 ? "the same function"
                                            : "the same function, but for rounding of norms")
            << '\n';
}

void run_synth(const SynthOptions& options) {
  if (!options.from.empty()) return run_outliers(options);
  TerminalDiagnostics diagnostics;
  const SyntheticOptions synthetic = checked_options(options);
  const Json config = read_model_config(options.config);
  check_keeps_inputs(options.output, {options.config, synthetic.family.file()});
  AtomicDirectory output(options.output, options.overwrite);
  const SyntheticCheckpoint made = in_context(options.config, [&] {
    return write_synthetic_checkpoint(config, synthetic, output.path(), diagnostics);
  });
  output.commit();
  if (options.json) {
    std::cout << dump_json(json_of(options, made));
    return;
  }
  if (is_quiet()) return;
  std::cout << options.output << ": " << made.model_type << " with random weights, "
            << counted(made.num_layers, "layer") << ", " << counted(made.num_tensors, "tensor")
            << ", " << made.bytes << " bytes of " << made.dtype << " in "
            << counted(made.num_files, "file") << '\n';
}

class SynthCommand : public Subcommand {
 public:
  SynthCommand();
  std::string missing() const override {
    return asked_.config.empty() && asked_.from.empty() ? "--config or --from" : "";
  }
  void run() override { run_synth(asked_); }

 private:
  SynthOptions asked_;
};

SynthCommand::SynthCommand()
    : Subcommand("synth",
                 "Write a checkpoint of a config.json with random weights, or of a model with "
                 "outliers in K and V, for benchmarks and tests",
                 {{"A small model of random weights",
                   "kvcal synth --config config.json --layers 2 --seed 1 -o Small"},
                  {"A model's own function, with outliers of K that scale 1.0 clips",
                   "kvcal synth --from MODEL --outliers k:pairs=2,factor=1024 -o Hard"}}) {
  options.group(kModelAndData);
  options.text("--config", asked_.config, "config.json of a model of random weights")
      .of_kind(ValueKind::kFile)
      .excludes({"--from", "--outliers"});
  declare_model(options, "--from", asked_.from,
                "Model folder, or an id of the hub, whose K and V get outliers")
      .needs("--outliers");
  options
      .text("--outliers", asked_.outliers,
            "Outliers of --from, such as 'k:pairs=2,factor=1024;v:channels=1,factor=16', "
            "'bias:norm=750', 'bias:norm=350,pairs=4' or '...;layers=0,29'")
      .needs("--from");
  options.number("--layers", asked_.synthetic.num_layers, "Only the first of the layers", 1,
                 int64_t{1} << 30);
  options
      .text("--dtype", asked_.dtype,
            "float32, float16 or bfloat16; auto: config.json's, or bfloat16")
      .only({"auto", "float32", "float16", "bfloat16"});
  declare_family(options, asked_.synthetic.family);
  options.group(kGeneration);
  options.number("--seed", asked_.synthetic.seed, "Same seed, same bytes", 0, UINT64_MAX);
  declare_output(options, asked_.output).old_name("output").required();  // it was an argument
  options.number_text("--max-shard-size", asked_.max_shard_size,
                      "What is larger goes into several files", parse_byte_size, "int | str");
  declare_overwrite(options, asked_.overwrite);
  declare_threads(options, asked_.synthetic.threads);
  declare_json(options, asked_.json, "Print JSON instead of text");
  declare_quiet(options);
}

}  // namespace

const MakeSubcommand kQuantize = make_subcommand<QuantizeCommand>;
const MakeSubcommand kSmooth = make_subcommand<SmoothCommand>;
const MakeSubcommand kSynth = make_subcommand<SynthCommand>;

}  // namespace kvcal
