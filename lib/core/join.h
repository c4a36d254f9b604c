#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace kvcal {

/// Joins the texts of a range with a separator; text_of(item) gives the text of an item.
template <class Items, class TextOf = std::identity>
std::string join(const Items& items, std::string_view separator, const TextOf& text_of = {}) {
  std::string joined;
  bool is_first = true;
  for (const auto& item : items) {
    if (!is_first) joined += separator;
    joined += std::invoke(text_of, item);
    is_first = false;
  }
  return joined;
}

}  // namespace kvcal
