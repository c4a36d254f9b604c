#include <algorithm>
#include <cmath>

#include "report/checkpoint_sections.h"
#include "report/fp8_range.h"
#include "report/magnitudes.h"
#include "report/numbers.h"

namespace kvcal::report {
namespace {

struct Side {
  const char *name, *css_class;
  CacheTensor CacheLayer::*tensor;
};
constexpr Side kSides[] = {{"K", "k", &CacheLayer::k}, {"V", "v", &CacheLayer::v}};

/// The histogram of a layer's K or V; counts is null where it was not kept.
Magnitudes magnitudes_of(const CheckpointReport& report, const CacheLayer& layer, const Side& side,
                         const std::string& prefix) {
  const CacheTensor& tensor = layer.*side.tensor;
  return {.id = prefix + side.css_class + std::to_string(layer.layer),
          .title = std::string(side.name) + " magnitudes, layer " + std::to_string(layer.layer),
          .css_class = side.css_class,
          .counts = tensor.histogram ? &*tensor.histogram : nullptr,
          .scales = tensor.scales,
          .format = report.format,
          .amax = static_cast<double>(tensor.amax.value_or(std::nanf("")))};
}

/// Of both sides of all layers, so that every strip has the same axis.
MagnitudeDomain common_domain(const CheckpointReport& report) {
  std::vector<Magnitudes> all;
  for (const CacheLayer& layer : report.layers)
    for (const Side& side : kSides)
      if (const Magnitudes one = magnitudes_of(report, layer, side, ""); one.counts)
        all.push_back(one);
  return domain_of(all);
}

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
               const Side& side, const MagnitudeDomain& domain) {
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
  for (const Side& side : kSides) {
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
    for (const Side& side : kSides) add_cells(table, report, layer, side, domain);
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
  for (const Side& side : kSides) {
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
  Section section{"magnitudes", "Magnitudes against FP8's range", {}};
  if (!has_histograms(report)) {
    section.body.append(words("No histogram of K or V was kept."));
    return section;
  }
  section.body.append(words(
      "How often K and V had which magnitude, all heads of a layer together, between the ends "
      "of what FP8 can say with the layer's scale. Heights are shares of an octave, the "
      "largest full; less than a thousandth may lie left of what is drawn. Shares of subnormal "
      "and rounded values take magnitudes to be even inside half an octave."));
  section.body.append(range_legend());
  section.body.append(strips_table(report, common_domain(report)));
  return section;
}

Section layers_section(const CheckpointReport& report) {
  Section section{"layers", "Layer by layer", {}};
  const MagnitudeDomain domain = common_domain(report);
  if (report.layers.empty()) section.body.append(words("No layer has a KV cache."));
  if (has_histograms(report)) section.body.append(magnitude_axes(domain));
  for (const CacheLayer& layer : report.layers) {
    Markup content;
    for (const Side& side : kSides) {
      const Magnitudes magnitudes = magnitudes_of(report, layer, side, "large-");
      if (magnitudes.counts) content.append(draw_magnitudes(magnitudes, domain));
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
