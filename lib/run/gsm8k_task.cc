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
Json samples_json(const report::EvalReport& found) {
  Json samples = Json::array();
  for (const report::EvalVariant& variant : found.variants)
    for (const GsmAnswer& answer : variant.answers->answers) {
      Json& json = samples.emplace_back(to_json(answer));
      json["prompt"] = answer.prompt;
      if (!found.is_single) json["variant"] = variant.cache.name;
    }
  return samples;
}

std::string score_text(const GsmScore& score) {
  const std::string mean = exact_percent(score.exact_match);
  return score.stderr_of_mean ? mean + fixed(" ± %.2f", 100.0 * *score.stderr_of_mean) : mean;
}

}  // namespace

EvalResult evaluate_gsm8k(const EvalOptions& options, const GsmTaskOptions& asked,
                          Diagnostics& diagnostics) {
  EvalVariants variants(options, false, diagnostics);
  if (asked.gates.has_any()) check_gated(variants, options);
  // All tokenizers first: otherwise a folder without one would waste the others' answers.
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  for (const EvalVariant& variant : variants.variants())
    tokenizers.push_back(make_tokenizer(variant.model->model_dir.path()));
  EvalResult result{.report = page_of(options, "gsm8k", variants)};
  for (size_t i = 0; i < tokenizers.size(); ++i) {
    const EvalVariant& variant = variants.variants()[i];
    GsmResult answers =
        run_gsm8k(variant.model->decoder, *tokenizers[i], variant.label.type, variant.scales,
                  questions_for(*variant.model, options, asked), diagnostics);
    tell_warnings(variants.model().backend, diagnostics);
    add_missed(judged_gates(answers, asked.gates), variants, i, result.missed);
    result.report.variants.push_back({.cache = variant.label, .answers = std::move(answers)});
  }
  return result;
}

Json gsm8k_json(const EvalOptions& options, const GsmTaskOptions& asked,
                const report::EvalReport& found) {
  const GsmOptions& questions = asked.questions;
  Json json = run_json(options, found);
  json["max_gen_toks"] = questions.max_gen_toks;
  json["apply_chat_template"] = questions.apply_chat_template;
  if (!questions.fewshot_dataset.empty())
    json["fewshot_dataset"] = questions.fewshot_dataset.string();
  if (questions.limit) json["limit"] = *questions.limit;
  if (questions.add_bos_token) json["add_bos_token"] = *questions.add_bos_token;
  if (questions.apply_chat_template) json["fewshot_as_multiturn"] = questions.fewshot_as_multiturn;
  json.update(to_json(questions.chat));
  for (const report::EvalVariant& variant : found.variants) {
    Json& entry = json["variants"].emplace_back(Json{{"name", variant.cache.name}});
    entry.update(cache_json(variant.cache));
    entry.update(to_json(*variant.answers));
    if (asked.gates.has_any())
      entry["gates"] = to_json(judged_gates(*variant.answers, asked.gates));
  }
  json = flattened(std::move(json), found.is_single);
  json["samples"] = samples_json(found);
  return json;
}

std::string gsm8k_text(const report::EvalReport& found) {
  TextTable table({"variant", "cache", "scales", "strict-match", "flexible-extract", "tokens/s"});
  for (const report::EvalVariant& variant : found.variants)
    table.add({variant.cache.name, cache_text(variant.cache), variant.cache.scales_source,
               score_text(variant.answers->strict), score_text(variant.answers->flexible),
               fixed("%.1f", to_json(*variant.answers).at("tokens_per_second").get<double>())});
  const GsmResult& first = *found.variants[0].answers;
  return counted(first.answers.size(), "question") + ", " + counted(first.num_fewshot, "example") +
         " each\n" + table.text();
}

}  // namespace kvcal
