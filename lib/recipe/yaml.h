#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "recipe/recipe.h"

namespace kvcal {

struct YamlEntry;

/// A value of a YAML (or JSON) file with its place. Scalars stay text; the reader interprets them.
struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };

  Kind kind = Kind::kNull;
  std::string text;        ///< of a scalar, escapes resolved
  bool is_quoted = false;  ///< in quotes or a block, so always a string
  RecipePlace place;
  std::vector<YamlNode> items;     ///< of a list
  std::vector<YamlEntry> entries;  ///< of a map, in file order, no key twice

  /// The value of key, or null. Maps only.
  const YamlNode* find(std::string_view key) const;
};

struct YamlEntry {
  YamlNode key;  ///< always a scalar
  YamlNode value;
};

/// Limits for untrusted files.
struct YamlLimits {
  size_t max_bytes = size_t{1} << 20;
  size_t max_nodes = 100'000;
  size_t max_depth = 32;
  std::string_view what = "recipe";  ///< the kind of file, for messages
};

/// Parses one YAML document; an empty file is a null node. Throws Error with line and column for
/// invalid YAML or UTF-8, a repeated key, a second document, an exceeded limit, and for features
/// that no file of ours needs: anchors, aliases, merge keys, tags, keys that are not text.
YamlNode parse_yaml(std::string_view text, const YamlLimits& limits = {});

/// "line 3, column 7: "
inline std::string place_of(const YamlNode& node) {
  return text_of(node.place);
}

/// A value for messages: 'eight', "8" in quotes, a list, a map, null.
std::string describe(const YamlNode& node);

/// fail() with the node's place before the message.
template <class... Parts>
[[noreturn]] void fail_at(const YamlNode& node, const Parts&... parts) {
  fail(place_of(node), parts...);
}

/// A string as a YAML scalar: plain where YAML 1.1 reads the same string back, else in single
/// quotes, or in double quotes where it needs an escape.
std::string yaml_string(std::string_view text);

/// The lines of a map, each level two spaces deeper. A list, and a map that holds neither list nor
/// map, are in flow style, which breaks lines only between items, at 88 characters. Source: PyYAML
/// `emitter.py`, as llm-compressor calls it.
std::string yaml_text(const Json& map);

}  // namespace kvcal
