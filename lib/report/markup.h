#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

/// Numbers as people read them: some significant digits, "0.02405"; "–" for NaN.
std::string number_text(double value, int significant = 4);
inline std::string number_text(float value) {
  return number_text(static_cast<double>(value));
}
/// A fraction in per cent, "0.12 %"; "0" for none, "–" for NaN.
std::string share_text(double fraction);
/// One number, or the least and the largest: "0.01 – 0.02"; "–" for none.
std::string range_text(const std::vector<float>& values);
/// A length or place in a drawing, rounded to a tenth.
std::string coordinate(double value);

/// A character a value, eight levels in even ratios between the least and the largest that are
/// positive, or around them where they are nearer than a factor of 2; a blank for what is not
/// positive. Blocks, or plain characters without has_unicode.
std::string sparkline(const std::vector<double>& values, bool has_unicode);

/// The least and the largest that are positive; both NaN for none.
std::pair<double, double> positive_range(const std::vector<double>& values);

}  // namespace kvcal::report
