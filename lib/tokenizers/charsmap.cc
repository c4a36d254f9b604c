#include "tokenizers/charsmap.h"

#include "core/error.h"
#include "core/safe_points.h"

namespace kvcal::tokenizers {
namespace {

constexpr uint32_t kValue = 0x7fffffffu, kLabel = 0x800000ffu;

bool has_leaf(uint32_t unit) {
  return ((unit >> 8) & 1) != 0;
}

}  // namespace

/// Layout: size of the trie in bytes, the trie, the replacements; numbers are little-endian and 32
/// bits wide.
Charsmap::Charsmap(std::string_view blob) {
  const auto number = [&](size_t at) {
    uint32_t value = 0;
    for (size_t i = 4; i-- > 0;) value = (value << 8) | static_cast<unsigned char>(blob[at + i]);
    return value;
  };
  if (blob.size() < 8) fail("the character map holds ", blob.size(), " bytes, too few for a trie");
  const size_t trie_size = number(0);
  if (trie_size % 4 != 0 || trie_size == 0 || trie_size > blob.size() - 4)
    fail("the character map gives its trie ", trie_size, " bytes and has ", blob.size() - 4);
  units_.resize(trie_size / 4);
  for (size_t i = 0; i < units_.size(); ++i) units_[i] = number(4 + i * 4);
  replacements_ = blob.substr(4 + trie_size);
}

size_t Charsmap::offset(size_t position) const {
  const uint32_t unit = units_[position];
  return size_t{unit >> 10} << ((unit & (1u << 9)) >> 6);
}

template <class Found>
void Charsmap::walk(std::string_view text, Found found) const {
  size_t position = offset(0);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto label = static_cast<unsigned char>(text[i]);
    if (label == 0) return;
    position ^= label;
    if (position >= units_.size() || (units_[position] & kLabel) != label) return;
    const bool ends_here = has_leaf(units_[position]);
    position ^= offset(position);
    if (!ends_here) continue;
    if (position >= units_.size() || !found(i + 1, units_[position] & kValue)) return;
  }
}

std::optional<std::string_view> Charsmap::replacement(int64_t at) const {
  if (at < 0 || static_cast<size_t>(at) >= replacements_.size()) return std::nullopt;
  const std::string_view rest = std::string_view(replacements_).substr(static_cast<size_t>(at));
  return rest.substr(0, rest.find('\0'));
}

std::optional<std::string_view> Charsmap::of_shortest_prefix(std::string_view text) const {
  int64_t value = -1;
  walk(text, [&](size_t, uint32_t found) {
    value = found;
    return false;
  });
  return replacement(value);
}

std::optional<std::pair<std::string_view, size_t>> Charsmap::of_longest_prefix(
    std::string_view text) const {
  int64_t value = -1;
  size_t length = 0;
  walk(text, [&](size_t end, uint32_t found) {
    value = found;
    length = end;
    return true;
  });
  const auto content = replacement(value);
  if (!content) return std::nullopt;
  return std::pair{*content, length};
}

void Charsmap::check() const {
  if (!replacements_.empty() && replacements_.back() != '\0') fail("the character map is cut off");
  std::vector<bool> seen(units_.size());
  std::vector<size_t> open{0};
  SafePoints points(64);
  while (!open.empty()) {
    points.pass();
    const size_t position = open.back();
    open.pop_back();
    const size_t children = position ^ offset(position);
    const size_t last_block = children | 0xff;
    if (last_block >= units_.size()) fail("the character map's trie points outside itself");
    if (position != 0 && has_leaf(units_[position]) &&
        (units_[children] & kValue) >= replacements_.size())
      fail("the character map's trie names a replacement that is not there");
    for (size_t label = 1; label < 256; ++label) {
      const size_t child = children ^ label;
      if ((units_[child] & kLabel) != label || seen[child]) continue;
      seen[child] = true;
      open.push_back(child);
    }
  }
}

}  // namespace kvcal::tokenizers
