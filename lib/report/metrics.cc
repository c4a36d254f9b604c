#include "report/metrics.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "report/axis.h"
#include "report/markup.h"

namespace kvcal::report {
namespace {

std::string plain_text(double value) {
  return number_text(value, 5);
}
std::string signed_share_text(double value) {
  return (value > 0.0 ? "+" : "") + share_text(value);
}
std::string seconds_text(double value) {
  return number_text(value, 4) + " s";
}

constexpr Metric kMetrics[] = {
    {"perplexity", "perplexity", "of all tokens that were scored", plain_text},
    {"reference_perplexity", "reference", "perplexity of the reference", plain_text, false},
    {"perplexity_increase", "against reference",
     "how much larger the perplexity is than the reference's", signed_share_text},
    {"nll", "NLL", "mean negative log likelihood, nats", plain_text},
    {"kl_mean", "mean KL",
     "mean divergence of the next token's distribution from the reference's, nats", plain_text,
     true, "kl_stderr"},
    {"kl_stderr", "± mean KL", "standard error of the mean KL, nats", plain_text, false},
    {"kl_p99", "p99 KL", "99 of 100 tokens have less, nats", plain_text},
    {"kl_max", "largest KL", "of any token, nats", plain_text},
    {"top1_agreement", "same top token",
     "share of tokens whose likeliest next token is the reference's", share_text, true, "", false},
    {"exact_match_strict", "exact match, strict",
     "answers found by the filter strict-match that are right", share_text, true,
     "exact_match_strict_stderr", false},
    {"exact_match_strict_stderr", "± strict", "its standard error", share_text, false},
    {"exact_match_flexible", "exact match, flexible",
     "answers found by the filter flexible-extract that are right", share_text, true,
     "exact_match_flexible_stderr", false},
    {"exact_match_flexible_stderr", "± flexible", "its standard error", share_text, false},
    {"bytes_per_token", "cache of one token", "K and V of all layers", byte_text},
    {"weight_bytes", "weights", "all tensors of the checkpoint", byte_text},
    {"seconds", "time", "that this one took", seconds_text},
};

}  // namespace

std::span<const Metric> all_metrics() {
  return kMetrics;
}

const Metric& find_metric(std::string_view key) {
  for (const Metric& metric : kMetrics)
    if (metric.key == key) return metric;
  fail("'", key, "' is no metric, expected one of ", join(kMetrics, ", ", &Metric::key));
}

std::string Metric::text_with_error(const Metrics& values) const {
  const double value = values.at(key), error = values.error_of(key);
  if (!(error > 0.0)) return text(value);
  const bool is_share = text == share_text;
  return is_share ? with_error(100 * value, 100 * error) + " %" : with_error(value, error);
}

bool Metric::are_tied(const Metrics& a, const Metrics& b) const {
  const auto error_in = [&](const Metrics& values) {
    const double found = values.error_of(key);
    return std::isnan(found) ? 0.0 : found;
  };
  return std::abs(a.at(key) - b.at(key)) <= 2 * std::hypot(error_in(a), error_in(b));
}

std::string named_with_ties(const std::string& name, int64_t count) {
  return count > 1 ? name + " and " + std::to_string(count - 1) + " that tie with it" : name;
}

void Metrics::set(std::string_view key, std::optional<double> value) {
  if (value) values_[find_metric(key).key] = *value;
}

double Metrics::at(std::string_view key) const {
  const auto found = values_.find(find_metric(key).key);
  return found == values_.end() ? std::nan("") : found->second;
}

double Metrics::error_of(std::string_view key) const {
  const std::string_view error = find_metric(key).error;
  return error.empty() ? std::nan("") : at(error);
}

std::vector<const Metric*> known_metrics(std::span<const Metrics> all) {
  std::vector<const Metric*> known;
  for (const Metric& metric : kMetrics)
    if (metric.is_column && std::ranges::any_of(all, [&](const Metrics& values) {
          return std::isfinite(values.at(metric.key));
        }))
      known.push_back(&metric);
  return known;
}

void add_columns(std::vector<Column>& columns, const std::vector<const Metric*>& metrics) {
  for (const Metric* metric : metrics) columns.push_back({metric->title, metric->hint});
}

void add_cells(TableMarkup& table, const Metrics& values,
               const std::vector<const Metric*>& metrics) {
  for (const Metric* metric : metrics) {
    const double value = values.at(metric->key);
    if (std::isfinite(value))
      table.cell(metric->text_with_error(values), value);
    else
      table.cell("–");
  }
}

}  // namespace kvcal::report
