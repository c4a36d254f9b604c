#include "run/evaluation_text.h"

#include <algorithm>
#include <functional>
#include <span>
#include <sstream>

#include "core/number_text.h"
#include "core/text_table.h"

namespace kvcal {
namespace {

std::string cache_text(const CacheLabel& cache) {
  return std::string(name_of(cache.type)) + (cache.fp8_attention ? "+attention" : "");
}

/// "99.25 %"
std::string exact_percent(double fraction) {
  return fixed("%.2f %%", 100.0 * fraction);
}

/// "fine", or "noticeable (measure more text)".
std::string verdict_words(const Likelihood& result) {
  const DamageVerdict verdict = judge(damage_of(result));
  return std::string(words_of(verdict.damage)) +
         (verdict.needs_more_text ? " (measure more text)" : "");
}

void put_one(const CacheLabel& cache, const Likelihood& result, const std::string& reference,
             std::ostream& out) {
  if (result.kl_mean) out << "verdict: " << verdict_text(damage_of(result)) << '\n';
  out << cache_text(cache) << " cache, " << result.num_tokens << " tokens: perplexity "
      << fixed("%.4f", result.perplexity) << " (NLL " << fixed("%.6f", result.nll) << ")\n";
  if (!result.kl_mean) return;
  out << "KL from " << reference << ": mean " << fixed("%.6f", *result.kl_mean)
      << " (standard error " << fixed("%.6f", *result.kl_stderr) << "), p99 "
      << fixed("%.6f", *result.kl_p99) << ", largest " << fixed("%.6f", *result.kl_max)
      << " nats; same top token " << exact_percent(*result.top1_agreement) << '\n'
      << "perplexity of " << reference << ": " << fixed("%.4f", *result.reference_perplexity)
      << ", so this is " << fixed("%+.3f %%", 100.0 * *result.perplexity_increase) << '\n';
}

void put_several(const LikelihoodResult& result, std::ostream& out) {
  const Likelihood& first = result.variants[0].all;
  const bool has_kl = first.kl_mean.has_value();
  std::vector<std::string> heading{"variant", "cache", "scales", "bytes a token", "perplexity"};
  if (has_kl) {
    heading.insert(heading.begin() + 1, "verdict");
    heading.insert(heading.end(), {"change", "mean KL", "p99 KL", "largest KL", "same top"});
  }
  TextTable table(heading);
  for (const VariantLikelihood& variant : result.variants) {
    const Likelihood& all = variant.all;
    std::vector<std::string> row{
        variant.cache.name, cache_text(variant.cache), variant.cache.scales_source,
        std::to_string(variant.cache.bytes_per_token), fixed("%.4f", all.perplexity)};
    if (has_kl) {
      row.insert(row.begin() + 1, verdict_words(all));
      row.insert(row.end(), {fixed("%+.3f %%", 100.0 * *all.perplexity_increase),
                             fixed("%.6f", *all.kl_mean), fixed("%.6f", *all.kl_p99),
                             fixed("%.6f", *all.kl_max), exact_percent(*all.top1_agreement)});
    }
    table.add(std::move(row));
  }
  out << first.num_tokens << " tokens" << (has_kl ? ", KL from " + result.reference : "") << '\n';
  if (has_kl)
    out << "perplexity of " << result.reference << ": "
        << fixed("%.4f", *first.reference_perplexity) << '\n';
  out << table.text();
}

/// Of a list too long to print, only so many of the layers that lose most.
size_t num_listed(size_t num_layers, size_t most_rows) {
  constexpr size_t kWorstLayers = 10;
  return num_layers <= most_rows ? num_layers : std::min(kWorstLayers, most_rows);
}

/// " (the worst 10 of 80 layers; --verbose lists all):"
std::string listed_text(size_t num_layers, size_t most_rows) {
  const size_t listed = num_listed(num_layers, most_rows);
  if (listed == num_layers) return ":\n";
  return " (the worst " + std::to_string(listed) + " of " + std::to_string(num_layers) +
         " layers; --verbose lists all):\n";
}

void put_layers(const VariantLikelihood& variant, bool is_single, size_t most_rows,
                std::ostream& out) {
  if (variant.layers.empty()) return;
  out << (is_single ? "" : variant.cache.name + ": ") << "KL with only one layer's cache quantized"
      << listed_text(variant.layers.size(), most_rows);
  std::vector<LayerLikelihood> layers = variant.layers;
  if (layers.size() > most_rows) {
    std::ranges::stable_sort(layers, std::greater{},
                             [](const LayerLikelihood& one) { return *one.result.kl_mean; });
    layers.resize(num_listed(layers.size(), most_rows));
  }
  TextTable table({"layer", "mean KL", "p99 KL", "largest KL", "same top"});
  for (const auto& [layer, result] : layers)
    table.add({std::to_string(layer), fixed("%.6f", *result.kl_mean), fixed("%.6f", *result.kl_p99),
               fixed("%.6f", *result.kl_max), exact_percent(*result.top1_agreement)});
  out << table.text();
}

std::string score_text(const GsmScore& score) {
  const std::string mean = exact_percent(score.exact_match);
  return score.stderr_of_mean ? mean + fixed(" ± %.2f", 100.0 * *score.stderr_of_mean) : mean;
}

void put_proposal(const KeptLayers& proposal, std::ostream& out) {
  const std::string budget = fixed("%g", proposal.kl_budget);
  if (proposal.layers.empty())
    out << "every layer may be FP8: the mean KL is within " << budget << '\n';
  else if (proposal.layers.size() == proposal.num_layers)
    out << "no FP8 cache is within " << budget << ": every layer would keep 16 bits\n";
  else
    out << "to stay within " << budget << " keep " << proposal.layers.size() << " of "
        << proposal.num_layers << " layers in 16 bits: " << range_text(proposal.layers)
        << "\nvLLM: " << proposal.skip_layers_argument << '\n';
}

}  // namespace

std::string evaluation_text(const LikelihoodResult& result, size_t most_rows) {
  std::ostringstream out;
  if (result.is_single)
    put_one(result.variants[0].cache, result.variants[0].all, result.reference, out);
  else
    put_several(result, out);
  for (const VariantLikelihood& variant : result.variants)
    put_layers(variant, result.is_single, most_rows, out);
  return out.str();
}

std::string evaluation_text(const GsmTaskResult& result) {
  std::ostringstream out;
  TextTable table({"variant", "cache", "scales", "strict-match", "flexible-extract", "tokens/s"});
  for (const VariantAnswers& variant : result.variants)
    table.add({variant.cache.name, cache_text(variant.cache), variant.cache.scales_source,
               score_text(variant.result.strict), score_text(variant.result.flexible),
               fixed("%.1f", to_json(variant.result).at("tokens_per_second").get<double>())});
  const GsmResult& first = result.variants[0].result;
  out << first.answers.size() << " questions, " << first.num_fewshot << " examples each\n";
  out << table.text();
  return out.str();
}

std::string evaluation_text(const SensitivityResult& result, size_t most_rows) {
  std::ostringstream out;
  const size_t num_layers = result.ranking.size();  // in order of KL, the largest first
  out << cache_text(result.cache) << " cache, mean KL with only one layer quantized"
      << listed_text(num_layers, most_rows);
  TextTable ranking({"layer", "mean KL"});
  const std::span ranked = std::span(result.ranking).first(num_listed(num_layers, most_rows));
  for (const LayerSensitivity& layer : ranked)
    ranking.add({std::to_string(layer.layer), fixed("%.6f", layer.kl_mean)});
  out << ranking.text();
  out << "\nthe worst layers in 16 bits, all others FP8:\n";
  TextTable rows({"kept", "mean KL", "perplexity", "same top", "bytes a token", "verdict", ""});
  for (const MixedCacheRow& row : result.rows)
    rows.add({std::to_string(row.kept.size()), fixed("%.6f", *row.result.kl_mean),
              fixed("%.4f", row.result.perplexity), exact_percent(*row.result.top1_agreement),
              std::to_string(row.bytes_per_token),
              std::string(words_of(judge(damage_of(row.result)).damage)),
              row.is_proposed ? "proposed" : ""});
  out << rows.text();
  if (result.proposal) put_proposal(*result.proposal, out);
  return out.str();
}

}  // namespace kvcal
