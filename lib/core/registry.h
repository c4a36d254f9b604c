#pragma once

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"

namespace kvcal {

/// Name in lower case, with '-', '_' and spaces equal, for comparisons.
std::string normalised_name(std::string_view name);

/// " (did you mean 'x'?)" for the candidate that name is near to, begins or abbreviates, or "".
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates);

/// A table of named entries. Lookup ignores case, '-' and '_'.
template <class Entry>
class Registry {
 public:
  using Row = std::pair<std::string, Entry>;

  Registry(std::string what, std::initializer_list<Row> rows)
      : what_(std::move(what)), rows_(rows) {}

  const Entry* find(std::string_view name) const {
    for (const Row& row : rows_)
      if (normalised_name(row.first) == normalised_name(name)) return &row.second;
    return nullptr;
  }
  /// Entry of a name. Throws Error with the kind of entry, the nearest name and all names.
  const Entry& at(std::string_view name) const {
    if (const Entry* entry = find(name)) return *entry;
    std::string all;
    for (const std::string& known : names()) all += (all.empty() ? "" : ", ") + known;
    fail("unknown ", what_, " '", name, "'", did_you_mean(name, names()), "; known are ", all);
  }
  /// The name as the table spells it. Throws Error as at() does.
  const std::string& name_of(std::string_view name) const {
    at(name);
    return std::find_if(
               rows_.begin(), rows_.end(),
               [&](const Row& row) { return normalised_name(row.first) == normalised_name(name); })
        ->first;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const Row& row : rows_) result.push_back(row.first);
    return result;
  }
  const std::vector<Row>& rows() const { return rows_; }

 private:
  std::string what_;
  std::vector<Row> rows_;
};

/// A text file that was compiled into the program (embed_table of cmake/layers.cmake).
struct EmbeddedText {
  std::string_view name;  ///< of the file, without its folder
  std::string_view text;

  /// The name without its extension.
  std::string_view stem() const { return name.substr(0, name.rfind('.')); }
};

}  // namespace kvcal
