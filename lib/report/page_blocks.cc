#include "report/page_blocks.h"

#include "report/figure.h"

namespace kvcal::report {

Markup words(std::string_view text) {
  return Markup().element("p", text);
}

Markup pairs_table(const std::string& id, const std::string& caption, const Pairs& pairs) {
  if (pairs.empty()) return {};
  TableMarkup table({.id = id, .caption = caption, .has_text = true}, {{"what"}, {"value"}});
  for (const auto& [name, value] : pairs) table.row(name).cell(value);
  return table.finish();
}

void Tiles::add(std::string_view name, const std::string& value, const std::string& note) {
  out_.open("li").element("span", {{"class", "name"}}, name);
  out_.element("strong", value).element("span", {{"class", "note"}}, note).close("li");
}

Markup Tiles::finish() const {
  if (out_.empty()) return {};
  return Markup().open("ul", {{"class", "tiles"}}).append(out_).close("ul");
}

}  // namespace kvcal::report
