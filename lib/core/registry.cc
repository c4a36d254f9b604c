#include "core/registry.h"

#include <numeric>

namespace kvcal {
namespace {

/// Levenshtein distance.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
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

std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates) {
  if (name.size() > 200) return "";
  const std::string wanted = normalised_name(name);
  const std::string* best = nullptr;
  size_t best_distance = std::max<size_t>(2, wanted.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    if (candidate.empty() || candidate == name) continue;
    const size_t distance = edit_distance(wanted, normalised_name(candidate));
    if (distance < best_distance) {
      best_distance = distance;
      best = &candidate;
    }
  }
  return best ? " (did you mean '" + *best + "'?)" : "";
}

}  // namespace kvcal
