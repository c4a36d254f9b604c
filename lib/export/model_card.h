#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "export/source_card.h"

namespace kvcal {

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
