#include <algorithm>
#include <cstdio>
#include <iostream>

#include "commands.h"
#include "eval/gates.h"
#include "eval/likelihood.h"
#include "loaded_model.h"
#include "progress.h"
#include "text/dataset.h"

namespace kvcal {
namespace {

struct EvalOptions {
  std::string model, task, dataset, reference;
  bool json = false;
  CacheOptions cache;
  SampleOptions samples;
  DeviceOptions device;
  std::optional<double> max_kl;
  std::string max_perplexity_increase, min_top1;
};

Gates gates_of(const EvalOptions& options) {
  Gates gates{.max_kl = options.max_kl, .max_perplexity_increase = {}, .min_top1 = {}};
  const auto parse = [](const char* name, const std::string& text, std::optional<double>& gate) {
    if (!text.empty()) in_context(name, [&] { gate = parse_fraction(text); });
  };
  parse("--max-perplexity-increase", options.max_perplexity_increase,
        gates.max_perplexity_increase);
  parse("--min-top1", options.min_top1, gates.min_top1);
  if (gates.has_any() && options.task != "kl")
    fail("gates compare with a reference, which --task kl has; --task is '", options.task, "'");
  return gates;
}

void throw_if_missed(const Likelihood& result, const Gates& gates) {
  std::string lines;
  for (const std::string& line : missed_gates(result, gates))
    lines += (lines.empty() ? "gate missed: " : "\ngate missed: ") + line;
  if (!lines.empty()) throw GateMissed(lines);
}

using Sequences = std::vector<std::vector<TokenId>>;

/// Text as one run of tokens, cut into sequences, which is how perplexity is reported; chats and
/// ids a sequence a record.
Sequences read_sequences(const EvalOptions& options, const LoadedModel& model,
                         Diagnostics& diagnostics) {
  const auto dataset = open_dataset(options.dataset);
  const auto first = dataset->record(0);
  Sequences sequences;
  if (!std::holds_alternative<std::string>(first.content)) {
    const bool is_chat = std::holds_alternative<Json>(first.content);
    const auto tokenizer = is_chat ? make_tokenizer(model.model_dir.path()) : nullptr;
    const auto chat = is_chat ? ChatFormat::from_folder(model.model_dir.path()) : std::nullopt;
    SampleOptions samples = options.samples;
    samples.num_calibration_samples = std::min(samples.num_calibration_samples, dataset->size());
    for (Sample& sample : read_samples(*dataset, tokenizer.get(), chat ? &*chat : nullptr,
                                       model.config.vocab_size, samples, diagnostics))
      sequences.push_back(std::move(sample.ids));
    return sequences;
  }
  const std::vector<TokenId> ids =
      make_tokenizer(model.model_dir.path())->encode(dataset->whole_text(), true);
  const auto length = static_cast<size_t>(options.samples.max_seq_length);
  const auto most = static_cast<size_t>(options.samples.num_calibration_samples);
  for (size_t at = 0; at < ids.size() && sequences.size() < most; at += length) {
    const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(at);
    sequences.emplace_back(begin,
                           begin + static_cast<std::ptrdiff_t>(std::min(length, ids.size() - at)));
  }
  return sequences;
}

/// A model, and what its caches are made of.
struct Subject {
  Subject(LoadedModel& loaded, const CacheOptions& cache)
      : model(loaded),
        dtype(cache_dtype_of(cache, loaded)),
        scales(scales_of(cache, loaded, dtype)) {}
  ScoredModel scored() const { return {model.decoder, dtype, scales}; }

  LoadedModel& model;
  KvDType dtype;
  std::vector<LayerKvScales> scales;
};

std::string scales_source(const EvalOptions& options, const Subject& subject) {
  if (!is_fp8(subject.dtype)) return "none";
  if (options.cache.unit_scales) return "unit";
  return options.cache.scales.empty() ? "checkpoint" : options.cache.scales;
}

/// What the model made of each sequence, in order: paired comparisons and error bars need it.
Json sequences_json(const std::vector<TokenScores>& sequences) {
  Json list = Json::array();
  for (const TokenScores& scores : sequences) {
    if (scores.nll.empty()) continue;
    const Likelihood result = summarize(scores);
    Json entry = {{"num_tokens", result.num_tokens}, {"nll", result.nll}};
    if (result.kl_mean) entry["kl_mean"] = *result.kl_mean;
    list.push_back(std::move(entry));
  }
  return list;
}

Json result_json(const EvalOptions& options, const Subject& subject, const Likelihood& result) {
  Json json = {{"task", options.task},
               {"kv_cache_dtype", name_of(subject.dtype)},
               {"scales", scales_source(options, subject)},
               {"num_tokens", result.num_tokens},
               {"nll", result.nll},
               {"perplexity", result.perplexity}};
  if (!result.kl_mean) return json;
  json["kl_mean"] = *result.kl_mean;
  json["kl_p99"] = *result.kl_p99;
  json["kl_max"] = *result.kl_max;
  json["top1_agreement"] = *result.top1_agreement;
  json["reference_perplexity"] = *result.reference_perplexity;
  json["perplexity_increase"] = *result.perplexity_increase;
  return json;
}

void print(const EvalOptions& options, const Subject& subject, const Likelihood& result) {
  std::printf("%s cache, %lld tokens: perplexity %.4f (NLL %.6f)\n",
              std::string(name_of(subject.dtype)).c_str(),
              static_cast<long long>(result.num_tokens), result.perplexity, result.nll);
  if (!result.kl_mean) return;
  const std::string reference =
      options.reference.empty() ? "the same with an unquantized cache" : options.reference;
  std::printf("KL from %s: mean %.6f, p99 %.6f, largest %.6f nats; same top token %.2f %%\n",
              reference.c_str(), *result.kl_mean, *result.kl_p99, *result.kl_max,
              100.0 * *result.top1_agreement);
  std::printf("perplexity of %s: %.4f, so this is %+.3f %%\n", reference.c_str(),
              *result.reference_perplexity, 100.0 * *result.perplexity_increase);
}

std::vector<TokenScores> score_all(const Sequences& sequences, const Subject& subject,
                                   const Subject* reference, Diagnostics& diagnostics) {
  const ScoredModel model = subject.scored();
  std::optional<ScoredModel> other;
  if (reference) other.emplace(reference->scored());
  int64_t done = 0, total = 0;
  for (const auto& ids : sequences) total += static_cast<int64_t>(ids.size());
  std::vector<TokenScores> scores;
  for (const auto& ids : sequences) {
    score_tokens(model, other ? &*other : nullptr, ids, scores.emplace_back());
    done += static_cast<int64_t>(ids.size());
    diagnostics.progress("eval", done, total, "tokens");
  }
  return scores;
}

void run_eval(const EvalOptions& options) {
  const bool has_kl = options.task == "kl";
  if (!has_kl && options.task != "perplexity")
    fail("--task is '", options.task, "', expected perplexity or kl");
  if (!has_kl && !options.reference.empty()) fail("--reference needs --task kl");
  check(options.cache);
  const Gates gates = gates_of(options);
  TerminalDiagnostics diagnostics;
  LoadedModel model(options.model, options.device, false);
  const Sequences sequences = read_sequences(options, model, diagnostics);
  const Subject subject(model, options.cache);
  // Another model runs as its checkpoint says; the same one with the cache it had without FP8.
  std::unique_ptr<LoadedModel> other;
  std::optional<Subject> reference;
  if (has_kl && options.reference.empty()) {
    CacheOptions unquantized;
    unquantized.kv_cache_dtype = name_of(unquantized_cache_dtype(model.config));
    reference.emplace(model, unquantized);
  } else if (has_kl) {
    other = std::make_unique<LoadedModel>(options.reference, options.device, false, &model.backend);
    reference.emplace(*other, CacheOptions{});
  }
  const std::vector<TokenScores> scores =
      score_all(sequences, subject, reference ? &*reference : nullptr, diagnostics);
  const Likelihood result = summarize(joined(scores));
  if (options.json) {
    Json json = result_json(options, subject, result);
    json["sequences"] = sequences_json(scores);
    std::cout << dump_json(json);
  } else {
    print(options, subject, result);
  }
  std::cout.flush();
  throw_if_missed(result, gates);
}

void add_gate_options(CLI::App& command, EvalOptions& options) {
  command
      .add_option("--max-kl", options.max_kl, "Exit with 3 where the mean KL is over this (nats)")
      ->check(CLI::NonNegativeNumber);
  command
      .add_option("--max-perplexity-increase", options.max_perplexity_increase,
                  "Exit with 3 where perplexity is over the reference's by more: 0.5% or 0.005")
      ->check(is_not_empty());
  command
      .add_option("--min-top1", options.min_top1,
                  "Exit with 3 where fewer top tokens are the reference's: 99% or 0.99")
      ->check(is_not_empty());
}

}  // namespace

void add_eval(CLI::App& app, std::function<void()>& run) {
  auto options = std::make_shared<EvalOptions>();
  CLI::App* command = app.add_subcommand(
      "eval", "Measure what a KV cache dtype, scales or FP8 weights do to a model's predictions");
  command
      ->add_option("model", options->model, "Hugging Face model folder, or an output of calibrate")
      ->required()
      ->check(is_not_empty());
  command->add_option("--task", options->task, "perplexity, or kl")->required();
  command
      ->add_option("--dataset", options->dataset,
                   "Text, or JSON lines with text, messages or input_ids")
      ->required()
      ->check(is_not_empty());
  command
      ->add_option("--reference", options->reference,
                   "Model that KL is measured from; default: the same with an unquantized cache")
      ->check(is_not_empty());
  command
      ->add_option("--num-samples", options->samples.num_calibration_samples,
                   "Sequences to score at most")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 32));
  command
      ->add_option("--max-seq-length", options->samples.max_seq_length,
                   "Tokens a sequence is cut at")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 24));
  add_cache_options(*command, options->cache);
  add_gate_options(*command, *options);
  command->add_flag("--json", options->json, "Print a JSON object instead of text");
  add_device_options(*command, options->device);
  command->callback([options, &run] { run = [options] { run_eval(*options); }; });
}

}  // namespace kvcal
