#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"

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

/// Facts that the model card of an output tells.
struct ModelCard {
  std::string title = {};
  std::string base_model = {};             ///< id of the hub; empty: the source's card may name it
  std::vector<std::string> datasets = {};  ///< ids of the hub
  std::vector<std::string> tags = {};
  /// What the cache costs, label and text, a line each: the first that the card says.
  std::vector<std::pair<std::string, std::string>> accuracy = {};
  std::vector<std::pair<std::string, std::string>> facts = {};  ///< label and text, a line each
  std::string scales = {};                ///< table of the layers' scales, as Markdown; empty: none
  std::vector<std::string> serving = {};  ///< lines of Markdown
  std::vector<std::string> notes = {};    ///< sentences
};

/// Title, tags, facts and scales of a manifest (docs/formats.md). It may be of any shape: a member
/// that is missing or of another kind is left out. checkpoint: the source's name, a path or
/// "owner/name@COMMIT"; format: the output's, maybe several joined by '+'; empty: a rewrite without
/// scales.
ModelCard card_of_manifest(const Json& manifest, const std::string& checkpoint,
                           const std::string& format);

/// A model card of the Hugging Face hub: front matter, which takes licence, language, data sets and
/// tags of the source's card over, the card's own part, and the source's text below it. The part
/// that kvcal wrote into the source's card is replaced, so that cards of conversions do not grow.
std::string card_text(const ModelCard& card, const SourceCard& source);

/// card_text's result with another accuracy.
std::string with_accuracy(const std::string& card,
                          const std::vector<std::pair<std::string, std::string>>& lines);

}  // namespace kvcal
