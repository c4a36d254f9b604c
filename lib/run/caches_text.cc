#include "run/caches_text.h"

#include <utility>

#include "core/number_text.h"
#include "core/text_table.h"

namespace kvcal {
namespace {

using Row = std::vector<std::string>;

/// Shares of a million are told apart.
std::string share_text(double share) {
  return share == 0 ? "0" : fixed("%.4f %%", 100 * share);
}

const Row kLosses = {"K error", "V error", "K clipped", "V clipped", "K to zero", "V to zero"};

void add_losses(const std::vector<LayerCacheLoss>& layers, Row& row) {
  const SideShares k = shares_of(layers, &LayerCacheLoss::k);
  const SideShares v = shares_of(layers, &LayerCacheLoss::v);
  for (const double share :
       {k.relative_error, v.relative_error, k.clipped, v.clipped, k.to_zero, v.to_zero})
    row.push_back(share_text(share));
}

TextTable table_of(Row heading) {
  heading.insert(heading.end(), kLosses.begin(), kLosses.end());
  return TextTable(std::move(heading));
}

}  // namespace

std::string caches_text(const std::vector<MeasuredCache>& caches) {
  TextTable table(
      {"cache", "bytes a token", "mean KL", "standard error", "perplexity", "same top", "verdict"});
  for (const MeasuredCache& cache : caches)
    table.add({cache.label.name, std::to_string(cache.label.bytes_per_token),
               fixed("%.6f", cache.result.kl_mean.value()),
               fixed("%.6f", cache.result.kl_stderr.value()),
               fixed("%+.3f %%", 100 * cache.result.perplexity_increase.value()),
               fixed("%.2f %%", 100 * cache.result.top1_agreement.value()),
               std::string(words_of(judge(damage_of(cache.result)).damage))});
  return table.text();
}

std::string advice_text(const std::vector<AdvisedCache>& caches, size_t most_rows) {
  TextTable ranking = table_of({"cache", "bytes a token"});
  TextTable by_layer = table_of({"cache", "layer"});
  size_t num_rows = 0;
  for (const AdvisedCache& cache : caches) {
    Row row{cache.label.name, std::to_string(cache.label.bytes_per_token)};
    add_losses(cache.layers, row);
    ranking.add(std::move(row));
    for (const LayerCacheLoss& layer : cache.layers) {
      Row of_layer{cache.label.name, std::to_string(layer.layer)};
      add_losses({layer}, of_layer);
      by_layer.add(std::move(of_layer));
      ++num_rows;
    }
  }
  const std::string text =
      "caches by what K and V are expected to lose, the least first:\n" + ranking.text();
  if (num_rows > most_rows)
    return text + "(--verbose lists each layer of each cache: " + std::to_string(num_rows) +
           " rows)\n";
  return text + "by layer:\n" + by_layer.text();
}

}  // namespace kvcal
