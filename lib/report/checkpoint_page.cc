#include <algorithm>
#include <cmath>
#include <limits>

#include "core/number_text.h"
#include "report/checkpoint_charts.h"
#include "report/checkpoint_sections.h"
#include "report/figure.h"
#include "report/fp8_range.h"
#include "report/numbers.h"

namespace kvcal::report {
namespace {

/// The layer in which a number is largest, of those that have it.
struct Worst {
  double value = std::numeric_limits<double>::quiet_NaN();
  std::string where;
};

template <class Number>
Worst worst_of(const CheckpointReport& report, const Number& number) {
  Worst worst;
  for (const CacheLayer& layer : report.layers)
    for (const CacheSide& side : kCacheSides) {
      const double value = number(layer.*side.tensor);
      if (std::isnan(value) || value <= worst.value) continue;
      worst = {value, std::string(side.name) + " of layer " + std::to_string(layer.layer)};
    }
  return worst;
}

/// The share of values that the coarsest scale rounds to 0; NaN where it is not known.
double zero_share(const CacheTensor& tensor, fp8::Format format) {
  if (tensor.scales.empty() || !tensor.histogram) return std::nan("");
  return shares_of(*tensor.histogram,
                   fp8_range(static_cast<double>(std::ranges::max(tensor.scales)), format))
      .to_zero;
}

/// How many times the largest head's amax is the smallest's.
double head_spread(const CacheTensor& tensor) {
  if (tensor.head_amax.size() < 2) return std::nan("");
  const auto [least, largest] = std::ranges::minmax(tensor.head_amax);
  return least > 0.0f ? static_cast<double>(largest) / static_cast<double>(least) : std::nan("");
}

void add_worst(Tiles& tiles, std::string_view name, const Worst& worst, const std::string& text) {
  const bool is_known = !std::isnan(worst.value), is_none = worst.value == 0.0;
  tiles.add(name, is_known ? text : "not known",
            is_known ? (is_none ? "in every layer" : worst.where) : "needs the manifest");
}

std::string scales_text(const CheckpointReport& report) {
  const auto has_scales = [](const CacheLayer& layer) { return !layer.k.scales.empty(); };
  const auto count = std::ranges::count_if(report.layers, has_scales);
  return std::to_string(count) + " of " + std::to_string(report.layers.size()) + " layers";
}

/// Whether a scale or a statistic of the cache, or a weight in FP8, is known.
bool is_calibrated(const CheckpointReport& report) {
  const auto is_known = [](const CacheTensor& tensor) {
    return !tensor.scales.empty() || tensor.amax || tensor.histogram;
  };
  return !report.linears.empty() || report.stop ||
         std::ranges::any_of(report.layers, [&](const CacheLayer& layer) {
           return is_known(layer.k) || is_known(layer.v);
         });
}

std::string granularity(const CheckpointReport& report) {
  for (const CacheLayer& layer : report.layers)
    if (!layer.k.scales.empty()) return layer.k.scales.size() == 1 ? "one a tensor" : "one a head";
  return "none: engines take 1.0";
}

}  // namespace

Section summary_section(const CheckpointReport& report) {
  Tiles tiles;
  tiles.add("FP8 scales of the cache", scales_text(report),
            report.scale_format + ", " + granularity(report));
  tiles.add("Cache of one token", byte_text(static_cast<double>(report.cache_bytes_fp8)),
            byte_text(static_cast<double>(report.cache_bytes_16_bit)) + " in 16 bits");
  const Worst clipped = worst_of(
      report, [](const CacheTensor& tensor) { return tensor.saturated.value_or(std::nan("")); });
  add_worst(tiles, "Most clipped", clipped, share_text(clipped.value));
  const Worst zero = worst_of(
      report, [&](const CacheTensor& tensor) { return zero_share(tensor, report.format); });
  add_worst(tiles, "Most rounded to 0", zero, share_text(zero.value));
  const Worst spread = worst_of(report, head_spread);
  if (!std::isnan(spread.value))
    add_worst(tiles, "Heads furthest apart", spread, number_text(spread.value) + " ×");
  tiles.add("Weights", byte_text(static_cast<double>(report.bytes)),
            number_text(static_cast<double>(report.parameters) / 1e6) + " M parameters" +
                (report.linears.empty()
                     ? std::string()
                     : ", " + std::to_string(report.linears.size()) + " modules in FP8"));
  Markup body = verdicts_list(report.verdicts);
  body.append(tiles.finish());
  if (!report.gaps.empty()) {
    body.open("div", {{"class", "gaps"}, {"role", "note"}}).element("h3", "What is missing");
    body.open("ul");
    for (const std::string& gap : report.gaps) body.element("li", gap);
    body.close("ul").close("div");
  }
  return {"summary", "At a glance", body};
}

Section about_section(const CheckpointReport& report) {
  Markup body;
  body.append(pairs_table("origin-table", "What the scales were made of", report.origin));
  body.append(pairs_table("architecture-table", "Architecture as resolved", report.architecture));
  return {"facts", "Model and calibration", body};
}

std::string checkpoint_page(const CheckpointReport& report) {
  Page page{.title = report.name + ": FP8 KV cache" +
                     (report.dataset.empty() ? std::string() : ", calibrated on " + report.dataset),
            .footer = "Written by kvcal " + report.version + " from " + report.path};
  page.heading.element("p", {{"class", "lead"}},
                       report.model_type + " · scales: " + report.scale_format + " · " +
                           std::string(fp8::name_of(report.format)) + ", largest code " +
                           number_text(static_cast<double>(fp8::max_value(report.format))));
  page.sections = {summary_section(report)};
  // Of a model that was never calibrated there is nothing to say of its calibration.
  if (is_calibrated(report))
    for (const auto& section :
         {damage_section, scales_section, heads_section, magnitudes_section, convergence_section,
          positions_section, layers_section, weights_section})
      page.sections.push_back(section(report));
  for (const auto& section : {engines_section, sizes_section, about_section})
    page.sections.push_back(section(report));
  return html(page);
}

}  // namespace kvcal::report
