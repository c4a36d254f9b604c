#include "eval_likelihood.h"

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "commands.h"
#include "eval_report.h"
#include "eval_texts.h"
#include "kvcal_version.h"
#include "progress.h"
#include "table.h"

namespace kvcal {
namespace {

Gates gates_of(const EvalOptions& options) {
  Gates gates{.max_kl = options.max_kl, .max_perplexity_increase = {}, .min_top1 = {}};
  if (!options.max_perplexity_increase.empty())
    in_context("--max-perplexity-increase", [&] {
      gates.max_perplexity_increase = parse_fraction(options.max_perplexity_increase);
    });
  if (!options.min_top1.empty())
    in_context("--min-top1", [&] { gates.min_top1 = parse_part(options.min_top1); });
  return gates;
}

/// What the model made of each sequence, in order: paired comparisons and error bars need it.
Json sequences_json(const std::vector<SequenceScores>& sequences, size_t model) {
  Json list = Json::array();
  for (const SequenceScores& scores : sequences) {
    if (scores.positions.empty()) continue;
    const Likelihood result = summarize(std::span(&scores, 1), model);
    Json entry = {{"num_tokens", result.num_tokens}, {"nll", result.nll}};
    if (result.kl_mean) entry["kl_mean"] = *result.kl_mean;
    list.push_back(std::move(entry));
  }
  return list;
}

Json positions_json(const std::vector<SequenceScores>& sequences, size_t model) {
  const bool has_reference = std::ranges::any_of(
      sequences, [](const SequenceScores& scores) { return !scores.reference_nll.empty(); });
  Json list = Json::array();
  for (const PositionScores& bucket : by_position(sequences, model)) {
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

/// KL when only one layer's cache is quantized, for each that attends.
Json layers_json(Scorer& scorer, size_t model, const EvalVariant& variant,
                 const std::vector<ScoredSequence>& sequences, Diagnostics& diagnostics) {
  Json list = Json::array();
  if (!is_fp8(variant.dtype)) return list;
  if (!scorer.can_score_layers(model)) {
    diagnostics.warn("no KL layer by layer of " + variant.name +
                     ", which the reference would have to be but for its unquantized cache");
    return list;
  }
  const std::vector<int64_t> layers = quantized_layers(variant);
  const std::vector<SequenceScores> scores =
      score_layers(scorer, sequences, model, layers, diagnostics);
  for (size_t i = 0; i < layers.size(); ++i) {
    const Likelihood result = summarize(scores, i);
    list.push_back({{"layer", layers[i]},
                    {"kl_mean", *result.kl_mean},
                    {"kl_p99", *result.kl_p99},
                    {"kl_max", *result.kl_max},
                    {"top1_agreement", *result.top1_agreement},
                    {"perplexity", result.perplexity}});
  }
  return list;
}

void print_one(const EvalVariant& variant, const Likelihood& result, const std::string& reference) {
  std::printf("%s cache, %lld tokens: perplexity %.4f (NLL %.6f)\n",
              std::string(name_of(variant.dtype)).c_str(),
              static_cast<long long>(result.num_tokens), result.perplexity, result.nll);
  if (!result.kl_mean) return;
  std::printf(
      "KL from %s: mean %.6f (standard error %.6f), p99 %.6f, largest %.6f nats; same top token "
      "%.2f %%\n",
      reference.c_str(), *result.kl_mean, *result.kl_stderr, *result.kl_p99, *result.kl_max,
      100.0 * *result.top1_agreement);
  std::printf("perplexity of %s: %.4f, so this is %+.3f %%\n", reference.c_str(),
              *result.reference_perplexity, 100.0 * *result.perplexity_increase);
}

void print_several(const EvalVariants& variants, const std::vector<Likelihood>& results) {
  const bool has_kl = results[0].kl_mean.has_value();
  std::vector<std::string> heading{"variant", "cache", "scales", "perplexity"};
  if (has_kl)
    for (const char* name : {"change", "mean KL", "p99 KL", "largest KL", "same top"})
      heading.emplace_back(name);
  Table table(heading);
  for (size_t i = 0; i < results.size(); ++i) {
    const EvalVariant& variant = variants.variants()[i];
    const Likelihood& result = results[i];
    std::vector<std::string> row{variant.name, std::string(name_of(variant.dtype)),
                                 variant.scales_source, fixed("%.4f", result.perplexity)};
    if (has_kl)
      for (const std::string& cell :
           {fixed("%+.3f %%", 100.0 * *result.perplexity_increase), fixed("%.6f", *result.kl_mean),
            fixed("%.6f", *result.kl_p99), fixed("%.6f", *result.kl_max),
            fixed("%.2f %%", 100.0 * *result.top1_agreement)})
        row.push_back(cell);
    table.add(std::move(row));
  }
  std::printf("%lld tokens%s\n", static_cast<long long>(results[0].num_tokens),
              has_kl ? (", KL from " + variants.reference_name()).c_str() : "");
  if (has_kl)
    std::printf("perplexity of %s: %.4f\n", variants.reference_name().c_str(),
                *results[0].reference_perplexity);
  std::fflush(stdout);
  table.print(std::cout);
}

void print_layers(const Json& variant, bool is_single) {
  const Json& layers = variant.at("layers");
  if (layers.empty()) return;
  std::printf("%sKL with only one layer's cache quantized:\n",
              is_single ? "" : (variant.at("name").get<std::string>() + ": ").c_str());
  std::fflush(stdout);
  Table table({"layer", "mean KL", "p99 KL", "largest KL", "same top"});
  for (const Json& layer : layers)
    table.add({layer.at("layer").dump(), fixed("%.6f", layer.at("kl_mean").get<double>()),
               fixed("%.6f", layer.at("kl_p99").get<double>()),
               fixed("%.6f", layer.at("kl_max").get<double>()),
               fixed("%.2f %%", 100.0 * layer.at("top1_agreement").get<double>())});
  table.print(std::cout);
}

}  // namespace

Json printed_json(Json json, const EvalVariants& variants) {
  if (!variants.is_single()) return json;
  Json variant = json.at("variants").at(0);
  json.erase("variants");
  variant.erase("name");
  json.update(variant);
  return json;
}

std::vector<int64_t> quantized_layers(const EvalVariant& variant) {
  std::vector<int64_t> layers;
  for (const int64_t layer : variant.model->config.attention_layers())
    if (!variant.scales[static_cast<size_t>(layer)].ignored) layers.push_back(layer);
  return layers;
}

std::vector<ScoredSequence> read_sequences(const EvalOptions& options, EvalVariants& variants,
                                           Diagnostics& diagnostics) {
  const LoadedModel& model = variants.model();
  std::vector<ScoredSequence> sequences =
      read_sequences(options.dataset, model.model_dir.path(), model.config.vocab_size,
                     options.sequences, diagnostics);
  const auto tokens = [](const ScoredSequence& sequence) { return std::ssize(sequence.ids); };
  if (std::ranges::none_of(sequences, [&](const auto& one) { return tokens(one) > 1; }))
    fail(options.dataset, ": no token to score: a sequence needs two or more");
  const int64_t most = model.config.max_position_embeddings;
  const auto longer =
      std::ranges::count_if(sequences, [&](const auto& one) { return tokens(one) - 1 > most; });
  if (longer > 0)
    diagnostics.warn(std::to_string(longer) + " sequences are longer than the " +
                     std::to_string(most) +
                     " positions the model was made for; cut them with "
                     "--max-seq-length");
  return sequences;
}

namespace {

/// score(sequence) for each, told as progress in tokens.
template <class Score>
std::vector<SequenceScores> score_each(const std::vector<ScoredSequence>& sequences,
                                       const char* what, Diagnostics& diagnostics,
                                       const Score& score) {
  int64_t done = 0, total = 0;
  for (const ScoredSequence& sequence : sequences) total += std::ssize(sequence.ids);
  std::vector<SequenceScores> scores;
  for (const ScoredSequence& sequence : sequences) {
    scores.push_back(score(sequence));
    done += std::ssize(sequence.ids);
    diagnostics.progress(what, done, total, "tokens");
  }
  return scores;
}

}  // namespace

std::vector<SequenceScores> score_all(Scorer& scorer, const std::vector<ScoredSequence>& sequences,
                                      Diagnostics& diagnostics) {
  return score_each(sequences, "eval", diagnostics, [&](const ScoredSequence& sequence) {
    return scorer.score(sequence.ids, sequence.first_scored);
  });
}

std::vector<SequenceScores> score_layers(Scorer& scorer,
                                         const std::vector<ScoredSequence>& sequences, size_t model,
                                         const std::vector<int64_t>& layers,
                                         Diagnostics& diagnostics) {
  return score_each(
      sequences, "eval, layer by layer", diagnostics, [&](const ScoredSequence& sequence) {
        return scorer.score_layers(sequence.ids, sequence.first_scored, model, layers);
      });
}

Json likelihood_json(const EvalVariant& variant, const Likelihood& result) {
  Json json = {{"kv_cache_dtype", name_of(variant.dtype)},
               {"scales", variant.scales_source},
               {"num_tokens", result.num_tokens},
               {"nll", result.nll},
               {"perplexity", result.perplexity}};
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

Json run_json(const EvalOptions& options, const EvalVariants& variants, size_t num_sequences) {
  Json json = {
      {"task", options.task},           {"version", KVCAL_VERSION},
      {"model", options.model},         {"dataset", options.dataset},
      {"num_sequences", num_sequences}, {"max_seq_length", options.sequences.max_seq_length}};
  if (options.sequences.stride != 0) json["stride"] = options.sequences.stride;
  if (variants.reference()) json["reference"] = variants.reference_name();
  return json;
}

void run_likelihood(const EvalOptions& options) {
  const bool has_kl = options.task == "kl";
  const Gates gates = gates_of(options);
  TerminalDiagnostics diagnostics;
  EvalVariants variants(options, has_kl);
  if (options.per_layer && std::ranges::none_of(variants.variants(), [](const auto& variant) {
        return is_fp8(variant.dtype);
      }))
    fail("--per-layer needs an FP8 cache; there is none");
  const std::vector<ScoredSequence> sequences = read_sequences(options, variants, diagnostics);
  Scorer scorer = variants.make_scorer(options);
  const std::vector<SequenceScores> scores = score_all(scorer, sequences, diagnostics);
  Json json = run_json(options, variants, sequences.size());
  std::vector<Likelihood> results;
  for (size_t i = 0; i < variants.variants().size(); ++i) {
    const EvalVariant& variant = variants.variants()[i];
    results.push_back(summarize(scores, i));
    Json entry = {{"name", variant.name}};
    entry.update(likelihood_json(variant, results[i]));
    entry["positions"] = positions_json(scores, i);
    if (options.per_layer)
      entry["layers"] = layers_json(scorer, i, variant, sequences, diagnostics);
    entry["sequences"] = sequences_json(scores, i);
    json["variants"].push_back(std::move(entry));
  }
  if (options.json) {
    std::cout << dump_json(printed_json(json, variants));
  } else if (variants.is_single()) {
    print_one(variants.variants()[0], results[0], has_kl ? variants.reference_name() : "");
  } else {
    print_several(variants, results);
  }
  if (!options.json && options.per_layer)
    for (const Json& variant : json.at("variants")) print_layers(variant, variants.is_single());
  std::cout.flush();
  // Behind the numbers, which no error of a drawing may take away.
  if (has_kl && !options.report.page.empty())
    json["texts"] = texts_json(variants, sequences, options.num_texts, diagnostics);
  write_eval_report(json, options.report);
  std::vector<std::vector<std::string>> missed;
  for (const auto& result : results) missed.push_back(missed_gates(result, gates));
  variants.throw_if_missed(missed);
}

}  // namespace kvcal
