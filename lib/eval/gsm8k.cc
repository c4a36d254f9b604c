#include "eval/gsm8k.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/folder.h"
#include "eval/generation_settings.h"
#include "eval/gsm8k_text.h"
#include "eval/stop_strings.h"

namespace kvcal {
namespace {

/// The questions of a run, and what the model is asked.
struct GsmTask {
  std::vector<GsmAnswer> answers;  ///< without what the model writes
  std::vector<BatchPrompt> prompts;
};

void check(const GsmOptions& options) {
  // A descriptor and a folder have splits of their own.
  if (options.fewshot_dataset.empty() && options.num_fewshot > 0 &&
      options.dataset.extension() != ".yaml" && options.dataset.extension() != ".yml" &&
      !is_folder(options.dataset))
    fail("no data set of worked examples (fewshot_dataset) is given, ", options.num_fewshot,
         " are wanted");
}

std::vector<std::string> read_prompts(const GsmOptions& options,
                                      std::span<const GsmRecord> questions) {
  const auto& source = options.fewshot_dataset.empty() ? options.dataset : options.fewshot_dataset;
  std::vector<GsmRecord> examples;
  if (options.num_fewshot > 0) examples = read_gsm_records(source, "train", {});
  std::optional<ChatFormat> chat;
  if (options.apply_chat_template) {
    chat = ChatFormat::from_folder(options.model_folder, options.chat);
    if (!chat) fail(options.model_folder.string(), ": has no chat template");
  }
  return in_context(source.string(), [&] {
    return gsm_prompts(questions, examples,
                       {.num_fewshot = options.num_fewshot,
                        .chat = chat ? &*chat : nullptr,
                        .fewshot_as_multiturn = options.fewshot_as_multiturn});
  });
}

GsmTask prepare(const Tokenizer& tokenizer, const GenerationSettings& settings,
                int64_t max_positions, const GsmOptions& options, Diagnostics& diagnostics) {
  const int64_t longest = max_positions - options.max_gen_toks;
  if (longest <= 0)
    fail("the model has ", max_positions, " positions, which do not hold ", options.max_gen_toks,
         " new tokens (max_gen_toks) and a question");
  const std::vector<GsmRecord> questions = read_gsm_records(options.dataset, "test", options.limit);
  std::vector<std::string> texts = read_prompts(options, questions);
  GsmTask task;
  int64_t num_cut = 0;
  for (size_t i = 0; i < questions.size(); ++i) {
    const bool has_bos = settings.bos_token && texts[i].starts_with(*settings.bos_token);
    std::vector<TokenId> ids = prompt_ids(tokenizer, settings, texts[i],
                                          has_bos ? std::optional(false) : options.add_bos_token);
    if (std::ssize(ids) > longest) {
      ids.erase(ids.begin(), ids.end() - longest);
      ++num_cut;
    }
    task.prompts.push_back({.ids = std::move(ids), .max_new_tokens = options.max_gen_toks});
    GsmAnswer& answer = task.answers.emplace_back();
    answer.doc_id = static_cast<int64_t>(i);
    answer.prompt = std::move(texts[i]);
    answer.target = questions[i].answer;
  }
  if (num_cut > 0)
    diagnostics.warn("prompts of more than " + std::to_string(longest) +
                     " tokens lose their beginning: " + std::to_string(num_cut) + " of " +
                     std::to_string(questions.size()));
  return task;
}

GsmScore score_of(const std::vector<GsmAnswer>& answers, bool GsmAnswer::*is_match) {
  std::vector<bool> matches;
  for (const GsmAnswer& answer : answers) matches.push_back(answer.*is_match);
  return gsm_score(matches);
}

StopStrings stop_strings(const Tokenizer& tokenizer, const GenerationSettings& settings) {
  std::vector<std::string> stops{"Question:", "</s>", "<|im_end|>"};
  if (settings.eos_token && std::ranges::find(stops, *settings.eos_token) == stops.end())
    stops.push_back(*settings.eos_token);
  return {tokenizer, stops};
}

}  // namespace

// Source: lm_eval 0.4.13, api/metrics.py `mean_stderr`.
GsmScore gsm_score(const std::vector<bool>& matches) {
  if (matches.empty()) fail("there is no answer to score");
  const auto count = static_cast<double>(matches.size());
  const auto right = static_cast<double>(std::ranges::count(matches, true));
  const double mean = right / count;
  if (matches.size() < 2) return {.exact_match = mean, .stderr_of_mean = {}};
  const double squares = right * (1.0 - mean) * (1.0 - mean) + (count - right) * mean * mean;
  return {.exact_match = mean, .stderr_of_mean = std::sqrt(squares / (count - 1.0) / count)};
}

GsmResult run_gsm8k(Decoder& decoder, const Tokenizer& tokenizer, const CacheType& cache_type,
                    const std::vector<LayerKvScales>& scales, const GsmOptions& options,
                    Diagnostics& diagnostics) {
  check(options);
  const GenerationSettings settings = read_generation_settings(options.model_folder);
  for (const std::string& key : settings.not_followed)
    diagnostics.warn("generation_config.json: '" + key +
                     "' is not followed, so answers may differ from transformers'");
  GsmTask task =
      prepare(tokenizer, settings, decoder.config().max_position_embeddings, options, diagnostics);
  const StopStrings stops = stop_strings(tokenizer, settings);
  const auto total = std::ssize(task.prompts);
  GsmResult result{
      .answers = std::move(task.answers), .num_fewshot = options.num_fewshot, .batch_size = 0};
  const int64_t longest = longest_text(task.prompts);
  const int64_t wanted =
      options.batch_size > 0
          ? options.batch_size
          : fitting_slots(decoder.config(), cache_type, scales, longest, options.cache_bytes);
  result.batch_size = std::clamp<int64_t>(total, 1, wanted);
  KvCache cache = decoder.make_cache(cache_type, scales, longest, result.batch_size);
  int64_t done = 0;
  const auto keep = [&](size_t index, const std::vector<TokenId>& ids) {
    GsmAnswer& answer = result.answers[index];
    answer.text = stops.cut(tokenizer.decode(ids, true));
    answer.strict = strict_answer(answer.text);
    answer.flexible = flexible_answer(answer.text);
    answer.is_strict_match = is_gsm_match(answer.strict, answer.target);
    answer.is_flexible_match = is_gsm_match(answer.flexible, answer.target);
    diagnostics.progress("eval", ++done, total, "questions");
  };
  const auto is_end = [&](std::span<const TokenId> ids) {
    return settings.stop_tokens.contains(ids.back()) || stops.end(ids);
  };
  result.use = in_context(options.dataset.string(), [&] {
    return generate_together(
        decoder, cache, task.prompts,
        {.repetition_penalty = settings.repetition_penalty, .is_end = is_end, .on_text = keep});
  });
  result.strict = score_of(result.answers, &GsmAnswer::is_strict_match);
  result.flexible = score_of(result.answers, &GsmAnswer::is_flexible_match);
  return result;
}

Json to_json(const GsmResult& result) {
  const auto error = [](const GsmScore& score) {
    return score.stderr_of_mean ? Json(*score.stderr_of_mean) : Json(nullptr);
  };
  const double seconds = result.use.prefill_seconds + result.use.decode_seconds;
  return {{"exact_match_strict", result.strict.exact_match},
          {"exact_match_strict_stderr", error(result.strict)},
          {"exact_match_flexible", result.flexible.exact_match},
          {"exact_match_flexible_stderr", error(result.flexible)},
          {"num_questions", result.answers.size()},
          {"num_fewshot", result.num_fewshot},
          {"tokens_generated", result.use.new_tokens},
          {"tokens_per_second",
           seconds > 0 ? static_cast<double>(result.use.new_tokens) / seconds : 0.0}};
}

Json to_json(const GsmAnswer& answer) {
  return {{"doc_id", answer.doc_id},
          {"text", answer.text},
          {"strict", answer.strict},
          {"flexible", answer.flexible},
          {"target", answer.target},
          {"exact_match_strict", answer.is_strict_match ? 1 : 0},
          {"exact_match_flexible", answer.is_flexible_match ? 1 : 0}};
}

}  // namespace kvcal
