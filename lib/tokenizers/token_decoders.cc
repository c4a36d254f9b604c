#include <algorithm>
#include <numeric>
#include <utility>

#include "tokenizers/byte_alphabet.h"
#include "tokenizers/components.h"
#include "unicode/unicode.h"

namespace kvcal::tokenizers {
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
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  // Rust's from_str_radix takes a sign.
  const int high = token[3] == '+' ? 0 : digit(token[3]), low = digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
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
