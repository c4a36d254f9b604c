#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <utility>

#include "tokenizers/components.h"
#include "unicode/unicode.h"

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

namespace {

using Tokens = std::vector<std::string>;

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  std::string result;
  size_t at = 0;
  for (size_t found; (found = text.find(from, at)) != std::string::npos; at = found + from.size())
    result.append(text, at, found - at).append(to);
  if (at > 0) text = result.append(text, at);
}

void fuse(Tokens& tokens) {
  tokens = {std::accumulate(tokens.begin(), tokens.end(), std::string())};
}

void read_alphabet(Tokens& tokens) {
  std::string bytes;
  for (const std::string& token : tokens) bytes += bytes_of_alphabet(token).value_or(token);
  tokens = {unicode::replace_invalid(bytes)};
}

/// The byte that "<0xE6>" stands for, -1 for other tokens.
int byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return -1;
  // Rust's from_str_radix takes a sign.
  const std::string_view digits = token.substr(token[3] == '+' ? 4 : 3, token[3] == '+' ? 1 : 2);
  unsigned byte = 0;
  const auto end = std::from_chars(digits.begin(), digits.end(), byte, 16).ptr;
  return end == digits.end() ? static_cast<int>(byte) : -1;
}

/// Runs of "<0xE6>" tokens become the text they spell, or as many U+FFFD as there are tokens.
void read_bytes(Tokens& tokens) {
  Tokens result;
  std::string bytes;
  const auto flush = [&] {
    if (unicode::is_valid(bytes)) {
      if (!bytes.empty()) result.push_back(bytes);
    } else {
      result.insert(result.end(), bytes.size(), "\xef\xbf\xbd");
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const int byte = byte_of(token); byte >= 0) {
      bytes.push_back(static_cast<char>(byte));
      continue;
    }
    flush();
    result.push_back(std::move(token));
  }
  flush();
  tokens = std::move(result);
}

/// Source: `tokenizers`, decoders/wordpiece.rs, cleanup.
void clean_up(std::string& text) {
  constexpr std::pair<std::string_view, std::string_view> kFixes[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
  };
  for (const auto& [from, to] : kFixes) replace_all(text, from, to);
}

template <void (*apply)(Tokens&)>
std::unique_ptr<Decoder> make_plain(const Json&) {
  return Decoder::of(apply);
}

std::unique_ptr<Decoder> make_metaspace(const Json& object) {
  const std::string scheme = optional_string(object, "prepend_scheme").value_or("always");
  const bool prepends =
      scheme != "never" && optional_bool(object, "add_prefix_space").value_or(true);
  const std::string mark = unicode::encode(required_character(object, "replacement"));
  return Decoder::of([=](Tokens& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i)
      replace_all(tokens[i], mark, i == 0 && prepends ? "" : " ");
  });
}

/// Removes up to start leading and stop trailing occurrences of one character, in every token.
std::unique_ptr<Decoder> make_strip(const Json& object) {
  const int64_t start = required_int(object, "start"), stop = required_int(object, "stop");
  if (start < 0 || stop < 0)
    fail("keys 'start' and 'stop' are ", start, " and ", stop, ", expected at least 0");
  const std::string content = unicode::encode(required_character(object, "content"));
  return Decoder::of([=](Tokens& tokens) {
    for (std::string& token : tokens) {
      std::string_view left = token;
      for (int64_t i = 0; i < start && left.starts_with(content); ++i)
        left.remove_prefix(content.size());
      for (int64_t i = 0; i < stop && left.ends_with(content); ++i)
        left.remove_suffix(content.size());
      token = std::string(left);
    }
  });
}

std::unique_ptr<Decoder> make_replace(const Json& object) {
  return Decoder::of([pattern = make_pattern(object),
                      content = required_string(object, "content")](Tokens& tokens) {
    for (std::string& token : tokens) {
      std::string result;
      size_t at = 0;
      pattern->for_each(token, [&](Span match) {
        result.append(token, at, match.begin - at).append(content);
        check_growth(token.size(), result.size());
        at = match.end;
      });
      token = result.append(token, at);
    }
  });
}

std::unique_ptr<Decoder> make_bpe_suffix(const Json& object) {
  return Decoder::of([suffix = required_string(object, "suffix")](Tokens& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i)
      replace_all(tokens[i], suffix, i + 1 == tokens.size() ? "" : " ");
  });
}

std::unique_ptr<Decoder> make_word_piece_decoder(const Json& object) {
  return Decoder::of([prefix = required_string(object, "prefix"),
                      cleans = required_bool(object, "cleanup")](Tokens& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0)
        tokens[i] =
            tokens[i].starts_with(prefix) ? tokens[i].substr(prefix.size()) : " " + tokens[i];
      if (cleans) clean_up(tokens[i]);
    }
  });
}

/// Source: `tokenizers`, decoders/ctc.rs.
std::unique_ptr<Decoder> make_ctc(const Json& object) {
  return Decoder::of([pad = required_string(object, "pad_token"),
                      delimiter = required_string(object, "word_delimiter_token"),
                      cleans = required_bool(object, "cleanup")](Tokens& tokens) {
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    for (std::string& token : tokens) {
      replace_all(token, pad, "");
      if (!cleans) continue;
      clean_up(token);
      replace_all(token, delimiter, " ");
    }
    std::erase(tokens, "");
  });
}

}  // namespace

const StepRegistry<Decoder> kDecoders{"type",
                                      {{"BPEDecoder", make_bpe_suffix},
                                       {"ByteFallback", make_plain<read_bytes>},
                                       {"ByteLevel", make_plain<read_alphabet>},
                                       {"CTC", make_ctc},
                                       {"Fuse", make_plain<fuse>},
                                       {"Metaspace", make_metaspace},
                                       {"Replace", make_replace},
                                       {"Strip", make_strip},
                                       {"WordPiece", make_word_piece_decoder}}};

}  // namespace kvcal::tokenizers
