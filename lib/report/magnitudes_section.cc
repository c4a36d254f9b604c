#include <algorithm>
#include <cmath>

#include "report/checkpoint_charts.h"
#include "report/checkpoint_sections.h"
#include "report/fp8_range.h"
#include "report/numbers.h"

namespace kvcal::report {
namespace {

bool has_histograms(const CheckpointReport& report) {
  return std::ranges::any_of(report.layers, [](const CacheLayer& layer) {
    return layer.k.histogram || layer.v.histogram;
  });
}

/// Shares of one tensor, as words; with a scale a head those of the finest and the coarsest.
struct ShareTexts {
  std::string to_zero = "–", subnormal = "–";
};

ShareTexts share_texts(const CacheTensor& tensor, fp8::Format format) {
  if (!tensor.histogram || tensor.scales.empty()) return {};
  const auto [least, largest] = std::ranges::minmax(tensor.scales);
  const RangeShares fine =
      shares_of(*tensor.histogram, fp8_range(static_cast<double>(least), format));
  const RangeShares coarse =
      shares_of(*tensor.histogram, fp8_range(static_cast<double>(largest), format));
  const auto both = [](double a, double b) {
    return share_text(a) == share_text(b) ? share_text(a) : share_text(a) + " – " + share_text(b);
  };
  return {both(fine.to_zero, coarse.to_zero), both(fine.subnormal, coarse.subnormal)};
}

void add_cells(TableMarkup& table, const CheckpointReport& report, const CacheLayer& layer,
               const CacheSide& side, const MagnitudeDomain& domain) {
  const CacheTensor& tensor = layer.*side.tensor;
  const Magnitudes magnitudes = magnitudes_of(report, layer, side, "strip-");
  if (magnitudes.counts)
    table.cell(draw_strip(magnitudes, domain));
  else
    table.cell("not kept");
  const ShareTexts shares = share_texts(tensor, report.format);
  table.cell(shares.to_zero).cell(shares.subnormal);
  table.cell(share_text(tensor.saturated.value_or(std::nan(""))));
}

Markup strips_table(const CheckpointReport& report, const MagnitudeDomain& domain) {
  std::vector<Column> columns{{"layer"}};
  for (const CacheSide& side : kCacheSides) {
    columns.push_back({.title = std::string(side.name) + " magnitudes",
                       .axis = draw_strip_axis(std::string("axis-") + side.css_class, domain)});
    columns.push_back({"→ 0", "share of values that are rounded to 0, about"});
    columns.push_back({"subnormal", "share of values that get a subnormal code, about"});
    columns.push_back({"clipped", "share of values above scale × largest code"});
  }
  TableMarkup table({.id = "strips", .caption = "Magnitudes by layer", .is_sortable = true},
                    columns);
  for (const CacheLayer& layer : report.layers) {
    table.row(std::to_string(layer.layer), "layer-" + std::to_string(layer.layer));
    for (const CacheSide& side : kCacheSides) add_cells(table, report, layer, side, domain);
  }
  return table.finish();
}

Markup layer_table(const CheckpointReport& report, const CacheLayer& layer) {
  const std::string number = std::to_string(layer.layer);
  TableMarkup table({.id = "numbers-" + number, .caption = "Layer " + number},
                    {{"tensor"},
                     {"scale"},
                     {"limit", "scale × largest code"},
                     {"amax"},
                     {"clipped"},
                     {"rounded to 0"},
                     {"subnormal"},
                     {"values seen"}});
  for (const CacheSide& side : kCacheSides) {
    const CacheTensor& tensor = layer.*side.tensor;
    const ShareTexts shares = share_texts(tensor, report.format);
    table.row(side.name).cell(range_text(tensor.scales));
    table.cell(number_text(limit_of(tensor, report.format)));
    table.cell(number_text(static_cast<double>(tensor.amax.value_or(std::nanf("")))));
    table.cell(share_text(tensor.saturated.value_or(std::nan(""))));
    table.cell(shares.to_zero).cell(shares.subnormal);
    table.cell(tensor.histogram ? std::to_string(tensor.histogram->total()) : "–");
  }
  return table.finish();
}

}  // namespace

Section magnitudes_section(const CheckpointReport& report) {
  Section section{"magnitudes", "Magnitudes against FP8's range"};
  if (!has_histograms(report)) {
    section.body.append(words("No histogram of K or V was kept."));
    return section;
  }
  section.body.append(words(
      "How often K and V had which magnitude, all heads of a layer together, between the ends "
      "of what FP8 can say with the layer's scale. Heights are shares of an octave, the "
      "largest full; less than a thousandth may lie left of what is drawn. Shares of subnormal "
      "and rounded values take magnitudes to be even inside half an octave."));
  section.body.append(legend_list("range-", range_legend()));
  section.body.append(strips_table(report, common_domain(report)));
  return section;
}

Section layers_section(const CheckpointReport& report) {
  Section section{"layers", "Layer by layer"};
  const MagnitudeDomain domain = common_domain(report);
  if (report.layers.empty()) section.body.append(words("No layer has a KV cache."));
  if (has_histograms(report)) section.body.append(magnitude_axes(domain));
  for (const CacheLayer& layer : report.layers) {
    Markup content;
    for (const CacheSide& side : kCacheSides) {
      const Magnitudes magnitudes = magnitudes_of(report, layer, side, "large-");
      if (magnitudes.counts) content.append(svg(draw_magnitudes(magnitudes, domain)));
    }
    Markup body;
    if (!content.empty()) body.open("div", {{"class", "pair"}}).append(content).close("div");
    body.append(layer_table(report, layer));
    section.body.open("details",
                      {{"id", "layer-" + std::to_string(layer.layer)}, {"class", "layer"}});
    section.body.open("summary").text("Layer " + std::to_string(layer.layer));
    section.body.element("span", {{"class", "note"}},
                         " K " + range_text(layer.k.scales) + ", V " + range_text(layer.v.scales));
    section.body.close("summary").append(body).close("details");
  }
  return section;
}

}  // namespace kvcal::report
