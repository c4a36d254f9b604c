#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace kvcal {

/// Name of a checkpoint's model card.
inline constexpr std::string_view kCardName = "README.md";

/// Comments around the part of a card that kvcal wrote; the source's own card stands below it.
inline constexpr std::string_view kCardBegin = "<!-- kvcal: begin -->",
                                  kCardEnd = "<!-- kvcal: end -->";

/// A field of a card's front matter: texts alone.
struct CardField {
  std::string key;
  std::vector<std::string> values;
  bool is_list = false;
};

/// The model card of a source: YAML between lines of "---", and Markdown below.
struct SourceCard {
  std::vector<CardField> fields;  ///< those that hold texts, in their order
  std::string unread;             ///< front matter that is no YAML map; else empty
  std::string text;      ///< Markdown with line feeds, without what kvcal wrote; empty: none
  bool is_ours = false;  ///< kvcal wrote a part of it

  /// nullptr: the card has no such field.
  const CardField* find(std::string_view key) const;
};

/// Reads a card. Front matter ends as huggingface_hub 2.4 has it (`REGEX_YAML_BLOCK`).
SourceCard parse_source_card(std::string_view text);

/// Reads the card of a folder. A folder without one, or with one that is not read, has an empty
/// card.
SourceCard read_source_card(const std::filesystem::path& folder);

/// Whether a folder's card is read: UTF-8 of at most 1 MiB. Another is kept as a file.
bool is_readable_card(const std::filesystem::path& folder);

}  // namespace kvcal
