#include "report/page.h"

#include <charconv>
#include <cstdint>

#include "core/hash.h"
#include "report/assets.h"

namespace kvcal::report {
namespace {

/// `<svg role="img">` around the content.
Markup titled_svg(const Drawing& drawing, const Markup& content) {
  const std::string title_id = drawing.id + "-t", description_id = drawing.id + "-d";
  const std::string width = coordinate(drawing.width), height = coordinate(drawing.height);
  Markup out;
  out.open("svg", {{"id", drawing.id},
                   {"class", drawing.css_class},
                   {"role", "img"},
                   {"aria-labelledby", title_id + " " + description_id},
                   {"width", width},
                   {"height", height},
                   {"viewBox", "0 0 " + width + " " + height}});
  out.element("title", {{"id", title_id}}, drawing.title);
  out.element("desc", {{"id", description_id}}, drawing.description);
  return out.append(content).close("svg");
}

/// By Column::Kind.
constexpr const char* kKindNames[] = {"number", "word", "choice"};

struct Pattern {
  std::string_view id;
  int size;
  std::string_view path;
};
constexpr Pattern kPatterns[] = {
    {"p-zero", 4, "M-1 1l2-2M0 4l4-4M3 5l2-2"},
    {"p-sub", 8, "M-2 2l4-4M0 8l8-8M6 10l4-4"},
    {"p-over", 5, "M0 0l5 5M0 5l5-5"},
    {"p-bar", 4, "M0 1h4"},
};

std::string style() {
  return std::string(kDrawingCss).append(kReportCss);
}

std::string policy() {
  return "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; style-src "
         "'sha256-" +
         policy_hash(style()) + "'; script-src 'sha256-" + policy_hash(kReportJs) + "'";
}

Markup head(const Page& page) {
  Markup out;
  out.open("head").leaf("meta", {{"charset", "utf-8"}});
  out.leaf("meta", {{"http-equiv", "Content-Security-Policy"}, {"content", policy()}});
  out.leaf("meta", {{"name", "viewport"}, {"content", "width=device-width, initial-scale=1"}});
  out.leaf("meta", {{"name", "color-scheme"}, {"content", "light dark"}});
  out.element("title", page.title);
  // A page without an icon makes browsers ask the server for one.
  out.leaf("link", {{"rel", "icon"}, {"href", "data:,"}});
  return out.open("style").verbatim(style()).close("style").close("head");
}

}  // namespace

Drawing drawing_of(const std::string& id, const std::string& title, const std::string& description,
                   double width, double height, const std::string& css_class) {
  return {.id = id,
          .title = title,
          .description = description,
          .width = width,
          .height = height,
          .css_class = css_class};
}

Markup svg(const Drawing& drawing) {
  return titled_svg(drawing, Markup(drawing.content).append(drawing.pane));
}

Markup framed(const Drawing& drawing) {
  if (drawing.pane.empty()) return svg(drawing);
  const std::string width = coordinate(drawing.pane_width), height = coordinate(drawing.height);
  Markup out;
  out.open("div", {{"class", "framed"}}).append(titled_svg(drawing, drawing.content));
  // A share of the frame, so that both parts have one scale.
  out.open("svg", {{"class", "pane"},
                   {"aria-hidden", "true"},
                   {"width", coordinate(100.0 * drawing.pane_width / drawing.width) + "%"},
                   {"viewBox", "0 0 " + width + " " + height}});
  out.leaf("rect", {{"class", "paper"}, {"width", width}, {"height", height}});
  return out.append(drawing.pane).close("svg").close("div");
}

void draw_label(Markup& content, const Label& label) {
  content.element("text",
                  {{"x", coordinate(label.x)},
                   {"y", coordinate(label.y)},
                   {"class", std::string(label.css_class)},
                   {"text-anchor", std::string(label.anchor)}},
                  label.text);
}

std::string move_to(double x, double y) {
  return "M" + coordinate(x) + " " + coordinate(y);
}

void draw_path(Markup& content, const std::string& css_class, const std::string& outline) {
  content.leaf("path", {{"class", css_class}, {"d", outline}});
}

void draw_level(Markup& content, const std::string& css_class, double left, double right,
                double y) {
  draw_path(content, css_class, move_to(left, y) + "H" + coordinate(right));
}

TableMarkup::TableMarkup(const Style& style, const std::vector<Column>& columns) : style_(style) {
  out_.open(
      "div",
      {{"class", "scroll"}, {"role", "region"}, {"tabindex", "0"}, {"aria-label", style.caption}});
  out_.open("table", {{"id", style.id},
                      {"class", style.has_text ? "words" : "numbers"},
                      {"data-sortable", style.is_sortable ? "yes" : "no"}});
  out_.element("caption", style.caption);
  out_.open("thead").open("tr");
  for (const Column& column : columns) {
    const std::string kind = kKindNames[static_cast<size_t>(column.kind)];
    if (column.hint.empty())
      out_.open("th", {{"scope", "col"}, {"data-column", kind}});
    else
      out_.open("th", {{"scope", "col"}, {"data-column", kind}, {"title", column.hint}});
    out_.text(column.title).append(column.axis);
  }
  out_.close("thead").open("tbody");
}

TableMarkup& TableMarkup::row(std::string_view heading) {
  out_.verbatim("\n<tr><th scope=\"row\">").text(heading);
  return *this;
}

TableMarkup& TableMarkup::layer_row(int64_t layer) {
  const std::string number = std::to_string(layer);
  out_.verbatim("\n<tr><th scope=\"row\">").element("a", {{"href", "#layer-" + number}}, number);
  return *this;
}

TableMarkup& TableMarkup::keyed_row(std::string_view heading, const std::string& key) {
  out_.verbatim("\n").open("tr", {{"data-key", key}}).open("th", {{"scope", "row"}}).text(heading);
  return *this;
}

TableMarkup& TableMarkup::cell(std::string_view text) {
  out_.verbatim("<td>").text(text);
  return *this;
}

TableMarkup& TableMarkup::word(std::string_view text) {
  out_.verbatim("<td class=\"word\">").text(text);
  return *this;
}

TableMarkup& TableMarkup::cell(std::string_view text, double value) {
  out_.open("td", {{"data-value", number_text(value, 9)}}).text(text);
  return *this;
}

TableMarkup& TableMarkup::cell(const Markup& content) {
  out_.verbatim("<td>").append(content);
  return *this;
}

Markup TableMarkup::finish() {
  return out_.close("table").close("div");
}

Markup folded(std::string_view summary, const Markup& content) {
  Markup out;
  out.open("details");
  return out.element("summary", summary).append(content).close("details");
}

Markup figure(const Figure& figure) {
  Markup out;
  out.open("figure").element("figcaption", figure.caption);
  out.open("div", {{"class", "scroll drawings"},
                   {"role", "region"},
                   {"tabindex", "0"},
                   {"aria-label", figure.label}});
  out.append(figure.drawings).close("div");
  return out.append(figure.numbers).close("figure");
}

Markup figure(const Drawing& drawing, Figure figure) {
  if (drawing.content.empty()) return {};
  if (figure.label.empty()) figure.label = drawing.title;
  figure.drawings = framed(drawing).append(figure.drawings);
  return report::figure(figure);
}

Markup drawing_patterns() {
  Markup out;
  out.open("svg", {{"class", "patterns"},
                   {"width", "0"},
                   {"height", "0"},
                   {"aria-hidden", "true"},
                   {"focusable", "false"}});
  out.open("defs");
  for (const Pattern& pattern : kPatterns) {
    const std::string size = std::to_string(pattern.size);
    out.open("pattern", {{"id", std::string(pattern.id)},
                         {"width", size},
                         {"height", size},
                         {"patternUnits", "userSpaceOnUse"}});
    out.leaf("path", {{"d", std::string(pattern.path)}}).close("pattern");
  }
  return out.close("defs").close("svg");
}

std::string policy_hash(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string hex = sha256_hex(text);
  hex += "00";  // 32 bytes are eleven groups of three less one
  std::string base64;
  for (size_t i = 0; i < hex.size(); i += 6) {
    uint32_t bits = 0;
    std::from_chars(hex.data() + i, hex.data() + i + 6, bits, 16);
    for (int shift = 18; shift >= 0; shift -= 6) base64 += kDigits[bits >> shift & 63u];
  }
  base64.back() = '=';
  return base64;
}

std::string html(const Page& page) {
  std::vector<Section> sections = page.sections;
  std::erase_if(sections, [](const Section& section) { return section.body.empty(); });
  Markup out;
  out.verbatim("<!DOCTYPE html>\n").open("html", {{"lang", "en"}}).append(head(page));
  out.open("body").append(drawing_patterns());
  out.element("a", {{"class", "skip"}, {"href", "#content"}}, "Skip to the content");
  out.open("header").element("h1", page.title).append(page.heading);
  out.open("nav", {{"aria-label", "Sections"}}).open("ul");
  for (const Section& section : sections)
    out.open("li").element("a", {{"href", "#" + section.id}}, section.title).close("li");
  out.close("ul").close("nav").close("header");
  out.open("main", {{"id", "content"}});
  for (const Section& section : sections) {
    out.open("section", {{"id", section.id}, {"aria-labelledby", section.id + "-h"}});
    out.element("h2", {{"id", section.id + "-h"}}, section.title);
    out.append(section.body).close("section");
  }
  out.close("main").element("footer", page.footer);
  out.open("script").verbatim(kReportJs).close("script").close("body").close("html");
  return out.verbatim("\n").str();
}

Markup verdicts_list(const std::vector<std::string>& sentences) {
  Markup list;
  if (sentences.empty()) return list;
  list.open("ul", {{"class", "verdicts"}});
  for (const std::string& sentence : sentences) list.element("li", sentence);
  list.close("ul");
  return list;
}

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
