#include "report/markup.h"

#include <cstdint>

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

void append_ascii(std::string& out, char c) {
  switch (c) {
    case '&':
      out += "&amp;";
      return;
    case '<':
      out += "&lt;";
      return;
    case '>':
      out += "&gt;";
      return;
    case '"':
      out += "&quot;";
      return;
    case '\'':
      out += "&#39;";
      return;
    case '\n':
      out += c;
      return;
    default:
      break;
  }
  const auto byte = static_cast<uint8_t>(c);
  if (byte >= 0x20 && byte != 0x7f) {
    out += c;
    return;
  }
  // U+2400 + code: the control pictures; DEL has the one after them.
  out += "\xE2\x90";
  out += static_cast<char>(0x80 + (byte == 0x7f ? 0x21 : byte));
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

}  // namespace kvcal::report
