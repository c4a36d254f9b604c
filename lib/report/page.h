// A page and its plots are one drawing. Charts are values (SeriesChart, ScatterChart,
// SpreadChart, HeatMap) that become Drawings. A page puts them into sections; plot_svg writes
// them to files and inserts the variables of drawing.css, which only browsers support.
#pragma once

#include <string>
#include <string_view>
#include <utility>
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

/// A drawing that has no content yet.
Drawing drawing_of(const std::string& id, const std::string& title, const std::string& description,
                   double width, double height, const std::string& css_class);
/// The drawing of a chart.
template <class Chart>
Drawing chart_drawing(const Chart& chart, double height) {
  return drawing_of(chart.id, chart.title, chart.description, chart.width, height, "chart");
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
  /// A row of a layer, whose heading leads to the layer's part of the page.
  TableMarkup& layer_row(int64_t layer);
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
  std::string label = {};  ///< of the region
  std::string caption = {};
  Markup drawings = {};
  Markup numbers = {};
};
Markup figure(const Figure& figure);
/// The same of a drawing, above figure.drawings and with its title as the label where there is
/// none. Nothing where the drawing has no content.
Markup figure(const Drawing& drawing, Figure figure);

struct Section {
  std::string id, title;
  Markup body = {};
};

/// A page of sections: one file that asks for nothing else, with our style and script inside and a
/// policy that forbids all others.
struct Page {
  std::string title;
  Markup heading = {};                 ///< below the title
  std::vector<Section> sections = {};  ///< those without a body are left out
  std::string footer;
};
std::string html(const Page& page);

/// Hatchings that drawings name; once in a page or file.
Markup drawing_patterns();

/// Base64 of the SHA-256 of text, as a policy names a script.
std::string policy_hash(std::string_view text);

Markup words(std::string_view text);
/// Sentences that a page begins with; nothing for none.
Markup verdicts_list(const std::vector<std::string>& sentences);

/// Names and their values; strings may come from strangers.
using Pairs = std::vector<std::pair<std::string, std::string>>;
/// A table of two columns; nothing for no pairs.
Markup pairs_table(const std::string& id, const std::string& caption, const Pairs& pairs);

/// The few numbers that a page begins with.
class Tiles {
 public:
  void add(std::string_view name, const std::string& value, const std::string& note);
  /// Nothing where none was added.
  Markup finish() const;

 private:
  Markup out_;
};

}  // namespace kvcal::report
