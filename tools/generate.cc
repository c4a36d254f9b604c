#include <iostream>

#include "commands.h"
#include "core/text.h"
#include "run/model_session.h"
#include "shared_options.h"
#include "terminal/progress.h"
#include "terminal/session.h"

namespace kvcal {
namespace {

/// Prints texts while they come; silent with --json.
class PrintedText : public TextSink {
 public:
  PrintedText(bool compares, bool json) : compares_(compares), json_(json) {}
  void begin(const CacheType& cache) override {
    if (compares_ && !json_) std::cout << "--- " << name_of(cache) << " cache\n";
  }
  void add(const std::string& piece) override {
    if (!json_) std::cout << piece << std::flush;
  }
  void end() override {
    if (!json_) std::cout << std::endl;
  }

 private:
  bool compares_, json_;
};

class GenerateCommand : public Subcommand {
 public:
  GenerateCommand();
  void run() override;

 private:
  TextRequest request_;
  bool compares_ = false, json_ = false;
};

GenerateCommand::GenerateCommand()
    : Subcommand("generate", "Continue a text with a KV cache of a chosen dtype",
                 {{"The same answer with the FP8 cache and with 16 bits",
                   "kvcal generate FP8-KV --chat --prompt 'Why is the sky blue?' --compare"}}) {
  declare_model(options, "model", request_.model,
                "Hugging Face model or output of calibrate: a folder, or an id of the hub")
      .required();
  options.group(kModelAndData);
  declare_chat(options, request_.chat);
  options.text("--prompt", request_.prompt, "Text to continue").may_be_empty().required();
  options.flag("--chat", request_.is_chat, "Put the prompt into the model's chat template");
  options.text("--system", request_.system, "System message, with --chat").may_be_empty();
  declare_family(options, request_.family);
  declare_cache(options, request_.cache);
  options.group(kGeneration);
  options.number("--max-new-tokens", request_.generate.max_new_tokens, "Tokens to write at most", 1,
                 int64_t{1} << 24);
  options.flag("--compare", compares_, "Run the 16-bit cache beside it and show where they part");
  declare_sampling(options, request_.generate.sampling);
  options.flag("--ignore-eos", request_.ignores_eos, "Go on after an end-of-sequence token");
  declare_device(options, request_.device, true);
  declare_json(options, json_, "Print a JSON object instead of text");
  declare_verbosity(options);
}

void GenerateCommand::run() {
  TerminalDiagnostics diagnostics;
  GuardedOutput::pass_text_on();
  PrintedText live(compares_, json_);
  if (!compares_) {
    const GeneratedText text = generate_text(request_, live, diagnostics);
    if (json_) std::cout << dump_json(generation_json(request_, text));
    return;
  }
  const ComparedTexts texts = compare_texts(request_, live, diagnostics);
  if (json_)
    std::cout << dump_json(generation_json(request_, texts));
  else
    std::cout << comparison_text(texts);
  if (!json_ && is_verbose())
    std::cout << "KL of each token:"
              << join(texts.kl, "", [](double kl) { return fixed(" %.4f", kl); }) << '\n';
}

}  // namespace

const MakeSubcommand kGenerate = make_subcommand<GenerateCommand>;

}  // namespace kvcal
