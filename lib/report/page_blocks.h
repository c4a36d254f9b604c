#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/page.h"

/// Blocks from which pages are put together.
namespace kvcal::report {

/// A paragraph.
Markup words(std::string_view text);

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
