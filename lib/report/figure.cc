#include "report/figure.h"

#include "report/numbers.h"

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

}  // namespace

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

namespace {

const char* kind_name(Column::Kind kind) {
  switch (kind) {
    case Column::Kind::kWord:
      return "word";
    case Column::Kind::kChoice:
      return "choice";
    default:
      return "number";
  }
}

}  // namespace

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
    const std::string kind = kind_name(column.kind);
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

TableMarkup& TableMarkup::row(std::string_view heading, std::string_view target) {
  out_.verbatim("\n<tr><th scope=\"row\">");
  out_.element("a", {{"href", "#" + std::string(target)}}, heading);
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

}  // namespace kvcal::report
