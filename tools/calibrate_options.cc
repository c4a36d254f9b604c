#include "calibrate_options.h"

namespace kvcal {
namespace {

void add_state_options(CLI::App& command, StateOptions& options) {
  command
      .add_option("--state", options.folder,
                  "Folder that keeps how far the run is; none: nothing is kept [OUTPUT" +
                      std::string(StateOptions::kBesideOutput) + "]")
      ->check(is_not_empty());
  command
      .add_option("--state-share", options.share,
                  "Part of the run's time that keeping it may take, such as 0.03 or 3%")
      ->capture_default_str()
      ->check(is_not_empty());
  command.add_flag("--resume", options.resumes,
                   "Go on where an earlier run of this command ended, if its state is there");
}

void add_rank_options(CLI::App& command, RankSettings& settings) {
  command
      .add_option("--weights", settings.weights,
                  "Of several MPI ranks, where each has the weights from: shared (one machine's "
                  "files), exchange (each reads a part and sends it), local (each reads all); auto "
                  "measures")
      ->capture_default_str()
      ->check(is_not_empty());
  command
      .add_option("--rank-timeout", settings.timeout,
                  "Seconds after which an MPI rank that does not answer ends the run")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 1e7));
}

void add_forward_options(CLI::App& command, CalibrateRequest& options) {
  command
      .add_option("--kv-forward", options.kv_forward,
                  "What later layers see of K and V: quantized or exact")
      ->capture_default_str();
  command.add_flag("--moe-all-experts", options.all_experts,
                   "Show every expert all tokens when inputs are calibrated");
  command
      .add_option("--save-statistics", options.save_statistics,
                  "File to keep everything seen in, for kvcal scales; needs --kv-forward exact")
      ->check(is_not_empty());
  CLI::Option* stop = command.add_option(
      "--stop-when-stable", options.stable_ratio,
      "End when no scale has moved by more than this part of itself, such as 0.01 or 1%, in the "
      "last --stable-samples; --num-calibration-samples is the most");
  stop->check(is_not_empty());
  command
      .add_option("--stable-samples", options.stable_samples,
                  "Samples over which scales must stay, and between two looks at them")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->needs(stop);
  add_state_options(command, options.state);
  add_rank_options(command, options.ranks);
  add_device_options(command, options.device);
  command
      .add_option("--batch-tokens", options.batch_tokens,
                  "Tokens that go through a layer together; 0: as the device likes")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  command.add_option(
      "--memory-limit", options.memory_limit,
      "Of the process, such as 8GiB; of a GPU, its memory. Hidden states past it go to "
      "a scratch file, of a GPU to pinned host memory");
}

}  // namespace

void add_calibrate_options(CLI::App& command, CalibrateOptions& options) {
  command.add_option("model", options.request.model, "Hugging Face model folder")
      ->required()
      ->check(is_not_empty());
  command.add_option("--recipe", options.request.recipe, "Recipe in llm-compressor's form")
      ->required()
      ->check(is_not_empty());
  command
      .add_option("--dataset", options.request.dataset,
                  "JSONL, JSON, text or a descriptor; not needed where nothing is calibrated")
      ->check(is_not_empty());
  add_output_options(command, options.request.output)->required();
  add_report_options(command, options.report);
  command.add_flag("--reproducible", options.request.reproducible,
                   "Leave device, seconds and peak memory out of the manifest");
  command.add_flag("--json", options.json, "Print the manifest instead of a table");
  command
      .add_option("--num-calibration-samples", options.request.samples.num_calibration_samples,
                  "Samples to use")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  command
      .add_option("--max-seq-length", options.request.samples.max_seq_length,
                  "Tokens a sample is cut at")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  command
      .add_option("--shuffle-seed", options.request.samples.shuffle_seed,
                  "Order of Hugging Face Dataset.shuffle(seed)")
      ->check(is_not_negative());
  add_forward_options(command, options.request);
}

}  // namespace kvcal
