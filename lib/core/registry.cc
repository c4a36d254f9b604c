#include "core/registry.h"

#include <numeric>

namespace kvcal {
namespace {

/// How many characters are put in, left out, changed or swapped with their neighbour between two
/// words.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> two_before(b.size() + 1), before(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    two_before.swap(before);
    before.swap(row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] =
          std::min({before[j] + 1, row[j - 1] + 1, before[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], two_before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

}  // namespace

std::string normalised_name(std::string_view name) {
  std::string result;
  for (const char c : name)
    result += (c == '-' || c == ' ')
                  ? '_'
                  : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

namespace {

/// The digits of a name, in ascending order: int4 is not int8, and w4a61 may be w4a16.
std::string digits_of(std::string_view name) {
  std::string digits;
  for (const char c : name)
    if (c >= '0' && c <= '9') digits += c;
  std::ranges::sort(digits);
  return digits;
}

/// Whether the digits of two words do not tell them apart: a digit may be swapped, doubled or
/// forgotten, but another one means another thing.
bool may_mean(std::string_view name, std::string_view known) {
  const std::string digits = digits_of(name), others = digits_of(known);
  return digits.empty() || digits.size() != others.size() || digits == others;
}

/// Whether shorter is the start of name, or its letters stand in it in their order, as of an
/// abbreviation: ppl of perplexity.
bool shortens(std::string_view shorter, std::string_view name) {
  constexpr size_t kLeast = 3;
  if (shorter.size() < kLeast || shorter.size() >= name.size() || shorter[0] != name[0])
    return false;
  if (name.starts_with(shorter)) return true;
  size_t at = 0;
  for (const char c : shorter) {
    at = name.find(c, at);
    if (at++ == name.npos) return false;
  }
  return name.size() >= 2 * shorter.size();
}

}  // namespace

std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates) {
  if (name.size() > 200) return "";
  const std::string wanted = normalised_name(name);
  const std::string *best = nullptr, *longer = nullptr;
  // Of a word of which nothing is left no other is meant.
  size_t best_distance = std::min(std::max<size_t>(2, wanted.size() / 3) + 1, wanted.size());
  for (const std::string& candidate : candidates) {
    const std::string known = normalised_name(candidate);
    if (candidate.empty() || candidate == name) continue;
    if (!longer && shortens(wanted, known)) longer = &candidate;
    const size_t distance = edit_distance(wanted, known);
    if (distance < best_distance && may_mean(wanted, known)) {
      best_distance = distance;
      best = &candidate;
    }
  }
  if (longer && best_distance > 1) best = longer;
  return best ? " (did you mean '" + *best + "'?)" : "";
}

}  // namespace kvcal
