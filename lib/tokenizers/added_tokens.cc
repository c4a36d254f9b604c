#include "tokenizers/added_tokens.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/safe_points.h"
#include "unicode/unicode.h"

namespace kvcal::tokenizers {
namespace {

constexpr size_t kLongestToken = 4096;

bool is_single_word(std::string_view text, Span match) {
  const bool word_before =
      match.begin > 0 && unicode::is_word(unicode::decode_before(text, match.begin).code_point);
  const bool word_behind =
      match.end < text.size() && unicode::is_word(unicode::decode(text, match.end).code_point);
  return !word_before && !word_behind;
}

}  // namespace

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens, const Vocabulary& model,
                         const Normalizer* normalizer) {
  std::map<TokenId, std::string> normalized_content;
  size_t next_id = model.size();
  SafePoints points;
  for (const AddedToken& token : tokens) {
    points.pass();
    if (token.content.empty()) continue;
    auto id = by_content_.find(token.content);
    if (id && tokens_.at(*id) == token) continue;
    if (!id) id = model.find(token.content);
    if (!id && next_id > size_t{std::numeric_limits<TokenId>::max()}) fail("too many tokens");
    if (!id) id = static_cast<TokenId>(next_id++);
    if (token.normalized && normalizer) {
      Normalized content{token.content, 0};
      normalizer->apply(content);
      if (content.text != token.content) normalized_content[*id] = content.text;
    }
    by_content_.add(token.content, *id);
    if (token.special) special_.insert(token.content);
    tokens_.insert_or_assign(*id, token);
  }
  for (const auto& [id, token] : tokens_) {
    points.pass();
    const auto changed = normalized_content.find(id);
    const std::string& content =
        changed != normalized_content.end() ? changed->second : token.content;
    decoded_.add(content, id);
    if (token.normalized)
      normalized_.add(content, id);
    else
      raw_.add(token.content, id);
  }
}

void AddedTokens::split(std::string_view text, const TokenTrie& trie,
                        Visitor<AddedPart> out) const {
  size_t begin = 0;  // of the text that no token has taken yet
  if (!trie.empty()) {
    // A token may have thousands of bytes, and each place be the beginning of many.
    SafePoints points(1024);
    for (size_t at = trie.next_start(text, 0); at < text.size(); at = trie.next_start(text, at)) {
      points.pass();
      const auto [id, end] = trie.longest(text, at);
      if (id < 0) {
        ++at;
        continue;
      }
      const AddedToken& token = tokens_.at(id);
      Span span{at, end};
      at = end;
      if (token.single_word && !is_single_word(text, span)) continue;
      if (token.lstrip) span.begin = std::max(unicode::spaces_begin(text, span.begin), begin);
      if (token.rstrip) span.end = unicode::spaces_end(text, span.end);
      if (begin < span.begin) out({{begin, span.begin}, -1});
      out({span, id});
      begin = span.end;
    }
  }
  if (begin < text.size()) out({{begin, text.size()}, -1});
}

AddedToken read_added_token(const Json& entry, bool is_special) {
  const auto flag = [&](const char* key, bool usual) {
    return optional_bool(entry, key).value_or(usual);
  };
  return {.content = required_string(entry, "content"),
          .single_word = flag("single_word", false),
          .lstrip = flag("lstrip", false),
          .rstrip = flag("rstrip", false),
          .normalized = flag("normalized", true),
          .special = flag("special", is_special)};
}

std::vector<AddedToken> read_added_tokens(const Json& json, bool needs_flags) {
  std::vector<AddedToken> tokens;
  if (!json.is_array()) fail("found ", kind_of(json), ", expected an array");
  SafePoints points;
  for (size_t i = 0; i < json.size(); ++i) {
    points.pass();
    in_context("[" + std::to_string(i) + "]", [&] {
      const Json* id = find_field(json[i], "id");
      if (!id) fail_missing("id", "an integer");
      const std::string content = required_string(json[i], "content");
      token_id(*id, "'" + content.substr(0, 40) + "'");
      if (content.size() > kLongestToken)
        fail("key 'content' has ", content.size(), " bytes, the limit is ", kLongestToken);
      // The tokenizers package requires them all: without one it is not known what the token
      // matches.
      for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized", "special"})
        if (needs_flags && !find_field(json[i], flag)) fail_missing(flag, "true or false");
      tokens.push_back(read_added_token(json[i], false));
    });
  }
  return tokens;
}

}  // namespace kvcal::tokenizers
