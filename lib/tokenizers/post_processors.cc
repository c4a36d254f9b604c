#include "tokenizers/post_processor.h"

#include <optional>
#include <utility>

#include "core/error.h"
#include "tokenizers/json_parts.h"

namespace kvcal::tokenizers {
namespace {

constexpr size_t kMostPieces = 256, kMostSequences = 8;

/// Concerns only offsets, which we do not have.
class ByteLevel : public PostProcessor {
 public:
  void apply(std::vector<TokenId>&, bool) const override {}
};

class Template : public PostProcessor {
 public:
  /// The sequence, or special ids.
  using TemplatePiece = std::optional<std::vector<TokenId>>;
  explicit Template(std::vector<TemplatePiece> pieces) : pieces_(std::move(pieces)) {}
  void apply(std::vector<TokenId>& ids, bool add_special_tokens) const override {
    std::vector<TokenId> result;
    for (const TemplatePiece& piece : pieces_) {
      if (!piece)
        result.insert(result.end(), ids.begin(), ids.end());
      else if (add_special_tokens)
        result.insert(result.end(), piece->begin(), piece->end());
    }
    ids = std::move(result);
  }

 private:
  std::vector<TemplatePiece> pieces_;
};

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
  std::vector<Template::TemplatePiece> pieces;
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
  return std::make_unique<Template>(std::move(pieces));
}

/// The ["text", id] of "cls" and "sep".
std::vector<TokenId> named_id(const Json& object, std::string_view key) {
  const Json& pair = required_array(object, key);
  if (pair.size() != 2) fail_kind(key, "[\"text\", id]", pair);
  return {token_id(pair[1], key)};
}
std::unique_ptr<PostProcessor> make_cls_and_sep(const Json& object) {
  return std::make_unique<Template>(std::vector<Template::TemplatePiece>{
      named_id(object, "cls"), std::nullopt, named_id(object, "sep")});
}

}  // namespace

const Registry<MakePostProcessor> kPostProcessors{
    "type",
    {{"BertProcessing", make_cls_and_sep},
     {"ByteLevel",
      [](const Json&) -> std::unique_ptr<PostProcessor> { return std::make_unique<ByteLevel>(); }},
     {"RobertaProcessing", make_cls_and_sep},
     {"TemplateProcessing", make_template}}};

std::vector<std::unique_ptr<PostProcessor>> make_post_processors(const Json& json,
                                                                 const std::string& path) {
  std::vector<std::unique_ptr<PostProcessor>> steps;
  for_each_part(json, path, "processors", [&](const Json& part, const std::string& type) {
    if (steps.size() == 16) fail("more than 16 post-processors");
    steps.push_back(kPostProcessors.at(type)(part));
  });
  return steps;
}

}  // namespace kvcal::tokenizers
