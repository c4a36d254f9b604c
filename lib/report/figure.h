#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/markup.h"

namespace kvcal::report {

/// A drawing: its content in pixels of its own, and the words for who does not see it.
struct Drawing {
  std::string id;  ///< unique in the page
  std::string title, description;
  double width = 0, height = 0;
  std::string css_class = {};
  Markup content = {};
  /// Its left part that stays where the rest scrolls sideways: the numbers of a vertical axis.
  Markup pane = {};
  double pane_width = 0;
};

/// The drawing of a chart, still without content.
template <class Chart>
Drawing chart_drawing(const Chart& chart, double height) {
  return {.id = chart.id,
          .title = chart.title,
          .description = chart.description,
          .width = chart.width,
          .height = height,
          .css_class = "chart"};
}

/// `<svg role="img">` of the drawing's size, named by its title and description; its pane is part
/// of it.
Markup svg(const Drawing& drawing);
/// The same for a page: as wide as its region, not narrower than its text is readable, and with a
/// pane that stays while the rest scrolls.
Markup framed(const Drawing& drawing);

/// Text at a place of a drawing. anchor: "start", "middle" or "end".
struct Label {
  double x = 0, y = 0;
  std::string text;
  std::string_view anchor = "middle";
  std::string_view css_class = "label";
};
void draw_label(Markup& content, const Label& label);

/// "M10 20.5", which begins a line of a path at a place.
std::string move_to(double x, double y);
/// A path; outline: its attribute `d`.
void draw_path(Markup& content, const std::string& css_class, const std::string& outline);
/// A horizontal line.
void draw_level(Markup& content, const std::string& css_class, double left, double right, double y);

/// Columns of a table; those of numbers are set to the right.
struct Column {
  std::string title;
  std::string hint = {};  ///< what the column means, shown on hovering and read out
  Markup axis = {};       ///< of the drawings in its cells
  enum class Kind {
    kNumber,
    kWord,
    kChoice  ///< a word by which the page's script lets rows be chosen
  };
  Kind kind = Kind::kNumber;
};

/// A table with a caption. Rows are begun by their heading; end tags that HTML makes optional are
/// left out, which halves large tables.
class TableMarkup {
 public:
  struct Style {
    std::string id;
    std::string caption;
    bool is_sortable = false;
    bool has_text = false;  ///< cells are words, not numbers
  };
  TableMarkup(const Style& style, const std::vector<Column>& columns);

  TableMarkup& row(std::string_view heading);
  /// A row whose heading leads to a part of the page.
  TableMarkup& row(std::string_view heading, std::string_view target);
  /// A row that the page's script shows in drawings, whose marks have the same key.
  TableMarkup& keyed_row(std::string_view heading, const std::string& key);
  TableMarkup& cell(std::string_view text);
  /// A cell of a column of words.
  TableMarkup& word(std::string_view text);
  /// A cell that sorts by value, whatever it shows.
  TableMarkup& cell(std::string_view text, double value);
  TableMarkup& cell(const Markup& content);
  /// The table in a region of its own that scrolls.
  Markup finish();

 private:
  Style style_;
  Markup out_;
};

/// `<details>` with the content, closed until asked for.
Markup folded(std::string_view summary, const Markup& content);

/// A figure with its caption, the drawings in a scrolling region that the keyboard reaches, and the
/// numbers behind it.
struct Figure {
  std::string label;  ///< of the region
  std::string caption;
  Markup drawings;
  Markup numbers = {};
};
Markup figure(const Figure& figure);

}  // namespace kvcal::report
