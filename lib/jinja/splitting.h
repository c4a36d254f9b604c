#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "jinja/calls.h"

namespace kvcal::jinja {

/// The part of a text that methods with start and end look at.
struct TextPart {
  std::string_view text;
  int64_t start = 0;     ///< of the part, in code points
  bool is_valid = true;  ///< false where start lies behind end: nothing is found there, not even ""
};
/// The part of self between the arguments start and end.
TextPart part_of(const Call& call, size_t start, size_t end);

/// str.split and str.rsplit; no separator means runs of whitespace, a negative limit means none.
Values split_text(Run& run, std::string_view text, std::optional<std::string_view> separator,
                  int64_t limit, bool from_end);

int64_t count_occurrences(Run& run, std::string_view text, std::string_view wanted);
/// str.replace; a negative count means all.
Text replaced(Run& run, std::string_view text, std::string_view old, std::string_view with,
              int64_t count);
/// str.ljust '<', rjust '>' and center '^'.
Text justified(Run& run, std::string_view text, int64_t width, std::string_view fill, char align);

}  // namespace kvcal::jinja
