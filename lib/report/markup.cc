#include "report/markup.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>

#include "core/utf8.h"

namespace kvcal::report {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// Characters that HTML forbids or that make text look like other text.
bool is_hidden(char32_t point) {
  return (point >= 0x80 && point < 0xa0) || (point >= 0x202a && point <= 0x202e) ||
         (point >= 0x2066 && point <= 0x2069) || point == 0x200e || point == 0x200f ||
         (point >= 0xfdd0 && point <= 0xfdef) || (point & 0xfffeu) == 0xfffeu;
}

constexpr std::pair<char, std::string_view> kReferences[] = {
    {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};

void append_ascii(std::string& out, char c) {
  for (const auto& [plain, reference] : kReferences)
    if (c == plain) {
      out += reference;
      return;
    }
  const auto byte = static_cast<uint8_t>(c);
  if (c == '\n' || (byte >= 0x20 && byte != 0x7f)) {
    out += c;
    return;
  }
  // U+2400 + code: the control pictures; DEL has the one after them.
  out += "\xE2\x90";
  out += static_cast<char>(0x80 + (byte == 0x7f ? 0x21 : byte));
}

constexpr const char* kNone = "–";

std::string digits(double value, std::chars_format format, int precision) {
  char text[64];
  return {text, std::to_chars(text, std::end(text), value, format, precision).ptr};
}

constexpr std::string_view kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::string_view kPlain[] = {".", ":", "-", "=", "+", "*", "#", "@"};
constexpr int kLevels = 8;

/// Numbers that are nearly the same look so: the levels span a factor of 2 at least.
int level_of(double value, double least, double largest) {
  const double middle = std::sqrt(least * largest);
  const double span = std::max(2.0, largest / least);
  const double part = 0.5 + std::log(value / middle) / std::log(span);
  return std::clamp(static_cast<int>(part * kLevels), 0, kLevels - 1);
}

}  // namespace

std::string escaped(std::string_view text, size_t max_characters) {
  std::string out;
  out.reserve(text.size());
  for (size_t count = 0; !text.empty(); ++count) {
    if (count == max_characters) return out + "…";
    const size_t size = utf8::well_formed_size(text, 0);
    if (size == 1)
      append_ascii(out, text[0]);
    else
      out += size == 0 || is_hidden(utf8::decode(text, 0).code_point) ? kReplacement
                                                                      : text.substr(0, size);
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return out;
}

void Markup::tag(std::string_view name, Attributes attributes, std::string_view end) {
  out_ += '<';
  out_ += name;
  for (const Attribute& attribute : attributes) {
    out_ += ' ';
    out_ += attribute.name;
    out_ += "=\"";
    // Paths of figures are long, and ours: digits and letters, which escaping does not change.
    out_ += escaped(attribute.value, attribute.value.size());
    out_ += '"';
  }
  out_ += end;
}

Markup& Markup::open(std::string_view name, Attributes attributes) {
  tag(name, attributes, ">");
  return *this;
}

Markup& Markup::close(std::string_view name) {
  out_ += "</";
  out_ += name;
  out_ += '>';
  return *this;
}

Markup& Markup::leaf(std::string_view name, Attributes attributes) {
  tag(name, attributes, "/>");
  return *this;
}

Markup& Markup::element(std::string_view name, Attributes attributes, std::string_view text) {
  return open(name, attributes).text(text).close(name);
}

Markup& Markup::text(std::string_view text) {
  out_ += escaped(text);
  return *this;
}

Markup& Markup::append(const Markup& part) {
  out_ += part.out_;
  return *this;
}

Markup& Markup::verbatim(std::string_view ours) {
  out_ += ours;
  return *this;
}

std::string number_text(double value, int significant) {
  return std::isfinite(value) ? digits(value, std::chars_format::general, significant) : kNone;
}

std::string share_text(double fraction) {
  if (!std::isfinite(fraction)) return kNone;
  if (fraction == 0.0) return "0";
  return digits(100.0 * fraction, std::chars_format::general, 2 + (fraction > 0.0999)) + " %";
}

std::string range_text(const std::vector<float>& values) {
  if (values.empty()) return kNone;
  const auto [least, largest] = std::ranges::minmax(values);
  if (least == largest) return number_text(least);
  return number_text(least) + " – " + number_text(largest);
}

std::string coordinate(double value) {
  std::string text = digits(value, std::chars_format::fixed, 1);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

std::pair<double, double> positive_range(const std::vector<double>& values) {
  double least = std::nan(""), largest = std::nan("");
  for (const double value : values) {
    if (!(value > 0.0)) continue;
    if (!(value >= least)) least = value;
    if (!(value <= largest)) largest = value;
  }
  return {least, largest};
}

std::string sparkline(const std::vector<double>& values, bool has_unicode) {
  const auto [least, largest] = positive_range(values);
  std::string line;
  for (const double value : values) {
    const int level = value > 0.0 ? level_of(value, least, largest) : -1;
    line += level < 0 ? " " : has_unicode ? kBlocks[level] : kPlain[level];
  }
  return line;
}

}  // namespace kvcal::report
