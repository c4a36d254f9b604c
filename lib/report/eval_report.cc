#include "report/eval_report.h"

#include "report/json_fields.h"

namespace kvcal::report {
namespace {

std::vector<int64_t> read_integers(const Json& json, std::string_view key) {
  std::vector<int64_t> numbers;
  each_value(json, key, [&](const Json& entry) {
    if (!entry.is_number_integer()) fail("found ", kind_of(entry), ", expected a whole number");
    numbers.push_back(entry.get<int64_t>());
  });
  return numbers;
}

EvalVariant read_variant(const Json& json) {
  EvalVariant variant{.name = text_or_empty(json, "name"),
                      .kv_cache_dtype = text_or_empty(json, "kv_cache_dtype"),
                      .scales = text_or_empty(json, "scales"),
                      .num_tokens = optional_int(json, "num_tokens").value_or(0),
                      .measures = Measures(json),
                      .positions = {},
                      .layers = {},
                      .sequences = {}};
  if (variant.name.empty()) variant.name = variant.kv_cache_dtype;
  each_object(json, "positions", [&](const Json& entry) {
    variant.positions.push_back({.first = required_int(entry, "first"),
                                 .last = required_int(entry, "last"),
                                 .num_tokens = optional_int(entry, "num_tokens").value_or(0),
                                 .kl_mean = number_or_nan(entry, "kl_mean"),
                                 .nll = number_or_nan(entry, "nll"),
                                 .reference_nll = number_or_nan(entry, "reference_nll")});
  });
  each_object(json, "layers", [&](const Json& entry) {
    variant.layers.push_back({.layer = required_int(entry, "layer"), .measures = Measures(entry)});
  });
  each_object(json, "sequences", [&](const Json& entry) {
    variant.sequences.push_back({.num_tokens = optional_int(entry, "num_tokens").value_or(0),
                                 .nll = number_or_nan(entry, "nll"),
                                 .kl_mean = number_or_nan(entry, "kl_mean")});
  });
  return variant;
}

GeneratedText read_text_of(const Json& json) {
  GeneratedText text{.name = text_or_empty(json, "name"),
                     .text = text_or_empty(json, "text"),
                     .tokens = {},
                     .first_divergence = optional_int(json, "first_divergence"),
                     .kl = {}};
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
      .reference = in_context("reference", [&] { return read_text_of(*reference); }),
      .variants = {}};
  each_object(json, "variants",
              [&](const Json& entry) { texts.variants.push_back(read_text_of(entry)); });
  return texts;
}

Sensitivity read_sensitivity(const Json& json) {
  Sensitivity sensitivity{.kl_budget = number_or_nan(json, "kl_budget"),
                          .bytes_per_token_16_bit = number_or_nan(json, "bytes_per_token_16_bit"),
                          .kv_cache_dtype = text_or_empty(json, "kv_cache_dtype"),
                          .skip_layers_argument = text_or_empty(json, "skip_layers_argument"),
                          .recipe = text_or_empty(json, "recipe"),
                          .rows = {},
                          .ranking = {}};
  each_object(json, "rows", [&](const Json& entry) {
    sensitivity.rows.push_back(
        {.kept_layers = read_integers(entry, "layers"),
         .kl_mean = number_or_nan(entry, "kl_mean"),
         .perplexity = number_or_nan(entry, "perplexity"),
         .bytes_per_token = number_or_nan(entry, "bytes_per_token"),
         .is_proposed = optional_bool(entry, "is_proposed").value_or(false)});
  });
  each_object(json, "ranking", [&](const Json& entry) {
    sensitivity.ranking.push_back(
        {.layer = required_int(entry, "layer"), .kl_mean = number_or_nan(entry, "kl_mean")});
  });
  return sensitivity;
}

/// The question is what stands last in the prompt, after the examples.
AnsweredQuestion read_question(const Json& json) {
  const std::string prompt = text_or_empty(json, "prompt");
  const size_t examples = prompt.rfind("\n\n");
  return {.index = required_int(json, "doc_id"),
          .variant = text_or_empty(json, "variant"),
          .question = examples == prompt.npos ? prompt : prompt.substr(examples + 2),
          .text = text_or_empty(json, "text"),
          .target = text_or_empty(json, "target"),
          .strict = text_or_empty(json, "strict"),
          .flexible = text_or_empty(json, "flexible"),
          .is_strict_right = number_or_nan(json, "exact_match_strict") > 0.0,
          .is_flexible_right = number_or_nan(json, "exact_match_flexible") > 0.0};
}

}  // namespace

EvalReport read_eval_report(const Json& result) {
  if (!result.is_object()) fail("found ", kind_of(result), ", expected an object");
  EvalReport report{.task = required_string(result, "task"),
                    .model = text_or_empty(result, "model"),
                    .dataset = text_or_empty(result, "dataset"),
                    .reference = text_or_empty(result, "reference"),
                    .version = text_or_empty(result, "version"),
                    .max_seq_length = optional_int(result, "max_seq_length"),
                    .stride = optional_int(result, "stride"),
                    .num_sequences = optional_int(result, "num_sequences"),
                    .num_questions = optional_int(result, "num_questions"),
                    .num_fewshot = optional_int(result, "num_fewshot"),
                    .variants = {},
                    .texts = {},
                    .sensitivity = {},
                    .questions = {}};
  each_object(result, "variants",
              [&](const Json& entry) { report.variants.push_back(read_variant(entry)); });
  // A result of one cache has its numbers beside what it is of.
  if (!find_field(result, "variants") && find_field(result, "kv_cache_dtype"))
    report.variants.push_back(read_variant(result));
  each_object(result, "texts",
              [&](const Json& entry) { report.texts.push_back(read_texts(entry)); });
  each_object(result, "samples",
              [&](const Json& entry) { report.questions.push_back(read_question(entry)); });
  if (const Json* sensitivity = find_field(result, "sensitivity"))
    report.sensitivity = in_context("sensitivity", [&] { return read_sensitivity(*sensitivity); });
  return report;
}

}  // namespace kvcal::report
