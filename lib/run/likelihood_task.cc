#include <algorithm>
#include <functional>
#include <memory>
#include <sstream>

#include "core/interrupt.h"
#include "core/text.h"
#include "eval/generate.h"
#include "run/evaluation.h"
#include "run/evaluation_parts.h"
#include "tokenizers/tokenizer.h"

namespace kvcal {
namespace {

/// Likelihood with only one layer's cache quantized, for each attention layer.
std::vector<report::LayerLikelihood> scored_layers(Scorer& scorer, size_t model,
                                                   const EvalVariant& variant,
                                                   const std::vector<ScoredSequence>& sequences,
                                                   Diagnostics& diagnostics) {
  if (!is_quantized(variant.label.type)) return {};
  if (!scorer.can_score_layers(model)) {
    diagnostics.warn("no KL layer by layer of " + variant.label.name +
                     ", which the reference would have to be but for its unquantized cache");
    return {};
  }
  const std::vector<int64_t> layers = variant.quantized_layers();
  const std::vector<SequenceScores> scores =
      score_layers(scorer, sequences, model, layers, diagnostics);
  std::vector<report::LayerLikelihood> results;
  for (size_t i = 0; i < layers.size(); ++i) results.push_back({layers[i], summarize(scores, i)});
  return results;
}

report::EvalVariant summarized(const EvalVariant& variant,
                               const std::vector<SequenceScores>& scores, size_t model) {
  report::EvalVariant result{.cache = variant.label,
                             .all = summarize(scores, model),
                             .positions = by_position(scores, model)};
  if (result.all.kl_mean) result.verdict = verdict_text(damage_of(result.all));
  for (const SequenceScores& one : scores)
    if (!one.positions.empty()) result.sequences.push_back(summarize(std::span(&one, 1), model));
  return result;
}

constexpr size_t kPromptTokens = 64;
constexpr int64_t kNewTokens = 100;

/// Text that each token completes.
std::vector<std::string> pieces_of(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  TextStream stream(tokenizer);
  std::vector<std::string> pieces;
  for (const TokenId id : ids) pieces.push_back(stream.push(id));
  if (!pieces.empty()) pieces.back() += stream.finish();
  return pieces;
}

report::GeneratedText text_of(const std::string& name, const Tokenizer& tokenizer,
                              const std::vector<TokenId>& ids) {
  return {.name = name, .text = tokenizer.decode(ids, true), .tokens = pieces_of(tokenizer, ids)};
}

KvCache cache_of(const EvalVariant& variant, int64_t tokens) {
  return variant.model->decoder.make_cache(variant.label.type, variant.scales, tokens);
}

report::ComparedTexts compared(const EvalVariants& variants, const Tokenizer& tokenizer,
                               std::span<const TokenId> prompt, const GenerateOptions& options) {
  const int64_t tokens = std::ssize(prompt) + options.max_new_tokens;
  const EvalVariant& reference = *variants.reference();
  report::ComparedTexts texts{.prompt = tokenizer.decode({prompt.begin(), prompt.end()}, true)};
  for (const EvalVariant& variant : variants.variants()) {
    if (variant.model != reference.model) continue;
    throw_if_interrupted();
    KvCache first = cache_of(reference, tokens), second = cache_of(variant, tokens);
    Comparison comparison = compare_caches(variant.model->decoder, first, second, prompt, options);
    texts.reference = text_of(variants.reference_name(), tokenizer, comparison.first.ids);
    report::GeneratedText& text =
        texts.variants.emplace_back(text_of(variant.label.name, tokenizer, comparison.second.ids));
    if (comparison.first_divergence >= 0) text.first_divergence = comparison.first_divergence;
    text.kl = std::move(comparison.kl);
  }
  return texts;
}

/// Greedy continuations of the first count sequences with each cache, beside the reference's text:
/// the first token that differs, and KL token by token. Only for variants that share the
/// reference's weights. Warns of a folder without a tokenizer.
std::vector<report::ComparedTexts> continuations_of(const EvalVariants& variants,
                                                    const std::vector<ScoredSequence>& sequences,
                                                    int64_t count, Diagnostics& diagnostics) {
  std::vector<report::ComparedTexts> texts;
  if (count == 0) return texts;
  const LoadedModel& model = *variants.reference()->model;
  if (model.config.max_position_embeddings <= static_cast<int64_t>(kPromptTokens)) return texts;
  std::unique_ptr<Tokenizer> tokenizer;
  try {
    tokenizer = make_tokenizer(model.model_dir.path());
  } catch (const SystemError&) {
    throw;
  } catch (const Error& error) {
    // Lists of ids need no tokenizer.
    diagnostics.warn(std::string("no texts in the report: ") + error.what());
    return texts;
  }
  const GenerateOptions options{
      .max_new_tokens = std::min(
          kNewTokens, model.config.max_position_embeddings - static_cast<int64_t>(kPromptTokens)),
      .sampling = {},
      .stop_tokens = stop_tokens_of(model.model_dir.generation_config(), model.model_dir.config())};
  const auto wanted = std::min<int64_t>(count, std::ssize(sequences));
  for (int64_t i = 0; i < wanted; ++i) {
    const std::vector<TokenId>& ids = sequences[static_cast<size_t>(i)].ids;
    const auto prompt = std::span(ids).first(std::min(kPromptTokens, ids.size()));
    report::ComparedTexts text = compared(variants, *tokenizer, prompt, options);
    if (!text.variants.empty()) texts.push_back(std::move(text));
    diagnostics.progress("texts", i + 1, wanted, "texts");
  }
  return texts;
}

Json variant_json(const CacheLabel& cache, const Likelihood& result) {
  Json json = cache_json(cache);
  json["num_tokens"] = result.num_tokens;
  for (const auto& [key, value] : report::numbers_of(result))
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

Json layers_json(const std::vector<report::LayerLikelihood>& layers) {
  Json list = Json::array();
  for (const auto& [layer, result] : layers)
    list.push_back({{"layer", layer},
                    {"kl_mean", *result.kl_mean},
                    {"kl_stderr", *result.kl_stderr},
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

void put_one(const CacheLabel& cache, const Likelihood& result, const std::string& reference,
             std::ostream& out) {
  if (result.kl_mean) out << "verdict: " << verdict_text(damage_of(result)) << '\n';
  out << cache_text(cache) << " cache, " << counted(result.num_tokens, "token") << ": perplexity "
      << fixed("%.4f", result.perplexity) << " (NLL " << fixed("%.6f", result.nll) << ")\n";
  if (!result.kl_mean) return;
  out << "KL from " << reference << ": mean " << fixed("%.6f", *result.kl_mean)
      << " (standard error " << fixed("%.6f", *result.kl_stderr) << "), p99 "
      << fixed("%.6f", *result.kl_p99) << ", largest " << fixed("%.6f", *result.kl_max)
      << " nats; same top token " << exact_percent(*result.top1_agreement) << '\n'
      << "perplexity of " << reference << ": " << fixed("%.4f", *result.reference_perplexity)
      << ", so this is " << fixed("%+.3f %%", 100.0 * *result.perplexity_increase) << '\n';
}

constexpr const char* kUnsure = "*";

/// "fine", or "noticeable*" where more text is needed to be sure.
std::string verdict_words(const Likelihood& result) {
  const DamageVerdict verdict = judge(damage_of(result));
  return std::string(words_of(verdict.damage)) + (verdict.needs_more_text ? kUnsure : "");
}

/// What a variant is called, and how good it is; is_whole: with its cache, its scales and the tail
/// of KL.
using Column = std::pair<const char*, std::string (*)(const report::EvalVariant&)>;
std::vector<Column> columns_of(bool has_kl, bool is_whole) {
  using Variant = report::EvalVariant;
  std::vector<Column> columns{{"variant", [](const Variant& one) { return one.cache.name; }}};
  const auto add = [&](bool is_wanted, const Column& column) {
    if (is_wanted) columns.push_back(column);
  };
  add(has_kl, {"verdict", [](const Variant& one) { return verdict_words(one.all); }});
  add(is_whole, {"cache", [](const Variant& one) { return cache_text(one.cache); }});
  add(is_whole, {"scales", [](const Variant& one) { return one.cache.scales_source; }});
  add(true, {"bytes a token",
             [](const Variant& one) { return std::to_string(one.cache.bytes_per_token); }});
  add(true, {"perplexity", [](const Variant& one) { return fixed("%.4f", one.all.perplexity); }});
  add(has_kl, {"change", [](const Variant& one) {
                 return fixed("%+.3f %%", 100.0 * *one.all.perplexity_increase);
               }});
  add(has_kl, {"mean KL", [](const Variant& one) { return fixed("%.6f", *one.all.kl_mean); }});
  add(has_kl && is_whole,
      {"p99 KL", [](const Variant& one) { return fixed("%.6f", *one.all.kl_p99); }});
  add(has_kl && is_whole,
      {"largest KL", [](const Variant& one) { return fixed("%.6f", *one.all.kl_max); }});
  add(has_kl,
      {"same top", [](const Variant& one) { return exact_percent(*one.all.top1_agreement); }});
  return columns;
}

void put_several(const report::EvalReport& found, bool is_whole, std::ostream& out) {
  const Likelihood& first = found.variants[0].all;
  const bool has_kl = first.kl_mean.has_value();
  const std::vector<Column> columns = columns_of(has_kl, is_whole);
  std::vector<std::string> heading;
  for (const Column& column : columns) heading.emplace_back(column.first);
  TextTable table(heading);
  bool is_unsure = false;
  for (const report::EvalVariant& variant : found.variants) {
    std::vector<std::string> row;
    for (const Column& column : columns) row.push_back(column.second(variant));
    table.add(std::move(row));
    is_unsure |= has_kl && judge(damage_of(variant.all)).needs_more_text;
  }
  out << counted(first.num_tokens, "token") << (has_kl ? ", KL from " + found.reference : "")
      << '\n';
  if (has_kl)
    out << "perplexity of " << found.reference << ": " << fixed("%.4f", *first.reference_perplexity)
        << '\n';
  out << table.text();
  if (is_unsure) out << kUnsure << " measure more text to be sure\n";
}

void put_layers(const report::EvalVariant& variant, bool is_single, size_t most_rows,
                std::ostream& out) {
  if (variant.layers.empty()) return;
  out << (is_single ? "" : variant.cache.name + ": ") << "KL with only one layer's cache quantized"
      << listed_text(variant.layers.size(), most_rows);
  std::vector<report::LayerLikelihood> layers = variant.layers;
  if (layers.size() > most_rows) {
    std::ranges::stable_sort(layers, std::greater{}, [](const report::LayerLikelihood& one) {
      return *one.result.kl_mean;
    });
    layers.resize(num_listed(layers.size(), most_rows));
  }
  TextTable table({"layer", "mean KL", "p99 KL", "largest KL", "same top"});
  for (const auto& [layer, result] : layers)
    table.add({std::to_string(layer), fixed("%.6f", *result.kl_mean), fixed("%.6f", *result.kl_p99),
               fixed("%.6f", *result.kl_max), exact_percent(*result.top1_agreement)});
  out << table.text();
}

}  // namespace

EvalResult evaluate_likelihood(const EvalOptions& options, const LikelihoodOptions& asked,
                               Diagnostics& diagnostics,
                               const std::function<void(const EvalResult&)>& on_scores) {
  EvalVariants variants(options, asked.has_reference, diagnostics);
  if (asked.gates.has_any()) check_gated(variants, options);
  const auto has_codes = [](const EvalVariant& variant) {
    return is_quantized(variant.label.type);
  };
  if (asked.per_layer && std::ranges::none_of(variants.variants(), has_codes))
    fail("--per-layer needs a quantized cache; there is none");
  const std::vector<ScoredSequence> sequences =
      read_sequences(options, variants.model(), diagnostics);
  Scorer scorer = variants.make_scorer();
  const std::vector<SequenceScores> scores = score_all(scorer, sequences, diagnostics);
  tell_warnings(variants.model().backend, diagnostics);
  EvalResult result{.report = page_of(options, asked.has_reference ? "kl" : "perplexity", variants,
                                      sequences.size())};
  for (size_t i = 0; i < variants.variants().size(); ++i) {
    const EvalVariant& variant = variants.variants()[i];
    report::EvalVariant& one = result.report.variants.emplace_back(summarized(variant, scores, i));
    if (asked.per_layer) one.layers = scored_layers(scorer, i, variant, sequences, diagnostics);
    add_missed(judged_gates(one.all, asked.gates), variants, i, result.missed);
  }
  if (on_scores) on_scores(result);
  if (asked.num_texts > 0)
    result.report.texts = continuations_of(variants, sequences, asked.num_texts, diagnostics);
  return result;
}

Json likelihood_json(const EvalOptions& options, const LikelihoodOptions& asked,
                     const report::EvalReport& found) {
  Json json = run_json(options, found);
  for (const report::EvalVariant& variant : found.variants) {
    Json& entry = json["variants"].emplace_back(Json{{"name", variant.cache.name}});
    entry.update(variant_json(variant.cache, variant.all));
    if (asked.gates.has_any()) entry["gates"] = to_json(judged_gates(variant.all, asked.gates));
    entry["positions"] = positions_json(variant.positions, asked.has_reference);
    if (asked.per_layer) entry["layers"] = layers_json(variant.layers);
    entry["sequences"] = sequences_json(variant.sequences);
  }
  return flattened(std::move(json), found.is_single);
}

std::string likelihood_text(const report::EvalReport& found, size_t most_rows, bool is_whole) {
  std::ostringstream out;
  if (found.is_single)
    put_one(found.variants[0].cache, found.variants[0].all, found.reference, out);
  else
    put_several(found, is_whole, out);
  for (const report::EvalVariant& variant : found.variants)
    put_layers(variant, found.is_single, most_rows, out);
  return out.str();
}

}  // namespace kvcal
