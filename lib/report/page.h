#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/markup.h"

namespace kvcal::report {

struct Section {
  std::string id, title;
  Markup body = {};
};

/// A page of sections: one file that asks for nothing else, with our style and script inside and a
/// policy that forbids all others.
struct Page {
  std::string title;
  Markup heading = {};  ///< below the title
  std::vector<Section> sections = {};
  std::string footer;
};
std::string html(const Page& page);

/// Hatchings that drawings name; once in a page or file.
Markup drawing_patterns();

/// Base64 of the SHA-256 of text, as a policy names a script.
std::string policy_hash(std::string_view text);

/// A paragraph.
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
