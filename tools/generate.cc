#include <algorithm>
#include <iostream>
#include <numeric>

#include "commands.h"
#include "core/number_text.h"
#include "input_options.h"
#include "run/generate_text.h"
#include "terminal/progress.h"
#include "terminal/status_line.h"

namespace kvcal {
namespace {

struct GenerateCommand {
  TextRequest request;
  bool compare = false, json = false;
};

/// Prints texts while they come; silent with --json.
class PrintedText : public TextSink {
 public:
  explicit PrintedText(const GenerateCommand& command) : command_(command) {}
  void begin(const CacheType& cache) override {
    if (command_.compare && !command_.json) std::cout << "--- " << name_of(cache) << " cache\n";
  }
  void add(const std::string& piece) override {
    if (!command_.json) std::cout << piece << std::flush;
  }
  void end() override {
    if (!command_.json) std::cout << std::endl;
  }

 private:
  const GenerateCommand& command_;
};

void print_comparison(const ComparedTexts& texts) {
  const double sum = std::accumulate(texts.kl.begin(), texts.kl.end(), 0.0);
  const double mean = texts.kl.empty() ? 0.0 : sum / static_cast<double>(texts.kl.size());
  double largest = 0.0;
  for (const double kl : texts.kl) largest = std::max(largest, kl);
  if (texts.first_divergence)
    std::cout << "first diverging token: " << *texts.first_divergence;
  else
    std::cout << "the texts are equal";
  std::cout << "; KL per token: mean " << mean << ", largest " << largest << " nats\nKL:";
  for (const double kl : texts.kl) std::cout << fixed(" %.4f", kl);
  std::cout << '\n';
}

void run_generate(const GenerateCommand& command) {
  TerminalDiagnostics diagnostics;
  GuardedOutput::pass_text_on();
  PrintedText live(command);
  if (!command.compare) {
    const GeneratedText text = generate_text(command.request, live, diagnostics);
    if (command.json) std::cout << dump_json(generation_json(command.request, text));
    return;
  }
  const ComparedTexts texts = compare_texts(command.request, live, diagnostics);
  if (command.json)
    std::cout << dump_json(generation_json(command.request, texts));
  else
    print_comparison(texts);
}

}  // namespace

void add_generate(CLI::App& app, std::function<void()>& run) {
  auto options = std::make_shared<GenerateCommand>();
  CLI::App* command =
      app.add_subcommand("generate", "Continue a text with a KV cache of a chosen dtype");
  add_model(*command, "model", options->request.model,
            "Hugging Face model or output of calibrate: a folder, or an id of the hub")
      ->required();
  add_family_options(*command, options->request.family);
  command->add_option("--prompt", options->request.prompt, "Text to continue")->required();
  command->add_flag("--chat", options->request.is_chat,
                    "Put the prompt into the model's chat template");
  command->add_option("--system", options->request.system, "System message, with --chat");
  add_chat_options(*command, options->request.chat);
  add_number(*command, "--max-new-tokens", options->request.generate.max_new_tokens,
             "Tokens to write at most", 1, int64_t{1} << 24);
  add_cache_options(*command, options->request.cache);
  command->add_flag("--compare", options->compare,
                    "Run the 16-bit cache beside it and show where they part");
  add_number(*command, "--temperature", options->request.generate.sampling.temperature, "0: greedy",
             0.0, 1e6);
  add_number(*command, "--top-p", options->request.generate.sampling.top_p,
             "Smallest set of tokens with this probability", 1e-9, 1.0);
  add_number(*command, "--top-k", options->request.generate.sampling.top_k,
             "Most likely tokens to choose from; 0: all", 0, int64_t{1} << 24);
  add_number(*command, "--seed", options->request.generate.sampling.seed, "Of the sampling", 0,
             UINT64_MAX);
  command->add_flag("--ignore-eos", options->request.ignores_eos,
                    "Go on after an end-of-sequence token");
  command->add_flag("--json", options->json, "Print a JSON object instead of text");
  add_device_options(*command, options->request.device);
  add_inputs_option(*command, options->request.device);
  command->callback([options, &run] { run = [options] { run_generate(*options); }; });
}

}  // namespace kvcal
