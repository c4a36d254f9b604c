#include <algorithm>

#include "core/number_text.h"
#include "report/checkpoint_sections.h"
#include "report/figure.h"
#include "report/numbers.h"

namespace kvcal::report {
namespace {

/// A bar of a share of the whole.
Markup bar(const std::string& id, const std::string& title, double share) {
  constexpr double kWidth = 240;
  Drawing drawing{.id = id,
                  .title = title,
                  .description = share_text(share) + " of all bytes",
                  .width = kWidth,
                  .height = 14,
                  .css_class = "bar"};
  drawing.content.leaf("rect", {{"class", "frame"},
                                {"x", "0.5"},
                                {"y", "0.5"},
                                {"width", coordinate(kWidth - 1)},
                                {"height", "13"}});
  drawing.content.leaf(
      "rect",
      {{"class", "fill"}, {"width", coordinate(std::max(1.0, kWidth * share))}, {"height", "14"}});
  return svg(drawing);
}

}  // namespace

Section sizes_section(const CheckpointReport& report) {
  Section section{"sizes", "Sizes"};
  const auto total = static_cast<double>(std::max<uint64_t>(1, report.bytes));
  TableMarkup table({.id = "sizes-table", .caption = "Tensors by kind", .is_sortable = true},
                    {{"kind"}, {"tensors"}, {"size"}, {"share"}, {"of all bytes"}});
  for (size_t i = 0; i < report.tensors.size(); ++i) {
    const TensorKind& kind = report.tensors[i];
    const auto bytes = static_cast<double>(kind.bytes);
    table.row(kind.kind).cell(std::to_string(kind.count));
    table.cell(byte_text(bytes), bytes).cell(share_text(bytes / total));
    table.cell(bar("size-" + std::to_string(i), kind.kind, std::min(1.0, bytes / total)));
  }
  section.body.append(table.finish());
  section.body.append(
      pairs_table("cache-table", "KV cache of one token",
                  {{"16 bits", byte_text(static_cast<double>(report.cache_bytes_16_bit))},
                   {"FP8", byte_text(static_cast<double>(report.cache_bytes_fp8))}}));
  return section;
}

}  // namespace kvcal::report
