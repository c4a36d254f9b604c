#include "run/caches_text.h"

#include "core/number_text.h"
#include "core/text_table.h"

namespace kvcal {

std::string caches_text(const std::vector<MeasuredCache>& caches) {
  TextTable table(
      {"cache", "bytes a token", "mean KL", "standard error", "perplexity", "same top"});
  for (const MeasuredCache& cache : caches)
    table.add({cache.label.name, std::to_string(cache.label.bytes_per_token),
               fixed("%.6f", cache.result.kl_mean.value()),
               fixed("%.6f", cache.result.kl_stderr.value()),
               fixed("%+.3f %%", 100 * cache.result.perplexity_increase.value()),
               fixed("%.2f %%", 100 * cache.result.top1_agreement.value())});
  return table.text();
}

}  // namespace kvcal
