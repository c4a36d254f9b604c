#include "shell/command_guide.h"

#include <algorithm>
#include <string_view>

namespace kvcal {
namespace {

struct GuideRow {
  std::string_view command;
  std::vector<ExampleDescription> examples;
};

const std::vector<GuideRow>& guide_rows() {
  static const std::vector<GuideRow> kRows = {
      {"kvcal",
       {{"Make a checkpoint with calibrated scales of its FP8 cache",
         "kvcal calibrate meta-llama/Llama-3.2-1B-Instruct -o Llama-FP8-KV"},
        {"See whether an engine would use them", "kvcal verify Llama-FP8-KV --engine vllm"}}},
      {"calibrate",
       {{"The default recipe and data set", "kvcal calibrate Qwen/Qwen3-0.6B -o Qwen3-FP8-KV"},
        {"FP8 weights too, with 128 samples of your own data",
         "kvcal calibrate MODEL --recipe fp8_w8a8_kv --dataset chats.jsonl \\\n"
         "      --num-samples 128 -o W8A8-KV"},
        {"What SGLang reads for this model, measured against scale 1.0",
         "kvcal calibrate MODEL --for sglang --measure -o FP8-KV"}}},
      {"try",
       {{"On this machine, with texts of the program", "kvcal try Qwen/Qwen3-0.6B"},
        {"With your own data, and the checkpoint is kept",
         "kvcal try MODEL --dataset chats.jsonl -o FP8-KV"}}},
      {"quantize",
       {{"FP8 weights with dynamic inputs",
         "kvcal quantize MODEL --scheme FP8_DYNAMIC -o FP8-Dynamic"},
        {"Weights of 4 bits, but not those of the attention",
         "kvcal quantize MODEL --scheme W4A16 --ignore 're:.*self_attn.*' -o W4A16"}}},
      {"scales",
       {{"Scales of another recipe from a run that kept its statistics",
         "kvcal scales --statistics seen.safetensors --recipe fp8_kv_mse \\\n"
         "      --model MODEL -o FP8-KV-mse"}}},
      {"convert",
       {{"Two formats, each in a folder of its own",
         "kvcal convert FP8-KV --format modelopt --format tgi -o For-Both"},
        {"The scales alone, for kvcal apply",
         "kvcal convert FP8-KV --format compressed-tensors --scales-only -o Scales"}}},
      {"apply",
       {{"Scales on a checkpoint that another tool quantized",
         "kvcal apply Scales Llama-W4A16 -o W4A16-FP8-KV"}}},
      {"generate",
       {{"The same answer with the FP8 cache and with 16 bits",
         "kvcal generate FP8-KV --chat --prompt 'Why is the sky blue?' --compare"}}},
      {"eval",
       {{"Perplexity of a text", "kvcal eval FP8-KV --task perplexity --dataset text.txt"},
        {"A gate in a script: exit status 3 where the mean KL is over 0.01",
         "kvcal eval FP8-KV --task kl --dataset chats.jsonl --max-kl 0.01"},
        {"Which layers to keep in 16 bits",
         "kvcal eval FP8-KV --task sensitivity --dataset chats.jsonl \\\n"
         "      --kl-budget 0.005 --output-recipe mixed.yaml"}}},
      {"sweep",
       {{"A file to start from: name the model in it", "kvcal sweep --template >grid.yaml"},
        {"How long it would take", "kvcal sweep grid.yaml --dry-run"},
        {"Run it; the same command goes on after an interruption",
         "kvcal sweep grid.yaml -o Results"}}},
      {"inspect",
       {{"Architecture, size of the cache and scales of a checkpoint", "kvcal inspect FP8-KV"},
        {"The same as a page", "kvcal inspect FP8-KV --html report.html"}}},
      {"verify",
       {{"Whether an engine uses every scale; exit status 1 where it does not",
         "kvcal verify FP8-KV --engine vllm --engine sglang"},
        {"What an engine would be told", "kvcal verify FP8-KV --engine tgi --kv-cache-dtype fp8"}}},
      {"engines",
       {{"The engines and their versions", "kvcal engines"},
        {"What each of them reads for Qwen 3", "kvcal engines qwen3"}}},
      {"families",
       {{"Whether kvcal runs some models", "kvcal families llama qwen3_moe mamba2"},
        {"A description of a new model to start from",
         "kvcal families --template llama >family.yaml"}}},
      {"smooth",
       {{"A model whose INT8 or INT4 cache loses less", "kvcal smooth MODEL -o Even"},
        {"The same with text of your own", "kvcal smooth MODEL --dataset chats.jsonl -o Even"},
        {"A model with large biases of K, whose FP8 cache loses less",
         "kvcal smooth MODEL --for fp8_e4m3 -o Aligned"}}},
      {"synth",
       {{"A small model of random weights",
         "kvcal synth --config config.json --layers 2 --seed 1 -o Small"},
        {"A model's own function, with outliers of K that scale 1.0 clips",
         "kvcal synth --from MODEL --outliers k:pairs=2,factor=1024 -o Hard"}}},
      {"completion", {{"For the bash that runs", "source <(kvcal completion bash)"}}},
      {"man", {{"Read the page of a command", "man <(kvcal man calibrate)"}}},
      {"help", {{"Help of a command", "kvcal help calibrate"}}},
      {"version", {{"Compiler, libraries and targets of this build", "kvcal version --json"}}}};
  return kRows;
}

bool has_option(const CommandDescription& command, std::string_view name) {
  return std::ranges::any_of(command.options, [&](const OptionDescription& option) {
    return std::ranges::find(option.names, name) != option.names.end();
  });
}

/// Whether it may read a model of the hub.
bool takes_models(const CommandDescription& command) {
  return has_option(command, "--family") || command.name == "quantize" || command.name == "inspect";
}

const std::vector<VariableDescription> kOfHub = {
    {"HF_HUB_CACHE, HF_HOME", "Cache of downloaded models and data sets"},
    {"HF_TOKEN, HF_TOKEN_PATH", "Token for the hub, or the file that has it"},
    {"HF_ENDPOINT", "Another hub, such as a mirror"},
    {"HF_HUB_OFFLINE=1", "Download nothing"},
    {"https_proxy, no_proxy", "Proxies of downloads"},
    {"SSL_CERT_FILE", "Certificates that downloads trust, instead of the machine's"},
    {"KVCAL_FOLLOW_LINKS=1", "Follow links of a checkpoint that lead out of its folder"}};
const std::vector<VariableDescription> kOfDevices = {
    {"KVCAL_GPU_LIBRARY_PATH", "Files or folders of the GPU's matrix library"},
    {"KVCAL_GPU_ATTENTION", "Instruction of attention on NVIDIA GPUs: mma or, on sm_90a, wgmma"}};
const std::vector<VariableDescription> kOfProgress = {
    {"NO_COLOR, CI, TERM=dumb", "Print progress as plain lines, one in ten seconds"},
    {"COLUMNS", "Width of a terminal that does not tell"}};

}  // namespace

void add_guide(CommandDescription& command) {
  const auto row = std::ranges::find(guide_rows(), command.name, &GuideRow::command);
  if (row != guide_rows().end()) command.examples = row->examples;
  const auto add = [&](const std::vector<VariableDescription>& variables) {
    command.environment.insert(command.environment.end(), variables.begin(), variables.end());
  };
  const bool is_program = command.name == "kvcal";
  if (is_program || takes_models(command)) add(kOfHub);
  if (is_program || has_option(command, "--device")) add(kOfDevices);
  if (is_program || has_option(command, "--quiet")) add(kOfProgress);
  if (command.name == "man")
    add({{"SOURCE_DATE_EPOCH", "Seconds since 1970 of the date that stands on the page"}});
}

}  // namespace kvcal
