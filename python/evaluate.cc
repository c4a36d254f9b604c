#include "core/byte_size.h"
#include "core/join.h"
#include "core/number_text.h"
#include "core/registry.h"
#include "kvcal_version.h"
#include "python_commands.h"
#include "run/evaluation.h"
#include "run/named_inputs.h"

namespace kvcal {
namespace {

constexpr double kLargest = 1e300;

void read_gate(Arguments& arguments, const std::string& name, double (*parse)(std::string_view),
               std::optional<double>& gate) {
  std::string text;
  arguments.read_text(name, text);
  if (!text.empty()) gate = in_context(name, [&] { return parse(text); });
}

void read_evaluation(Arguments& arguments, EvalOptions& eval, Diagnostics& diagnostics) {
  read_model(arguments, "model", eval.model, diagnostics);
  read_dataset(arguments, "dataset", eval.dataset, diagnostics);
  read_cache(arguments, eval.cache, diagnostics);
  arguments.read("allow_16_bit", eval.allow_16_bit);
  read_device(arguments, eval.device);
  arguments.read("inputs", eval.device.inputs);
}

void read_sequences(Arguments& arguments, SequenceOptions& sequences) {
  arguments.read("num_samples", sequences.num_sequences, 1, int64_t{1} << 32);
  arguments.read("max_seq_length", sequences.max_seq_length, 2, int64_t{1} << 24);
  read_records(arguments, sequences.records);
  arguments.read("stride", sequences.stride, 0, int64_t{1} << 24);
}

void read_variants(Arguments& arguments, EvalOptions& eval, Diagnostics& diagnostics) {
  arguments.read("variants", eval.variants);
  for (std::string& variant : eval.variants) variant = local_variant(variant, diagnostics);
}

/// missed: lines of gates.
Json result_of(Json evaluation, const std::vector<std::string>& missed) {
  Json result{{"evaluation", std::move(evaluation)}};
  if (!missed.empty()) result["problem"] = "gate missed: " + join(missed, "\ngate missed: ");
  return result;
}

Json likelihood(EvalOptions& eval, bool has_reference, Arguments& arguments,
                Diagnostics& diagnostics) {
  LikelihoodOptions options{.has_reference = has_reference};
  read_sequences(arguments, eval.sequences);
  read_variants(arguments, eval, diagnostics);
  if (has_reference) {
    read_model(arguments, "reference", eval.reference, diagnostics);
    arguments.read("reference_kv_cache_dtype", eval.reference_cache);
    arguments.read("per_layer", options.per_layer);
    arguments.read("max_kl", options.gates.max_kl, 0.0, kLargest);
    read_gate(arguments, "max_perplexity_increase", parse_fraction,
              options.gates.max_perplexity_increase);
    read_gate(arguments, "min_top1", parse_part, options.gates.min_top1);
  }
  arguments.expect_all_read();
  const LikelihoodResult result = evaluate_likelihood(eval, options, diagnostics);
  return result_of(evaluation_json(eval, KVCAL_VERSION, result), result.missed);
}

Json perplexity(EvalOptions& eval, Arguments& arguments, Diagnostics& diagnostics) {
  return likelihood(eval, false, arguments, diagnostics);
}

Json kl(EvalOptions& eval, Arguments& arguments, Diagnostics& diagnostics) {
  return likelihood(eval, true, arguments, diagnostics);
}

Json gsm8k(EvalOptions& eval, Arguments& arguments, Diagnostics& diagnostics) {
  GsmTaskOptions options;
  GsmOptions& questions = options.questions;
  std::string fewshot, memory;
  read_variants(arguments, eval, diagnostics);
  read_dataset(arguments, "fewshot_dataset", fewshot, diagnostics);
  arguments.read("num_fewshot", questions.num_fewshot, 0, int64_t{1} << 16);
  arguments.read("limit", questions.limit, 1, int64_t{1} << 32);
  arguments.read("max_gen_toks", questions.max_gen_toks, 1, int64_t{1} << 20);
  arguments.read("add_bos_token", questions.add_bos_token);
  arguments.read("apply_chat_template", questions.apply_chat_template);
  arguments.read("fewshot_as_multiturn", questions.fewshot_as_multiturn);
  read_chat(arguments, questions.chat);
  arguments.read("batch_size", questions.batch_size, 0, int64_t{1} << 16);
  arguments.read_text("cache_memory", memory);
  read_gate(arguments, "min_exact_match", parse_part, options.gates.min_strict);
  read_gate(arguments, "min_exact_match_flexible", parse_part, options.gates.min_flexible);
  const bool has_turns = arguments.is_given("fewshot_as_multiturn");
  arguments.expect_all_read();
  if (has_turns && !questions.apply_chat_template)
    fail("fewshot_as_multiturn needs apply_chat_template");
  if (!to_json(questions.chat).empty() && !questions.apply_chat_template)
    fail("chat_template and chat_template_kwargs need apply_chat_template");
  if (questions.batch_size > 0 && !memory.empty())
    fail("batch_size and cache_memory both say how many questions go together; give one");
  questions.fewshot_dataset = fewshot;
  if (!memory.empty())
    questions.cache_bytes = in_context("cache_memory", [&] { return parse_byte_size(memory); });
  const GsmTaskResult result = evaluate_gsm8k(eval, options, diagnostics);
  return result_of(evaluation_json(eval, KVCAL_VERSION, options, result), result.missed);
}

Json sensitivity(EvalOptions& eval, Arguments& arguments, Diagnostics& diagnostics) {
  SensitivityOptions options;
  read_sequences(arguments, eval.sequences);
  arguments.read("kl_budget", options.kl_budget, 0.0, kLargest);
  arguments.expect_all_read();
  const SensitivityResult result = evaluate_sensitivity(eval, options, diagnostics);
  Json answer = result_of(evaluation_json(eval, KVCAL_VERSION, result), {});
  if (result.proposal) answer["recipe"] = result.proposal->recipe;
  return answer;
}

using Task = Json(EvalOptions& eval, Arguments& arguments, Diagnostics& diagnostics);
const Registry<Task*> kTasks{
    "task",
    {{"perplexity", perplexity}, {"kl", kl}, {"gsm8k", gsm8k}, {"sensitivity", sensitivity}}};

}  // namespace

Json python_evaluate(Arguments& arguments, Diagnostics& diagnostics) {
  EvalOptions eval;
  std::string task;
  const FamilyArgument family(arguments, eval.family);
  arguments.read("task", task);
  Task* run = kTasks.at(task);
  read_evaluation(arguments, eval, diagnostics);
  return run(eval, arguments, diagnostics);
}

}  // namespace kvcal
