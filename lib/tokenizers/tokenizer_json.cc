#include <algorithm>
#include <utility>

#include "core/json.h"
#include "tokenizers/added_tokens.h"
#include "tokenizers/token_model.h"
#include "tokenizers/tokenizer_files.h"
#include "unicode/unicode.h"

namespace kvcal::tokenizers {
namespace {

/// Source: `tokenizers`, TokenizerImpl: added tokens, normalizer, added tokens again,
/// pre-tokenizers, model, post-processors.
class JsonTokenizer : public Tokenizer {
 public:
  JsonTokenizer(const Json& json, std::unique_ptr<TokenModel> model) : model_(std::move(model)) {
    const auto part = [&](const char* key) { return find_field(json, key); };
    const bool is_file = !model_;  // else json was made here
    if (const Json* normalizer = part("normalizer"))
      normalizer_ = make_normalizer(*normalizer, "normalizer");
    if (const Json* steps = part("pre_tokenizer"))
      pre_tokenizers_ = PreTokenizers(*steps, "pre_tokenizer");
    if (!model_) {
      const Json* described = part("model");
      if (!described) fail_missing("model", "an object");
      model_ = make_model(*described, "model");
    }
    if (const Json* steps = part("post_processor"))
      post_processors_ =
          make_steps(kPostProcessors, *steps, "post_processor", "processors", "post-processors");
    if (const Json* steps = part("decoder")) {
      decoders_ = make_steps(kDecoders, *steps, "decoder", "decoders", "decoders");
      has_decoder_ = true;
    }
    if (const Json* tokens = part("added_tokens"))
      added_ = in_context("added_tokens", [&] {
        return AddedTokens(read_added_tokens(*tokens, is_file), model_->vocabulary(),
                           normalizer_.get());
      });
    // GPT-2's alphabet is only a spelling of bytes; when the model can look bytes up, leave it out.
    if (pre_tokenizers_.writes_alphabet() && model_->read_bytes()) pre_tokenizers_.keep_bytes();
  }

  std::vector<TokenId> encode(std::string_view text, bool add_special_tokens) const override {
    std::string repaired;
    if (!unicode::is_valid(text)) text = repaired = unicode::replace_invalid(text);
    std::vector<TokenId> ids;
    ids.reserve(text.size() / 3 + 8);
    auto scratch = scratch_.take();
    added_.split_raw(text, [&](AddedPart part) {
      if (part.id >= 0)
        ids.push_back(part.id);
      else
        encode_part(text, part.span, *scratch, ids);
    });
    scratch_.give_back(std::move(scratch));
    const size_t num_ids = ids.size();
    for (const auto& step : post_processors_) {
      step->apply(ids, add_special_tokens);
      check_growth(num_ids, ids.size());
    }
    return ids;
  }

  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const override {
    std::vector<std::string> tokens;
    for (const TokenId id : ids) {
      auto token = id_to_token(id);
      if (token && !(skip_special_tokens && added_.is_special(*token)))
        tokens.push_back(*std::move(token));
    }
    const size_t size = size_of(tokens);
    for (const auto& step : decoders_) {
      step->apply(tokens);
      check_growth(size, size_of(tokens));
    }
    std::string text;
    for (size_t i = 0; i < tokens.size(); ++i)
      text.append(i > 0 && !has_decoder_ ? " " : "").append(tokens[i]);
    return text;
  }

  int64_t vocab_size() const override {
    return int64_t{std::max(model_->vocabulary().max_id(), added_.max_id())} + 1;
  }
  std::optional<TokenId> token_to_id(std::string_view token) const override {
    const auto id = added_.find(token);
    return id ? id : model_->vocabulary().find(token);
  }
  std::optional<std::string> id_to_token(TokenId id) const override {
    auto text = added_.text_of(id);
    if (!text) text = model_->vocabulary().text_of(id);
    if (!text) return std::nullopt;
    return std::string(*text);
  }

 private:
  static size_t size_of(const std::vector<std::string>& tokens) {
    size_t size = 0;
    for (const std::string& token : tokens) size += token.size();
    return size;
  }
  void encode_part(std::string_view text, Span span, Scratch& scratch,
                   std::vector<TokenId>& ids) const {
    const std::string_view raw = text.substr(span.begin, span.end - span.begin);
    const size_t origin_bytes = span.begin == 0 ? unicode::decode(raw, 0).size : 0;
    if (!normalizer_) return encode_normalized({raw, origin_bytes}, scratch, ids);
    Normalized normalized{std::string(raw), origin_bytes};
    normalizer_->apply(normalized);
    encode_normalized({normalized.text, normalized.origin_bytes}, scratch, ids);
  }
  void encode_normalized(Piece whole, Scratch& scratch, std::vector<TokenId>& ids) const {
    added_.split_normalized(whole.text, [&](AddedPart part) {
      if (part.id >= 0) {
        ids.push_back(part.id);
        return;
      }
      pre_tokenizers_.split(part_of(whole, part.span),
                            [&](Piece piece) { model_->encode(piece.text, scratch, ids); });
    });
  }

  std::unique_ptr<Normalizer> normalizer_;
  PreTokenizers pre_tokenizers_;
  std::unique_ptr<TokenModel> model_;
  std::vector<std::unique_ptr<PostProcessor>> post_processors_;
  std::vector<std::unique_ptr<Decoder>> decoders_;
  bool has_decoder_ = false;
  AddedTokens added_;
  ScratchPool scratch_;
};

}  // namespace

std::unique_ptr<Tokenizer> read_tokenizer_json(std::string_view text) {
  const Json json = parse_model_json(text, kTokenizerLimits);
  if (const auto version = optional_string(json, "version"); version && *version != "1.0")
    fail("version '", *version, "' is unknown, expected '1.0'");
  return std::make_unique<JsonTokenizer>(json, nullptr);
}

std::unique_ptr<Tokenizer> assemble_tokenizer(const Json& parts,
                                              std::unique_ptr<TokenModel> model) {
  return std::make_unique<JsonTokenizer>(parts, std::move(model));
}

}  // namespace kvcal::tokenizers
