#include <algorithm>

#include "run/evaluation.h"

namespace kvcal {
namespace {

Json run_json(const EvalOptions& options, const std::string& task, const std::string& version) {
  return {
      {"task", task}, {"version", version}, {"model", options.model}, {"dataset", options.dataset}};
}

void add_sequences(const EvalOptions& options, size_t num_sequences, const std::string& reference,
                   Json& json) {
  json["num_sequences"] = num_sequences;
  json["max_seq_length"] = options.sequences.max_seq_length;
  if (options.sequences.stride != 0) json["stride"] = options.sequences.stride;
  if (!reference.empty()) json["reference"] = reference;
}

Json cache_json(const CacheLabel& cache) {
  return {{"kv_cache_dtype", name_of(cache.dtype)}, {"scales", cache.scales_source}};
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
  json.update(
      {{"num_tokens", result.num_tokens}, {"nll", result.nll}, {"perplexity", result.perplexity}});
  if (!result.kl_mean) return json;
  json["kl_mean"] = *result.kl_mean;
  json["kl_stderr"] = *result.kl_stderr;
  json["kl_p99"] = *result.kl_p99;
  json["kl_max"] = *result.kl_max;
  json["top1_agreement"] = *result.top1_agreement;
  json["reference_perplexity"] = *result.reference_perplexity;
  json["perplexity_increase"] = *result.perplexity_increase;
  return json;
}

Json positions_json(const std::vector<PositionScores>& positions, bool has_reference) {
  Json list = Json::array();
  for (const PositionScores& bucket : positions) {
    Json entry = {{"first", bucket.first},
                  {"last", bucket.last},
                  {"num_tokens", bucket.num_tokens},
                  {"nll", bucket.nll}};
    if (has_reference) {
      entry["reference_nll"] = bucket.reference_nll;
      entry["kl_mean"] = bucket.kl_mean;
    }
    list.push_back(std::move(entry));
  }
  return list;
}

Json layers_json(const std::vector<LayerLikelihood>& layers) {
  Json list = Json::array();
  for (const auto& [layer, result] : layers)
    list.push_back({{"layer", layer},
                    {"kl_mean", *result.kl_mean},
                    {"kl_p99", *result.kl_p99},
                    {"kl_max", *result.kl_max},
                    {"top1_agreement", *result.top1_agreement},
                    {"perplexity", result.perplexity}});
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
  for (const MixedCacheRow& row : rows)
    list.push_back({{"num_kept", row.kept.size()},
                    {"layers", row.kept},
                    {"kl_mean", *row.result.kl_mean},
                    {"kl_p99", *row.result.kl_p99},
                    {"top1_agreement", *row.result.top1_agreement},
                    {"perplexity", row.result.perplexity},
                    {"bytes_per_token", row.bytes_per_token},
                    {"is_proposed", row.is_proposed}});
  return list;
}

}  // namespace

Json report_json(const EvalOptions& options, const std::string& version,
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
  if (!result.texts.is_null()) json["texts"] = result.texts;
  return json;
}

Json evaluation_json(const EvalOptions& options, const std::string& version,
                     const LikelihoodResult& result) {
  return flattened(report_json(options, version, result), result.is_single);
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
    sensitivity["ranking"].push_back({{"layer", layer.layer}, {"kl_mean", layer.kl_mean}});
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

}  // namespace kvcal
