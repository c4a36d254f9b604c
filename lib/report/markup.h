#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace kvcal::report {

/// text as it may stand between tags and in quoted attributes, whoever wrote it: & < > " ' become
/// references, control characters visible pictures, what is no UTF-8 and what turns the direction
/// of writing U+FFFD. Cut after max_characters.
std::string escaped(std::string_view text, size_t max_characters = 2000);

struct Attribute {
  std::string_view name;
  std::string value;
};
using Attributes = std::initializer_list<Attribute>;

/// HTML or SVG in the making. Tags and names of attributes are ours; all else is escaped, so what a
/// checkpoint says cannot become markup.
class Markup {
 public:
  Markup& open(std::string_view name, Attributes attributes = {});
  Markup& close(std::string_view name);
  /// A tag without content, closed at once: of SVG, or a void one of HTML.
  Markup& leaf(std::string_view name, Attributes attributes = {});
  Markup& element(std::string_view name, Attributes attributes, std::string_view text);
  Markup& element(std::string_view name, std::string_view text) { return element(name, {}, text); }
  Markup& text(std::string_view text);
  Markup& append(const Markup& part);
  /// Appends text as it is: our own assets only.
  Markup& verbatim(std::string_view ours);

  const std::string& str() const { return out_; }
  bool empty() const { return out_.empty(); }

 private:
  void tag(std::string_view name, Attributes attributes, std::string_view end);
  std::string out_;
};

}  // namespace kvcal::report
