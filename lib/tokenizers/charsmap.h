#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvcal::tokenizers {

/// A character map that sentencepiece compiles into its models: texts and their replacements. The
/// texts are in a double-array trie (darts-clone), whose unit is a leaf's value, or label, offset
/// to the children and whether a text ends here. No walk leaves the array, whatever is in it.
class Charsmap {
 public:
  /// Throws Error for bytes that are too few for the sizes that they state.
  explicit Charsmap(std::string_view blob);

  /// The replacement of the shortest of the texts that text begins with.
  std::optional<std::string_view> of_shortest_prefix(std::string_view text) const;
  /// The replacement of the longest one, and that one's length.
  std::optional<std::pair<std::string_view, size_t>> of_longest_prefix(std::string_view text) const;
  /// All replacements; each ends with NUL.
  const std::string& replacements() const { return replacements_; }

  /// Throws Error if a walk from the root can leave the array or find a replacement that is not
  /// there, for libraries that do not check.
  void check() const;

 private:
  size_t offset(size_t position) const;
  /// Calls found(length, value), the shortest first, until it returns false.
  template <class Found>
  void walk(std::string_view text, Found found) const;
  std::optional<std::string_view> replacement(int64_t at) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace kvcal::tokenizers
