#include <iostream>

#include "checkpoint/model_dir.h"
#include "commands.h"
#include "datasets/chat_template.h"
#include "eval/generate.h"
#include "loaded_model.h"
#include "tokenizers/tokenizer.h"

namespace kvcal {
namespace {

struct GenerateCommandOptions {
  std::string model, prompt, system;
  bool chat = false, compare = false, json = false, ignore_eos = false;
  CacheOptions cache;
  GenerateOptions generate;
  DeviceOptions device;
};

std::vector<TokenId> prompt_ids(const GenerateCommandOptions& options, const LoadedModel& model) {
  if (!options.chat) return model.tokenizer->encode(options.prompt, true);
  const auto chat = ChatFormat::from_folder(model.model_dir.path());
  if (!chat) fail(options.model, ": has no chat template; leave --chat out");
  Json messages = Json::array();
  if (!options.system.empty())
    messages.push_back({{"role", "system"}, {"content", options.system}});
  messages.push_back({{"role", "user"}, {"content", options.prompt}});
  return model.tokenizer->encode(chat->render(messages, true), false);
}

void check_prompt(const GenerateCommandOptions& options, const std::vector<TokenId>& prompt,
                  const ModelConfig& config) {
  for (const TokenId id : prompt)
    if (id >= config.vocab_size)
      fail(options.model, ": the tokenizer gives id ", id, ", the model's vocabulary has ",
           config.vocab_size, " ids; is this the model's own tokenizer?");
}

Json generation_json(const GenerateCommandOptions& options, const LoadedModel& model,
                     std::span<const TokenId> prompt, const Generation& generation) {
  const double rate = generation.decode_seconds > 0
                          ? static_cast<double>(generation.num_steps) / generation.decode_seconds
                          : 0.0;
  return {{"prompt", options.prompt},
          {"prompt_ids", prompt},
          {"ids", generation.ids},
          {"text", model.tokenizer->decode(generation.ids, true)},
          {"finish_reason", generation.finish_reason},
          {"tokens_per_second", rate}};
}

/// Prints tokens as text while they come; silent with --json.
class LiveText {
 public:
  LiveText(const GenerateCommandOptions& options, const LoadedModel& model)
      : silent_(options.json), stream_(*model.tokenizer) {}
  void push(TokenId id) {
    if (!silent_) std::cout << stream_.push(id) << std::flush;
  }
  void finish() {
    if (!silent_) std::cout << stream_.finish() << std::endl;
  }

 private:
  bool silent_;
  TextStream stream_;
};

void run_single(const GenerateCommandOptions& options, LoadedModel& model,
                std::span<const TokenId> prompt, KvDType dtype) {
  const auto capacity = static_cast<int64_t>(prompt.size()) + options.generate.max_new_tokens;
  KvCache cache = model.decoder.make_cache(dtype, scales_of(options.cache, model, dtype), capacity);
  LiveText live(options, model);
  const Generation generation =
      generate(model.decoder, cache, prompt, options.generate, [&](TokenId id) { live.push(id); });
  live.finish();
  if (options.json) std::cout << dump_json(generation_json(options, model, prompt, generation));
}

void print_comparison(const Comparison& comparison) {
  double sum = 0.0, largest = 0.0;
  for (const double kl : comparison.kl) {
    sum += kl;
    largest = std::max(largest, kl);
  }
  const double mean = comparison.kl.empty() ? 0.0 : sum / static_cast<double>(comparison.kl.size());
  if (comparison.first_divergence < 0) {
    std::cout << "the texts are equal";
  } else {
    std::cout << "first diverging token: " << comparison.first_divergence;
  }
  std::cout << "; KL per token: mean " << mean << ", largest " << largest << " nats\nKL:";
  for (const double kl : comparison.kl) {
    char text[16];
    std::snprintf(text, sizeof text, " %.4f", kl);
    std::cout << text;
  }
  std::cout << '\n';
}

void run_compare(const GenerateCommandOptions& options, LoadedModel& model,
                 std::span<const TokenId> prompt, KvDType dtype) {
  const KvDType plain = unquantized_cache_dtype(model.config);
  if (dtype == plain) {
    if (options.cache.kv_cache_dtype != "auto")
      fail("--kv-cache-dtype ", options.cache.kv_cache_dtype,
           " is what --compare compares with; name another dtype");
    dtype = KvDType::kFp8E4m3;
  }
  const auto capacity = static_cast<int64_t>(prompt.size()) + options.generate.max_new_tokens;
  KvCache first = model.decoder.make_cache(plain, {}, capacity);
  KvCache second =
      model.decoder.make_cache(dtype, scales_of(options.cache, model, dtype), capacity);
  LiveText first_text(options, model), second_text(options, model);
  bool second_started = false;
  if (!options.json) std::cout << "--- " << name_of(plain) << " cache\n";
  const auto start_second = [&] {
    if (second_started) return;
    second_started = true;
    first_text.finish();
    if (!options.json) std::cout << "--- " << name_of(dtype) << " cache\n";
  };
  const Comparison comparison = compare_caches(
      model.decoder, first, second, prompt, options.generate,
      [&](TokenId id) { first_text.push(id); },
      [&](TokenId id) {
        start_second();
        second_text.push(id);
      });
  start_second();
  second_text.finish();
  if (!options.json) return print_comparison(comparison);
  Json result = {{name_of(plain), generation_json(options, model, prompt, comparison.first)},
                 {name_of(dtype), generation_json(options, model, prompt, comparison.second)}};
  result["first_divergence"] =
      comparison.first_divergence < 0 ? Json(nullptr) : Json(comparison.first_divergence);
  result["kl"] = comparison.kl;
  std::cout << dump_json(result);
}

void run_generate(GenerateCommandOptions options) {
  if (!options.system.empty() && !options.chat) fail("--system needs --chat");
  check(options.cache);
  Sampler check_options(options.generate.sampling);
  LoadedModel model(options.model, options.device, true);
  if (!options.ignore_eos)
    options.generate.stop_tokens =
        stop_tokens_of(model.model_dir.generation_config(), model.model_dir.config());
  const std::vector<TokenId> prompt = prompt_ids(options, model);
  check_prompt(options, prompt, model.config);
  const KvDType dtype = cache_dtype_of(options.cache, model);
  (options.compare ? run_compare : run_single)(options, model, prompt, dtype);
}

}  // namespace

void add_generate(CLI::App& app, std::function<void()>& run) {
  auto options = std::make_shared<GenerateCommandOptions>();
  CLI::App* command =
      app.add_subcommand("generate", "Continue a text with a KV cache of a chosen dtype");
  command
      ->add_option("model", options->model, "Hugging Face model folder, or an output of calibrate")
      ->required()
      ->check(is_not_empty());
  command->add_option("--prompt", options->prompt, "Text to continue")->required();
  command->add_flag("--chat", options->chat, "Put the prompt into the model's chat template");
  command->add_option("--system", options->system, "System message, with --chat");
  command
      ->add_option("--max-new-tokens", options->generate.max_new_tokens, "Tokens to write at most")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  add_cache_options(*command, options->cache);
  command->add_flag("--compare", options->compare,
                    "Run the 16-bit cache beside it and show where they part");
  command->add_option("--temperature", options->generate.sampling.temperature, "0: greedy")
      ->capture_default_str();
  command
      ->add_option("--top-p", options->generate.sampling.top_p,
                   "Smallest set of tokens with this probability")
      ->capture_default_str();
  command
      ->add_option("--top-k", options->generate.sampling.top_k,
                   "Most likely tokens to choose from; 0: all")
      ->capture_default_str();
  command->add_option("--seed", options->generate.sampling.seed, "Of the sampling")
      ->capture_default_str()
      ->check(is_not_negative());
  command->add_flag("--ignore-eos", options->ignore_eos, "Go on after an end-of-sequence token");
  command->add_flag("--json", options->json, "Print a JSON object instead of text");
  add_device_options(*command, options->device);
  command->callback([options, &run] { run = [options] { run_generate(*options); }; });
}

}  // namespace kvcal
