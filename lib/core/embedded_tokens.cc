#include "core/embedded_tokens.h"

#include <algorithm>

namespace kvcal {

void EmbeddedTokens::cut(int64_t tokens) {
  const auto kept = static_cast<size_t>(
      std::ranges::lower_bound(positions, static_cast<int32_t>(tokens)) - positions.begin());
  positions.resize(kept);
  images.resize(kept);
  if (std::cmp_less(tokens, places.size())) places.resize(static_cast<size_t>(tokens));
}

int64_t EmbeddedTokens::last_of_image(int64_t token) const {
  const auto at = std::ranges::lower_bound(positions, static_cast<int32_t>(token));
  if (at == positions.end() || *at != token) return token;
  const int32_t image = images[static_cast<size_t>(at - positions.begin())];
  const auto behind = std::ranges::upper_bound(images, image) - images.begin();
  return positions[static_cast<size_t>(behind - 1)];
}

EmbeddedTokens behind_first(const EmbeddedTokens& embedded) {
  EmbeddedTokens next = embedded;
  next.injected.clear();
  if (!next.positions.empty() && next.positions.front() == 0) {
    next.positions.erase(next.positions.begin());
    next.images.erase(next.images.begin());
    TensorView& rows = next.rows;
    rows.bytes = rows.bytes.subspan(rows.bytes.size() / static_cast<size_t>(rows.shape[0]));
    rows.shape = {rows.shape[0] - 1, rows.shape[1]};
  }
  for (int32_t& position : next.positions) --position;
  return next;
}

std::vector<EmbeddedRun> runs_of(const EmbeddedTokens& embedded) {
  std::vector<EmbeddedRun> runs;
  for (size_t i = 0; i < embedded.positions.size(); ++i) {
    const bool continues = i > 0 && embedded.positions[i] == embedded.positions[i - 1] + 1 &&
                           embedded.images[i] == embedded.images[i - 1];
    if (!continues)
      runs.push_back({.first = static_cast<int64_t>(i), .position = embedded.positions[i]});
    ++runs.back().count;
  }
  return runs;
}

}  // namespace kvcal
