#include "report/support/report_reader.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "quant/cache_type.h"

namespace kvcal::report {
namespace {

double number_or_nan(const Json& object, std::string_view key) {
  return optional_number(object, key).value_or(std::nan(""));
}

double number_or_zero(const Json& json, const std::string& key) {
  const double number = number_or_nan(json, key);
  return std::isfinite(number) ? number : 0.0;
}

std::string text_or_empty(const Json& object, std::string_view key) {
  return optional_string(object, key).value_or("");
}

void each_value(const Json& object, std::string_view key,
                const std::function<void(const Json& entry)>& read) {
  const Json* list = find_field(object, key);
  if (!list) return;
  if (!list->is_array()) fail_kind(key, "a list", *list);
  for (size_t i = 0; i < list->size(); ++i)
    in_context(std::string(key) + "[" + std::to_string(i) + "]", [&] { read((*list)[i]); });
}

void each_object(const Json& object, std::string_view key,
                 const std::function<void(const Json& entry)>& read) {
  each_value(object, key, [&](const Json& entry) {
    if (!entry.is_object()) fail("found ", kind_of(entry), ", expected an object");
    read(entry);
  });
}

Metrics metrics_of(const Json& json) {
  Metrics metrics;
  for (const Metric& metric : all_metrics())
    metrics.set(metric.key, number_or_nan(json, metric.key));
  return metrics;
}

std::vector<int64_t> read_integers(const Json& json, std::string_view key) {
  std::vector<int64_t> numbers;
  each_value(json, key, [&](const Json& entry) {
    if (!entry.is_number_integer()) fail("found ", kind_of(entry), ", expected a whole number");
    numbers.push_back(entry.get<int64_t>());
  });
  return numbers;
}

/// A type that is none is another's text, as of hostile results.
CacheType cache_type(const std::string& name) {
  try {
    return parse_cache_type(name);
  } catch (const Error&) {
    return KvDType::kFloat32;
  }
}

Likelihood read_likelihood(const Json& json) {
  Likelihood result;
  result.num_tokens = optional_int(json, "num_tokens").value_or(0);
  result.nll = number_or_nan(json, "nll");
  result.perplexity = number_or_nan(json, "perplexity");
  result.kl_mean = optional_number(json, "kl_mean");
  result.kl_stderr = optional_number(json, "kl_stderr");
  result.kl_p99 = optional_number(json, "kl_p99");
  result.kl_max = optional_number(json, "kl_max");
  result.top1_agreement = optional_number(json, "top1_agreement");
  result.reference_perplexity = optional_number(json, "reference_perplexity");
  result.perplexity_increase = optional_number(json, "perplexity_increase");
  return result;
}

GsmResult read_answers(const Json& json) {
  GsmResult result;
  result.strict = {number_or_nan(json, "exact_match_strict"),
                   optional_number(json, "exact_match_strict_stderr")};
  result.flexible = {number_or_nan(json, "exact_match_flexible"),
                     optional_number(json, "exact_match_flexible_stderr")};
  result.num_fewshot = optional_int(json, "num_fewshot").value_or(0);
  return result;
}

GsmAnswer read_answer(const Json& json) {
  return {.doc_id = required_int(json, "doc_id"),
          .prompt = text_or_empty(json, "prompt"),
          .text = text_or_empty(json, "text"),
          .strict = text_or_empty(json, "strict"),
          .flexible = text_or_empty(json, "flexible"),
          .target = text_or_empty(json, "target"),
          .is_strict_match = number_or_nan(json, "exact_match_strict") > 0.0,
          .is_flexible_match = number_or_nan(json, "exact_match_flexible") > 0.0};
}

EvalVariant read_variant(const Json& json) {
  const std::string type = text_or_empty(json, "kv_cache_dtype");
  EvalVariant variant{.cache = {.name = optional_string(json, "name").value_or(type),
                                .type = cache_type(type),
                                .scales_source = text_or_empty(json, "scales"),
                                .bytes_per_token = static_cast<uint64_t>(
                                    optional_int(json, "bytes_per_token").value_or(0))},
                      .all = read_likelihood(json)};
  if (find_field(json, "exact_match_strict")) variant.answers = read_answers(json);
  each_object(json, "positions", [&](const Json& entry) {
    variant.positions.push_back(
        {.first = required_int(entry, "first"),
         .last = required_int(entry, "last"),
         .num_tokens = optional_int(entry, "num_tokens").value_or(0),
         .nll = number_or_nan(entry, "nll"),
         .kl_mean = number_or_nan(entry, "kl_mean"),
         .reference_nll = number_or_nan(entry, "reference_nll"),
         .nll_stderr = number_or_zero(entry, "nll_stderr"),
         .kl_stderr = number_or_zero(entry, "kl_stderr"),
         .reference_nll_stderr = number_or_zero(entry, "reference_nll_stderr")});
  });
  each_object(json, "layers", [&](const Json& entry) {
    variant.layers.push_back({required_int(entry, "layer"), read_likelihood(entry)});
  });
  each_object(json, "sequences",
              [&](const Json& entry) { variant.sequences.push_back(read_likelihood(entry)); });
  return variant;
}

GeneratedText read_text_of(const Json& json) {
  GeneratedText text{.name = text_or_empty(json, "name"),
                     .text = text_or_empty(json, "text"),
                     .first_divergence = optional_int(json, "first_divergence")};
  if (text.first_divergence && *text.first_divergence < 0) text.first_divergence.reset();
  each_value(json, "tokens", [&](const Json& token) {
    if (!token.is_string()) fail("found ", kind_of(token), ", expected a string");
    text.tokens.push_back(token.get<std::string>());
  });
  each_value(json, "kl", [&](const Json& kl) {
    if (!kl.is_number()) fail("found ", kind_of(kl), ", expected a number");
    text.kl.push_back(kl.get<double>());
  });
  return text;
}

ComparedTexts read_texts(const Json& json) {
  const Json* reference = find_field(json, "reference");
  if (!reference || !reference->is_object()) fail_missing("reference", "an object");
  ComparedTexts texts{
      .prompt = text_or_empty(json, "prompt"),
      .reference = in_context("reference", [&] { return read_text_of(*reference); })};
  each_object(json, "variants",
              [&](const Json& entry) { texts.variants.push_back(read_text_of(entry)); });
  return texts;
}

Sensitivity read_sensitivity(const Json& json) {
  Sensitivity sensitivity{.cache = {.type = cache_type(text_or_empty(json, "kv_cache_dtype"))},
                          .bytes_per_token_16_bit = static_cast<uint64_t>(
                              optional_int(json, "bytes_per_token_16_bit").value_or(0))};
  if (const auto budget = optional_number(json, "kl_budget"))
    sensitivity.proposal =
        UnquantizedLayers{.kl_budget = *budget,
                          .skip_layers_argument = text_or_empty(json, "skip_layers_argument"),
                          .recipe = text_or_empty(json, "recipe")};
  each_object(json, "rows", [&](const Json& entry) {
    sensitivity.rows.push_back(
        {.kept = read_integers(entry, "layers"),
         .result = read_likelihood(entry),
         .bytes_per_token =
             static_cast<uint64_t>(optional_int(entry, "bytes_per_token").value_or(0)),
         .is_proposed = optional_bool(entry, "is_proposed").value_or(false)});
  });
  each_object(json, "ranking", [&](const Json& entry) {
    sensitivity.ranking.push_back({.layer = required_int(entry, "layer"),
                                   .kl_mean = number_or_nan(entry, "kl_mean"),
                                   .kl_stderr = number_or_zero(entry, "kl_stderr")});
  });
  return sensitivity;
}

bool is_measure(const std::string& key) {
  return std::ranges::any_of(all_metrics(),
                             [&](const Metric& metric) { return metric.key == key; });
}

/// Keys of a cell that name a choice.
bool is_choice(const std::string& key, const Json& value) {
  static const std::set<std::string> kOwn{"id", "status", "error", "is_pareto"};
  return (value.is_string() || value.is_number_integer() || value.is_null()) &&
         !kOwn.contains(key) && !is_measure(key);
}

std::string choice_text(const Json& cell, const std::string& key) {
  const Json* value = find_field(cell, key);
  if (!value || value->is_object() || value->is_array()) return {};
  return value->is_string() ? value->get<std::string>() : value->dump();
}

/// Dimensions in the order in which cells first have them; those that never have a value are none.
void add_dimensions(SweepReport& report, const Json& cell) {
  for (const auto& [key, value] : cell.items())
    if (is_choice(key, value) && !value.is_null() &&
        std::ranges::find(report.dimensions, key) == report.dimensions.end())
      report.dimensions.push_back(key);
}

SweepCell read_cell(const Json& json, const std::vector<std::string>& dimensions) {
  SweepCell cell{.id = required_string(json, "id"),
                 .status = required_string(json, "status"),
                 .error = text_or_empty(json, "error"),
                 .choices = {},
                 .metrics = metrics_of(json),
                 .is_pareto = optional_bool(json, "is_pareto").value_or(false)};
  for (const std::string& dimension : dimensions)
    cell.choices.push_back(choice_text(json, dimension));
  return cell;
}

}  // namespace

EvalReport read_eval_report(const Json& result) {
  if (!result.is_object()) fail("found ", kind_of(result), ", expected an object");
  EvalReport report{.task = required_string(result, "task"),
                    .model = text_or_empty(result, "model"),
                    .dataset = text_or_empty(result, "dataset"),
                    .version = text_or_empty(result, "version"),
                    .reference = text_or_empty(result, "reference"),
                    .max_seq_length = optional_int(result, "max_seq_length"),
                    .stride = optional_int(result, "stride"),
                    .num_sequences = optional_int(result, "num_sequences"),
                    .is_single = !find_field(result, "variants")};
  each_object(result, "variants",
              [&](const Json& entry) { report.variants.push_back(read_variant(entry)); });
  // A result of one cache has its numbers beside what it is of.
  if (report.is_single && find_field(result, "kv_cache_dtype"))
    report.variants.push_back(read_variant(result));
  each_object(result, "texts",
              [&](const Json& entry) { report.texts.push_back(read_texts(entry)); });
  each_object(result, "samples", [&](const Json& entry) {
    report.variants.at(0).answers.value().answers.push_back(read_answer(entry));
  });
  if (const Json* sensitivity = find_field(result, "sensitivity"))
    report.sensitivity = in_context("sensitivity", [&] { return read_sensitivity(*sensitivity); });
  return report;
}

SweepReport read_sweep_report(const Json& results) {
  if (!results.is_object()) fail("found ", kind_of(results), ", expected an object");
  SweepReport report{.name = text_or_empty(results, "name"),
                     .version = text_or_empty(results, "version"),
                     .pareto_x = {},
                     .pareto_y = {},
                     .dimensions = {},
                     .cells = {}};
  if (const Json* pareto = find_field(results, "pareto"))
    in_context("pareto", [&] {
      report.pareto_x = find_metric(required_string(*pareto, "x")).key;
      report.pareto_y = find_metric(required_string(*pareto, "y")).key;
    });
  each_object(results, "cells", [&](const Json& cell) { add_dimensions(report, cell); });
  each_object(results, "cells", [&](const Json& cell) {
    report.cells.push_back(read_cell(cell, report.dimensions));
  });
  return report;
}

}  // namespace kvcal::report
