#include "eval_gsm8k.h"

#include <cstdio>
#include <iostream>

#include "commands.h"
#include "core/file.h"
#include "core/process_memory.h"
#include "eval/gates.h"
#include "eval/gsm8k.h"
#include "eval_likelihood.h"
#include "eval_options.h"
#include "eval_report.h"
#include "eval_variants.h"
#include "kvcal_version.h"
#include "progress.h"
#include "table.h"

namespace kvcal {
namespace {

GsmGates gates_of(const GsmCommandOptions& options) {
  GsmGates gates;
  const auto parse = [](const char* name, const std::string& text, std::optional<double>& gate) {
    if (!text.empty()) in_context(name, [&] { gate = parse_part(text); });
  };
  parse("--min-exact-match", options.min_exact_match, gates.min_strict);
  parse("--min-exact-match-flexible", options.min_exact_match_flexible, gates.min_flexible);
  return gates;
}

/// Half of what there is, where the user does not say: the rest is for the steps themselves.
std::optional<uint64_t> cache_bytes_of(const GsmCommandOptions& options, const Backend& backend) {
  if (!options.cache_memory.empty())
    return in_context("--cache-memory", [&] { return parse_byte_size(options.cache_memory); });
  const auto free = backend.is_host() ? available_memory() : backend.free_memory();
  return free ? std::optional(*free / 2) : std::nullopt;
}

GsmOptions task_options(const EvalOptions& options, const LoadedModel& model) {
  const GsmCommandOptions& command = options.gsm8k;
  return {.dataset = options.dataset,
          .fewshot_dataset = command.fewshot_dataset,
          .model_folder = model.model_dir.path(),
          .num_fewshot = command.num_fewshot,
          .limit = command.limit,
          .max_gen_toks = command.max_gen_toks,
          .add_bos_token = command.add_bos_token,
          .apply_chat_template = command.apply_chat_template,
          .fewshot_as_multiturn = command.fewshot_as_multiturn.value_or(true),
          .batch_size = command.batch_size,
          .cache_bytes = cache_bytes_of(command, model.backend)};
}

void check(const GsmCommandOptions& options) {
  if (options.fewshot_as_multiturn && !options.apply_chat_template)
    fail("--fewshot-as-multiturn needs --apply-chat-template");
  if (options.batch_size > 0 && !options.cache_memory.empty())
    fail("--batch-size and --cache-memory both say how many questions go together; give one");
}

Json task_json(const EvalOptions& options) {
  const GsmCommandOptions& command = options.gsm8k;
  Json json = {{"task", options.task},
               {"version", KVCAL_VERSION},
               {"model", options.model},
               {"dataset", options.dataset},
               {"max_gen_toks", command.max_gen_toks},
               {"apply_chat_template", command.apply_chat_template}};
  if (!command.fewshot_dataset.empty()) json["fewshot_dataset"] = command.fewshot_dataset;
  if (command.limit) json["limit"] = *command.limit;
  if (command.add_bos_token) json["add_bos_token"] = *command.add_bos_token;
  if (command.apply_chat_template)
    json["fewshot_as_multiturn"] = command.fewshot_as_multiturn.value_or(true);
  return json;
}

Json variant_json(const EvalVariant& variant, const GsmResult& result) {
  Json json = {{"name", variant.name},
               {"kv_cache_dtype", name_of(variant.dtype)},
               {"scales", variant.scales_source}};
  json.update(to_json(result));
  return json;
}

/// Every answer, with its prompt and, where there are several, its variant.
Json samples_json(const EvalVariants& variants, const std::vector<GsmResult>& results) {
  Json samples = Json::array();
  for (size_t i = 0; i < results.size(); ++i)
    for (const GsmAnswer& answer : results[i].answers) {
      Json& json = samples.emplace_back(to_json(answer));
      json["prompt"] = answer.prompt;
      if (!variants.is_single()) json["variant"] = variants.variants()[i].name;
    }
  return samples;
}

std::string as_lines(const Json& list) {
  std::string lines;
  for (const Json& entry : list) lines += entry.dump() + '\n';
  return lines;
}

std::string score_text(const GsmScore& score) {
  const std::string mean = fixed("%.2f %%", 100.0 * score.exact_match);
  return score.stderr_of_mean ? mean + fixed(" ± %.2f", 100.0 * *score.stderr_of_mean) : mean;
}

void print(const EvalVariants& variants, const std::vector<GsmResult>& results) {
  Table table({"variant", "cache", "scales", "strict-match", "flexible-extract", "tokens/s"});
  for (size_t i = 0; i < results.size(); ++i) {
    const EvalVariant& variant = variants.variants()[i];
    table.add({variant.name, std::string(name_of(variant.dtype)), variant.scales_source,
               score_text(results[i].strict), score_text(results[i].flexible),
               fixed("%.1f", to_json(results[i]).at("tokens_per_second").get<double>())});
  }
  std::cout << results[0].answers.size() << " questions, " << results[0].num_fewshot
            << " examples each\n";
  table.print(std::cout);
}

std::vector<GsmResult> run_all(const EvalOptions& options, const EvalVariants& variants,
                               Diagnostics& diagnostics) {
  // All tokenizers first: a folder without one would lose what the others have answered.
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  for (const EvalVariant& variant : variants.variants())
    tokenizers.push_back(make_tokenizer(variant.model->model_dir.path()));
  std::vector<GsmResult> results;
  for (size_t i = 0; i < tokenizers.size(); ++i) {
    const EvalVariant& variant = variants.variants()[i];
    results.push_back(run_gsm8k(variant.model->decoder, *tokenizers[i], variant.dtype,
                                variant.scales, task_options(options, *variant.model),
                                diagnostics));
  }
  return results;
}

}  // namespace

void run_gsm8k(const EvalOptions& options) {
  check(options.gsm8k);
  const GsmGates gates = gates_of(options.gsm8k);
  const std::string& log = options.gsm8k.log_samples;
  TerminalDiagnostics diagnostics;
  EvalVariants variants(options, false);
  const std::vector<GsmResult> results = run_all(options, variants, diagnostics);
  Json json = task_json(options);
  for (size_t i = 0; i < results.size(); ++i)
    json["variants"].push_back(variant_json(variants.variants()[i], results[i]));
  json = printed_json(std::move(json), variants);
  json["samples"] = samples_json(variants, results);
  if (!log.empty()) write_file_atomically(log, as_lines(json.at("samples")), options.overwrite);
  if (options.json) {
    std::cout << dump_json(json);
  } else {
    print(variants, results);
  }
  std::cout.flush();
  write_eval_report(json, options.report);
  std::vector<std::vector<std::string>> missed;
  for (const auto& result : results) missed.push_back(missed_gates(result, gates));
  variants.throw_if_missed(missed);
}

void add_gsm8k_options(CLI::App& command, GsmCommandOptions& options) {
  CLI::Option_group& group = *command.add_option_group(kGsmOptionsTitle);
  group
      .add_option("--fewshot-dataset", options.fewshot_dataset,
                  "JSON lines of worked examples; default: split train of a descriptor")
      ->check(is_not_empty());
  group.add_option("--num-fewshot", options.num_fewshot, "Worked examples before each question")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 16));
  group.add_option("--limit", options.limit, "Ask the first so many questions alone")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 32));
  group.add_option("--max-gen-toks", options.max_gen_toks, "Tokens of an answer at most")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  group.add_option("--add-bos-token", options.add_bos_token,
                   "true or false; default: as the tokenizer does on its own");
  group.add_flag("--apply-chat-template", options.apply_chat_template,
                 "Put question and examples into the model's chat template");
  group.add_option("--fewshot-as-multiturn", options.fewshot_as_multiturn,
                   "With the template: true (default): a turn an example; false: one message");
  group
      .add_option("--batch-size", options.batch_size,
                  "Questions answered at a time, which changes no answer; 0: what fits "
                  "--cache-memory, 32 at most")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 16));
  group
      .add_option("--cache-memory", options.cache_memory,
                  "Memory for the KV cache of all of them; default: half of what is free")
      ->check(is_not_empty());
  group.add_option("--log-samples", options.log_samples, "JSON lines file for prompts and answers")
      ->check(is_not_empty());
  group
      .add_option("--min-exact-match", options.min_exact_match,
                  "Exit with 3 where strict-match is under this: 77% or 0.77")
      ->check(is_not_empty());
  group
      .add_option("--min-exact-match-flexible", options.min_exact_match_flexible,
                  "The same of flexible-extract")
      ->check(is_not_empty());
}

}  // namespace kvcal
