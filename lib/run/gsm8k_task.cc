#include <memory>

#include "core/text.h"
#include "run/evaluation.h"
#include "run/evaluation_parts.h"

namespace kvcal {
namespace {

GsmOptions questions_for(const LoadedModel& model, const EvalOptions& options,
                         const GsmTaskOptions& asked) {
  GsmOptions questions = asked.questions;
  questions.dataset = options.dataset;
  questions.model_folder = model.model_dir.path();
  if (!questions.cache_bytes) questions.cache_bytes = cache_memory(model.backend);
  return questions;
}

/// Every answer, with its prompt and, with several variants, its variant.
Json samples_json(const GsmTaskResult& result) {
  Json samples = Json::array();
  for (const VariantAnswers& variant : result.variants)
    for (const GsmAnswer& answer : variant.result.answers) {
      Json& json = samples.emplace_back(to_json(answer));
      json["prompt"] = answer.prompt;
      if (!result.is_single) json["variant"] = variant.cache.name;
    }
  return samples;
}

/// The question stands last in the prompt, after the examples.
report::AnsweredQuestion page_question(const GsmAnswer& answer, const std::string& variant) {
  const size_t examples = answer.prompt.rfind("\n\n");
  return {.index = answer.doc_id,
          .variant = variant,
          .question = answer.prompt.substr(examples == std::string::npos ? 0 : examples + 2),
          .text = answer.text,
          .target = answer.target,
          .strict = answer.strict,
          .flexible = answer.flexible,
          .is_strict_right = answer.is_strict_match,
          .is_flexible_right = answer.is_flexible_match};
}

std::string score_text(const GsmScore& score) {
  const std::string mean = exact_percent(score.exact_match);
  return score.stderr_of_mean ? mean + fixed(" ± %.2f", 100.0 * *score.stderr_of_mean) : mean;
}

}  // namespace

GsmTaskResult evaluate_gsm8k(const EvalOptions& options, const GsmTaskOptions& asked,
                             Diagnostics& diagnostics) {
  EvalVariants variants(options, false, diagnostics);
  if (asked.gates.has_any()) check_gated(variants, options);
  // All tokenizers first: otherwise a folder without one would waste the others' answers.
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  for (const EvalVariant& variant : variants.variants())
    tokenizers.push_back(make_tokenizer(variant.model->model_dir.path()));
  GsmTaskResult result{.is_single = variants.is_single(), .variants = {}, .missed = {}};
  for (size_t i = 0; i < tokenizers.size(); ++i) {
    const EvalVariant& variant = variants.variants()[i];
    result.variants.push_back(
        {variant.label,
         run_gsm8k(variant.model->decoder, *tokenizers[i], variant.label.type, variant.scales,
                   questions_for(*variant.model, options, asked), diagnostics)});
    tell_warnings(variants.model().backend, diagnostics);
    add_missed(missed_gates(result.variants[i].result, asked.gates), variants, i, result.missed);
  }
  return result;
}

Json evaluation_json(const EvalOptions& options, const std::string& version,
                     const GsmTaskOptions& asked, const GsmTaskResult& result) {
  const GsmOptions& questions = asked.questions;
  Json json = run_json(options, page_of(options, "gsm8k", version));
  json["max_gen_toks"] = questions.max_gen_toks;
  json["apply_chat_template"] = questions.apply_chat_template;
  if (!questions.fewshot_dataset.empty())
    json["fewshot_dataset"] = questions.fewshot_dataset.string();
  if (questions.limit) json["limit"] = *questions.limit;
  if (questions.add_bos_token) json["add_bos_token"] = *questions.add_bos_token;
  if (questions.apply_chat_template) json["fewshot_as_multiturn"] = questions.fewshot_as_multiturn;
  json.update(to_json(questions.chat));
  for (const VariantAnswers& variant : result.variants) {
    Json& entry = json["variants"].emplace_back(Json{{"name", variant.cache.name}});
    entry.update(cache_json(variant.cache));
    entry.update(to_json(variant.result));
  }
  json = flattened(std::move(json), result.is_single);
  json["samples"] = samples_json(result);
  return json;
}

report::EvalReport evaluation_report(const EvalOptions& options, const std::string& version,
                                     const GsmTaskResult& result) {
  report::EvalReport page = page_of(options, "gsm8k", version);
  for (const auto& [cache, answers] : result.variants) {
    page.variants.push_back(
        page_variant(cache, 0,
                     {{"exact_match_strict", answers.strict.exact_match},
                      {"exact_match_strict_stderr", answers.strict.stderr_of_mean},
                      {"exact_match_flexible", answers.flexible.exact_match},
                      {"exact_match_flexible_stderr", answers.flexible.stderr_of_mean}}));
    for (const GsmAnswer& answer : answers.answers)
      page.questions.push_back(page_question(answer, result.is_single ? "" : cache.name));
  }
  if (!result.is_single) return page;
  const GsmResult& only = result.variants.at(0).result;
  page.num_questions = std::ssize(only.answers);
  page.num_fewshot = only.num_fewshot;
  return page;
}

std::string evaluation_text(const GsmTaskResult& result) {
  TextTable table({"variant", "cache", "scales", "strict-match", "flexible-extract", "tokens/s"});
  for (const VariantAnswers& variant : result.variants)
    table.add({variant.cache.name, cache_text(variant.cache), variant.cache.scales_source,
               score_text(variant.result.strict), score_text(variant.result.flexible),
               fixed("%.1f", to_json(variant.result).at("tokens_per_second").get<double>())});
  const GsmResult& first = result.variants[0].result;
  return std::to_string(first.answers.size()) + " questions, " + std::to_string(first.num_fewshot) +
         " examples each\n" + table.text();
}

}  // namespace kvcal
