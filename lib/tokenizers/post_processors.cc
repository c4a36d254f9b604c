#include <optional>
#include <utility>

#include "tokenizers/components.h"

namespace kvcal::tokenizers {
namespace {

constexpr size_t kMostPieces = 256, kMostSequences = 8;

/// The sequence, or special ids.
using TemplatePiece = std::optional<std::vector<TokenId>>;

std::unique_ptr<PostProcessor> template_of(std::vector<TemplatePiece> pieces) {
  return PostProcessor::of(
      [pieces = std::move(pieces)](std::vector<TokenId>& ids, bool add_special_tokens) {
        std::vector<TokenId> result;
        for (const TemplatePiece& piece : pieces) {
          if (!piece)
            result.insert(result.end(), ids.begin(), ids.end());
          else if (add_special_tokens)
            result.insert(result.end(), piece->begin(), piece->end());
        }
        ids = std::move(result);
      });
}

/// The ids of a template's special token.
std::vector<TokenId> special_ids(const Json& object, const std::string& name) {
  const Json* tokens = find_field(object, "special_tokens");
  const Json* token = tokens ? find_field(*tokens, name) : nullptr;
  if (!token) fail("the template's token '", name, "' is not in 'special_tokens'");
  std::vector<TokenId> ids;
  for (const Json& id : required_array(*token, "ids"))
    ids.push_back(token_id(id, "'" + name + "'"));
  if (ids.size() > kMostPieces)
    fail("the template's token '", name, "' has ", ids.size(), " ids, the limit is ", kMostPieces);
  return ids;
}

std::unique_ptr<PostProcessor> make_template(const Json& object) {
  const Json& single = required_array(object, "single");
  if (single.size() > kMostPieces)
    fail("template of ", single.size(), " pieces, the limit is ", kMostPieces);
  std::vector<TemplatePiece> pieces;
  size_t num_sequences = 0;
  for (const Json& piece : single) {
    if (const Json* token = find_field(piece, "SpecialToken")) {
      pieces.emplace_back(special_ids(object, required_string(*token, "id")));
    } else if (const Json* sequence = find_field(piece, "Sequence")) {
      const std::string id = required_string(*sequence, "id");
      if (id != "A") fail("template for one text uses sequence '", id, "', expected 'A'");
      if (++num_sequences > kMostSequences)
        fail("template repeats its text more than ", kMostSequences, " times");
      pieces.emplace_back(std::nullopt);
    } else {
      fail("template has a piece that is neither 'SpecialToken' nor 'Sequence'");
    }
  }
  return template_of(std::move(pieces));
}

/// The ["text", id] of "cls" and "sep".
std::vector<TokenId> named_id(const Json& object, std::string_view key) {
  const Json& pair = required_array(object, key);
  if (pair.size() != 2) fail_kind(key, "[\"text\", id]", pair);
  return {token_id(pair[1], key)};
}
std::unique_ptr<PostProcessor> make_cls_and_sep(const Json& object) {
  return template_of({named_id(object, "cls"), std::nullopt, named_id(object, "sep")});
}
/// Concerns only offsets, which we do not have.
std::unique_ptr<PostProcessor> make_byte_level(const Json&) {
  return PostProcessor::of([](std::vector<TokenId>&, bool) {});
}

}  // namespace

const StepRegistry<PostProcessor> kPostProcessors{"type",
                                                  {{"BertProcessing", make_cls_and_sep},
                                                   {"ByteLevel", make_byte_level},
                                                   {"RobertaProcessing", make_cls_and_sep},
                                                   {"TemplateProcessing", make_template}}};

}  // namespace kvcal::tokenizers
