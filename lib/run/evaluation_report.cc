#include <cmath>

#include "hub/hub_cache.h"
#include "run/evaluation.h"

namespace kvcal {
namespace {

/// Numbers by their keys in JSON and in pages; nullopt: not measured.
using Numbers = std::vector<std::pair<const char*, std::optional<double>>>;

Numbers numbers_of(const Likelihood& result) {
  return {{"nll", result.nll},
          {"perplexity", result.perplexity},
          {"kl_mean", result.kl_mean},
          {"kl_stderr", result.kl_stderr},
          {"kl_p99", result.kl_p99},
          {"kl_max", result.kl_max},
          {"top1_agreement", result.top1_agreement},
          {"reference_perplexity", result.reference_perplexity},
          {"perplexity_increase", result.perplexity_increase}};
}

/// Numbers of a layer whose cache alone is quantized.
Numbers layer_numbers_of(const Likelihood& result) {
  return {{"kl_mean", result.kl_mean},
          {"kl_stderr", result.kl_stderr},
          {"kl_p99", result.kl_p99},
          {"kl_max", result.kl_max},
          {"top1_agreement", result.top1_agreement},
          {"perplexity", result.perplexity}};
}

report::Measures measures_of(const Numbers& numbers) {
  report::Measures measures;
  for (const auto& [key, value] : numbers) measures.set(key, value);
  return measures;
}

Json run_json(const EvalOptions& options, const std::string& task, const std::string& version) {
  return {{"task", task},
          {"version", version},
          {"model", name_of_source(options.model)},
          {"dataset", name_of_source(options.dataset)}};
}

void add_sequences(const EvalOptions& options, size_t num_sequences, const std::string& reference,
                   Json& json) {
  json["num_sequences"] = num_sequences;
  json["max_seq_length"] = options.sequences.max_seq_length;
  if (options.sequences.stride != 0) json["stride"] = options.sequences.stride;
  if (!options.sequences.records.columns.is_empty())
    json["columns"] = to_json(options.sequences.records.columns);
  if (!reference.empty()) json["reference"] = reference;
}

Json cache_json(const CacheLabel& cache) {
  Json json = {{"kv_cache_dtype", name_of(cache.type)},
               {"scales", cache.scales_source},
               {"bytes_per_token", cache.bytes_per_token}};
  if (cache.fp8_attention) json["fp8_attention"] = true;
  return json;
}

/// json, with a single variant's numbers beside the run's own.
Json flattened(Json json, bool is_single) {
  if (!is_single) return json;
  Json variant = json.at("variants").at(0);
  json.erase("variants");
  variant.erase("name");
  json.update(variant);
  return json;
}

Json likelihood_json(const CacheLabel& cache, const Likelihood& result) {
  Json json = cache_json(cache);
  json["num_tokens"] = result.num_tokens;
  for (const auto& [key, value] : numbers_of(result))
    if (value) json[key] = *value;
  if (result.kl_mean) add_verdict(damage_of(result), json);
  return json;
}

Json positions_json(const std::vector<PositionScores>& positions, bool has_reference) {
  Json list = Json::array();
  for (const PositionScores& bucket : positions) {
    Json entry = {{"first", bucket.first},
                  {"last", bucket.last},
                  {"num_tokens", bucket.num_tokens},
                  {"nll", bucket.nll},
                  {"nll_stderr", bucket.nll_stderr}};
    if (has_reference) {
      entry["reference_nll"] = bucket.reference_nll;
      entry["reference_nll_stderr"] = bucket.reference_nll_stderr;
      entry["kl_mean"] = bucket.kl_mean;
      entry["kl_stderr"] = bucket.kl_stderr;
    }
    list.push_back(std::move(entry));
  }
  return list;
}

Json layers_json(const std::vector<LayerLikelihood>& layers) {
  Json list = Json::array();
  for (const auto& [layer, result] : layers) {
    Json& entry = list.emplace_back(Json{{"layer", layer}});
    for (const auto& [key, value] : layer_numbers_of(result)) entry[key] = *value;
  }
  return list;
}

/// Scores of each sequence, in order, for paired comparisons and error bars.
Json sequences_json(const std::vector<Likelihood>& sequences) {
  Json list = Json::array();
  for (const Likelihood& one : sequences) {
    Json& entry = list.emplace_back(Json{{"num_tokens", one.num_tokens}, {"nll", one.nll}});
    if (one.kl_mean) entry["kl_mean"] = *one.kl_mean;
  }
  return list;
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

Json rows_json(const std::vector<MixedCacheRow>& rows) {
  Json list = Json::array();
  for (const MixedCacheRow& row : rows) {
    Json& json = list.emplace_back(Json{{"num_kept", row.kept.size()},
                                        {"layers", row.kept},
                                        {"kl_mean", *row.result.kl_mean},
                                        {"kl_stderr", *row.result.kl_stderr},
                                        {"kl_p99", *row.result.kl_p99},
                                        {"top1_agreement", *row.result.top1_agreement},
                                        {"perplexity", row.result.perplexity},
                                        {"bytes_per_token", row.bytes_per_token},
                                        {"is_proposed", row.is_proposed}});
    if (row.result.perplexity_increase)
      json["perplexity_increase"] = *row.result.perplexity_increase;
    add_verdict(damage_of(row.result), json);
  }
  return list;
}

/// A variant without its scores.
report::EvalVariant page_variant(const CacheLabel& cache, int64_t num_tokens, Numbers numbers) {
  numbers.emplace_back("bytes_per_token", static_cast<double>(cache.bytes_per_token));
  return {.name = cache.name,
          .kv_cache_dtype =
              std::string(name_of(cache.type)) + (cache.fp8_attention ? " and attention" : ""),
          .scales = cache.scales_source,
          .num_tokens = num_tokens,
          .measures = measures_of(numbers)};
}

report::EvalVariant page_variant(const VariantLikelihood& variant, bool has_reference) {
  const double none = std::nan("");
  report::EvalVariant page =
      page_variant(variant.cache, variant.all.num_tokens, numbers_of(variant.all));
  if (has_reference) page.verdict = verdict_text(damage_of(variant.all));
  for (const PositionScores& one : variant.positions)
    page.positions.push_back({.first = one.first,
                              .last = one.last,
                              .num_tokens = one.num_tokens,
                              .kl_mean = has_reference ? one.kl_mean : none,
                              .nll = one.nll,
                              .reference_nll = has_reference ? one.reference_nll : none,
                              .kl_stderr = one.kl_stderr,
                              .nll_stderr = one.nll_stderr,
                              .reference_nll_stderr = one.reference_nll_stderr});
  for (const auto& [layer, result] : variant.layers)
    page.layers.push_back({layer, measures_of(layer_numbers_of(result))});
  for (const Likelihood& one : variant.sequences)
    page.sequences.push_back({one.num_tokens, one.nll, one.kl_mean.value_or(none)});
  return page;
}

/// The question stands last in the prompt, after the examples.
report::AnsweredQuestion page_question(const GsmAnswer& answer, const std::string& variant) {
  const size_t examples = answer.prompt.rfind("\n\n");
  const size_t begin = examples == std::string::npos ? 0 : examples + 2;
  return {.index = answer.doc_id,
          .variant = variant,
          .question = answer.prompt.substr(begin),
          .text = answer.text,
          .target = answer.target,
          .strict = answer.strict,
          .flexible = answer.flexible,
          .is_strict_right = answer.is_strict_match,
          .is_flexible_right = answer.is_flexible_match};
}

report::EvalReport page_of(const EvalOptions& options, const std::string& task,
                           const std::string& version) {
  return {.task = task,
          .model = name_of_source(options.model),
          .dataset = name_of_source(options.dataset),
          .version = version};
}

void add_sequences(const EvalOptions& options, size_t num_sequences, const std::string& reference,
                   report::EvalReport& page) {
  page.num_sequences = static_cast<int64_t>(num_sequences);
  page.max_seq_length = options.sequences.max_seq_length;
  if (options.sequences.stride != 0) page.stride = options.sequences.stride;
  page.reference = reference;
}

}  // namespace

Json evaluation_json(const EvalOptions& options, const std::string& version,
                     const LikelihoodResult& result) {
  const bool has_reference = !result.reference.empty();
  Json json = run_json(options, has_reference ? "kl" : "perplexity", version);
  add_sequences(options, result.num_sequences, result.reference, json);
  for (const VariantLikelihood& variant : result.variants) {
    Json& entry = json["variants"].emplace_back(Json{{"name", variant.cache.name}});
    entry.update(likelihood_json(variant.cache, variant.all));
    entry["positions"] = positions_json(variant.positions, has_reference);
    if (result.has_layers) entry["layers"] = layers_json(variant.layers);
    entry["sequences"] = sequences_json(variant.sequences);
  }
  return flattened(std::move(json), result.is_single);
}

Json evaluation_json(const EvalOptions& options, const std::string& version,
                     const GsmTaskOptions& asked, const GsmTaskResult& result) {
  const GsmOptions& questions = asked.questions;
  Json json = run_json(options, "gsm8k", version);
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

Json evaluation_json(const EvalOptions& options, const std::string& version,
                     const SensitivityResult& result) {
  Json json = run_json(options, "sensitivity", version);
  add_sequences(options, result.num_sequences, result.reference, json);
  Json& sensitivity = json["sensitivity"] = cache_json(result.cache);
  sensitivity["ranking"] = Json::array();
  for (const LayerSensitivity& layer : result.ranking)
    sensitivity["ranking"].push_back(
        {{"layer", layer.layer}, {"kl_mean", layer.kl_mean}, {"kl_stderr", layer.kl_stderr}});
  sensitivity["rows"] = rows_json(result.rows);
  sensitivity["bytes_per_token_16_bit"] = result.bytes_per_token_16_bit;
  if (!result.proposal) return json;
  const KeptLayers& proposal = *result.proposal;
  sensitivity["kl_budget"] = proposal.kl_budget;
  sensitivity["kept_layers"] = proposal.layers;
  sensitivity["num_layers"] = proposal.num_layers;
  if (!proposal.skip_layers_argument.empty())
    sensitivity["skip_layers_argument"] = proposal.skip_layers_argument;
  if (!proposal.recipe.empty()) sensitivity["recipe"] = proposal.recipe;
  return json;
}

report::EvalReport evaluation_report(const EvalOptions& options, const std::string& version,
                                     const LikelihoodResult& result) {
  const bool has_reference = !result.reference.empty();
  report::EvalReport page = page_of(options, has_reference ? "kl" : "perplexity", version);
  add_sequences(options, result.num_sequences, result.reference, page);
  for (const VariantLikelihood& variant : result.variants)
    page.variants.push_back(page_variant(variant, has_reference));
  page.texts = result.texts;
  return page;
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

report::EvalReport evaluation_report(const EvalOptions& options, const std::string& version,
                                     const SensitivityResult& result) {
  report::EvalReport page = page_of(options, "sensitivity", version);
  add_sequences(options, result.num_sequences, result.reference, page);
  KeptLayers proposal;
  proposal.kl_budget = std::nan("");
  if (result.proposal) proposal = *result.proposal;
  report::Sensitivity& sensitivity = page.sensitivity.emplace(report::Sensitivity{
      .kl_budget = proposal.kl_budget,
      .bytes_per_token_16_bit = static_cast<double>(result.bytes_per_token_16_bit),
      .kv_cache_dtype = std::string(name_of(result.cache.type)),
      .skip_layers_argument = proposal.skip_layers_argument,
      .recipe = proposal.recipe});
  for (const MixedCacheRow& row : result.rows)
    sensitivity.rows.push_back({.kept_layers = row.kept,
                                .kl_mean = *row.result.kl_mean,
                                .perplexity = row.result.perplexity,
                                .bytes_per_token = static_cast<double>(row.bytes_per_token),
                                .is_proposed = row.is_proposed,
                                .kl_stderr = *row.result.kl_stderr});
  for (const LayerSensitivity& layer : result.ranking)
    sensitivity.ranking.push_back({layer.layer, layer.kl_mean, layer.kl_stderr});
  return page;
}

}  // namespace kvcal
