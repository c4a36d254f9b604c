#include "eval/shared_prefixes.h"

#include <algorithm>

namespace kvcal {
namespace {

class Tree {
 public:
  explicit Tree(std::span<const std::span<const TokenId>> sequences) : sequences_(sequences) {}

  /// Adds the parts of sequences [first, last), which have their first `begin` tokens in common.
  void grow(size_t first, size_t last, size_t begin, int64_t most_height,
            std::vector<SharedPart>& parts) const {
    if (last - first == 1) {
      const size_t end = sequences_[first].size();
      if (end > begin) parts.push_back({first, last, begin, end});
      return;
    }
    const size_t common = common_tokens(first, last);
    const size_t end = end_of_shared(first, last, common);
    if (most_height == 0 || end < begin + kLeastShared)
      return for_each_branch(first, last, common, [&](size_t from, size_t to) {
        grow(from, to, begin, most_height, parts);
      });
    SharedPart part{first, last, begin, end};
    for_each_branch(first, last, common, [&](size_t from, size_t to) {
      grow(from, to, end, most_height - 1, part.next);
    });
    parts.push_back(std::move(part));
  }

 private:
  /// Of sequences in order, the first and the last have the least in common.
  size_t common_tokens(size_t first, size_t last) const {
    const auto &a = sequences_[first], &b = sequences_[last - 1];
    return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  }

  /// Where a part of all may end: behind the common tokens, unless one token would be left of a
  /// sequence; then before the last two of them.
  size_t end_of_shared(size_t first, size_t last, size_t common) const {
    const auto leaves_one = [&](const auto& ids) { return ids.size() == common + 1; };
    const bool is_short = std::ranges::any_of(sequences_.subspan(first, last - first), leaves_one);
    return is_short ? common - std::min<size_t>(common, 2) : common;
  }

  /// Calls visit for each run of sequences that go on with the same token at `place`, and for one
  /// that ends there.
  template <class Visit>
  void for_each_branch(size_t first, size_t last, size_t place, const Visit& visit) const {
    const auto ends = [&](size_t i) { return sequences_[i].size() == place; };
    for (size_t from = first; from < last;) {
      size_t to = from + 1;
      while (to < last && !ends(from) && sequences_[to][place] == sequences_[from][place]) ++to;
      visit(from, to);
      from = to;
    }
  }

  std::span<const std::span<const TokenId>> sequences_;
};

}  // namespace

int64_t SharedPart::height() const {
  int64_t most = 0;
  for (const SharedPart& part : next) most = std::max(most, 1 + part.height());
  return most;
}

std::vector<SharedPart> shared_parts(std::span<const std::span<const TokenId>> sequences,
                                     int64_t most_height) {
  std::vector<SharedPart> parts;
  if (!sequences.empty()) Tree(sequences).grow(0, sequences.size(), 0, most_height, parts);
  return parts;
}

}  // namespace kvcal
