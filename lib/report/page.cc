#include "report/page.h"

#include <charconv>
#include <cstdint>

#include "core/sha256.h"
#include "report/assets.h"
#include "report/figure.h"

namespace kvcal::report {
namespace {

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
  Markup out;
  out.verbatim("<!DOCTYPE html>\n").open("html", {{"lang", "en"}}).append(head(page));
  out.open("body").append(drawing_patterns());
  out.element("a", {{"class", "skip"}, {"href", "#content"}}, "Skip to the content");
  out.open("header").element("h1", page.title).append(page.heading);
  out.open("nav", {{"aria-label", "Sections"}}).open("ul");
  for (const Section& section : page.sections)
    out.open("li").element("a", {{"href", "#" + section.id}}, section.title).close("li");
  out.close("ul").close("nav").close("header");
  out.open("main", {{"id", "content"}});
  for (const Section& section : page.sections) {
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
