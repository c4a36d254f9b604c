#include <algorithm>

#include "run/continuations.h"
#include "run/evaluation.h"
#include "run/sequence_scores.h"

namespace kvcal {
namespace {

/// Likelihood with only one layer's cache quantized, for each attention layer.
std::vector<LayerLikelihood> scored_layers(Scorer& scorer, size_t model, const EvalVariant& variant,
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
  std::vector<LayerLikelihood> results;
  for (size_t i = 0; i < layers.size(); ++i) results.push_back({layers[i], summarize(scores, i)});
  return results;
}

VariantLikelihood summarized(const EvalVariant& variant, const std::vector<SequenceScores>& scores,
                             size_t model) {
  VariantLikelihood result{.cache = variant.label,
                           .all = summarize(scores, model),
                           .positions = by_position(scores, model),
                           .layers = {},
                           .sequences = {}};
  for (const SequenceScores& one : scores)
    if (!one.positions.empty()) result.sequences.push_back(summarize(std::span(&one, 1), model));
  return result;
}

}  // namespace

LikelihoodResult evaluate_likelihood(
    const EvalOptions& options, const LikelihoodOptions& asked, Diagnostics& diagnostics,
    const std::function<void(const LikelihoodResult&)>& on_scores) {
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
  LikelihoodResult result{.num_sequences = sequences.size(),
                          .reference = variants.reference_name(),
                          .is_single = variants.is_single(),
                          .has_layers = asked.per_layer,
                          .variants = {},
                          .missed = {}};
  for (size_t i = 0; i < variants.variants().size(); ++i) {
    const EvalVariant& variant = variants.variants()[i];
    VariantLikelihood& one = result.variants.emplace_back(summarized(variant, scores, i));
    if (asked.per_layer) one.layers = scored_layers(scorer, i, variant, sequences, diagnostics);
    add_missed(missed_gates(one.all, asked.gates), variants, i, result.missed);
  }
  if (on_scores) on_scores(result);
  if (asked.num_texts > 0)
    result.texts = continuations_of(variants, sequences, asked.num_texts, diagnostics);
  return result;
}

}  // namespace kvcal
