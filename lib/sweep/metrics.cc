#include "sweep/metrics.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/join.h"
#include "core/registry.h"

namespace kvcal {

std::span<const Metric> all_metrics() {
  static const std::array<Metric, 12> kMetrics{{{"perplexity"},
                                                {"nll"},
                                                {"kl_mean"},
                                                {"kl_stderr"},
                                                {"kl_p99"},
                                                {"kl_max"},
                                                {"top1_agreement", false},
                                                {"perplexity_increase"},
                                                {"exact_match_strict", false},
                                                {"exact_match_flexible", false},
                                                {"bytes_per_token"},
                                                {"weight_bytes"}}};
  return kMetrics;
}

const Metric& metric(std::string_view name) {
  const auto metrics = all_metrics();
  const auto found = std::ranges::find(metrics, name, &Metric::name);
  if (found != metrics.end()) return *found;
  std::vector<std::string> names;
  for (const Metric& one : metrics) names.push_back(one.name);
  fail("unknown metric '", name, "'", did_you_mean(name, names), "; known are ", join(names, ", "));
}

}  // namespace kvcal
