#include "tokenizers/token_decoder.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "tokenizers/byte_alphabet.h"
#include "tokenizers/growth.h"
#include "tokenizers/json_parts.h"
#include "tokenizers/normalizer.h"
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

std::string joined(const Tokens& tokens) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  return all;
}

class ByteLevel : public TokenDecoder {
 public:
  void apply(Tokens& tokens) const override {
    std::string bytes;
    for (const std::string& token : tokens) bytes += bytes_of_alphabet(token).value_or(token);
    tokens = {unicode::replace_invalid(bytes)};
  }
};

class Metaspace : public TokenDecoder {
 public:
  Metaspace(char32_t replacement, bool prepends)
      : replacement_(unicode::encode(replacement)), prepends_(prepends) {}
  void apply(Tokens& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i)
      replace_all(tokens[i], replacement_, i == 0 && prepends_ ? "" : " ");
  }

 private:
  std::string replacement_;
  bool prepends_;
};

/// Runs of "<0xE6>" tokens become the text they spell, or as many U+FFFD as there are tokens.
class ByteFallback : public TokenDecoder {
 public:
  void apply(Tokens& tokens) const override {
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

 private:
  static int byte_of(std::string_view token) {
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
};

class Fuse : public TokenDecoder {
 public:
  void apply(Tokens& tokens) const override { tokens = {joined(tokens)}; }
};

/// Removes up to start leading and stop trailing occurrences of one character, in every token.
class Strip : public TokenDecoder {
 public:
  Strip(char32_t content, int64_t start, int64_t stop)
      : content_(unicode::encode(content)), start_(start), stop_(stop) {}
  void apply(Tokens& tokens) const override {
    for (std::string& token : tokens) {
      std::string_view left = token;
      for (int64_t i = 0; i < start_ && left.starts_with(content_); ++i)
        left.remove_prefix(content_.size());
      for (int64_t i = 0; i < stop_ && left.ends_with(content_); ++i)
        left.remove_suffix(content_.size());
      token = std::string(left);
    }
  }

 private:
  std::string content_;
  int64_t start_, stop_;
};

class Replace : public TokenDecoder {
 public:
  Replace(std::unique_ptr<Pattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(Tokens& tokens) const override {
    for (std::string& token : tokens) {
      std::string result;
      size_t at = 0;
      pattern_->for_each(token, [&](Span match) {
        result.append(token, at, match.begin - at).append(content_);
        check_growth(token.size(), result.size());
        at = match.end;
      });
      token = result.append(token, at);
    }
  }

 private:
  std::unique_ptr<Pattern> pattern_;
  std::string content_;
};

class BpeSuffix : public TokenDecoder {
 public:
  explicit BpeSuffix(std::string suffix) : suffix_(std::move(suffix)) {}
  void apply(Tokens& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i)
      replace_all(tokens[i], suffix_, i + 1 == tokens.size() ? "" : " ");
  }

 private:
  std::string suffix_;
};

/// Source: `tokenizers`, decoders/wordpiece.rs, cleanup.
void clean_up(std::string& text) {
  constexpr std::pair<std::string_view, std::string_view> kFixes[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
  };
  for (const auto& [from, to] : kFixes) replace_all(text, from, to);
}

class WordPiece : public TokenDecoder {
 public:
  WordPiece(std::string prefix, bool cleans) : prefix_(std::move(prefix)), cleans_(cleans) {}
  void apply(Tokens& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0)
        tokens[i] =
            tokens[i].starts_with(prefix_) ? tokens[i].substr(prefix_.size()) : " " + tokens[i];
      if (cleans_) clean_up(tokens[i]);
    }
  }

 private:
  std::string prefix_;
  bool cleans_;
};

/// Source: `tokenizers`, decoders/ctc.rs.
class Ctc : public TokenDecoder {
 public:
  Ctc(std::string pad, std::string delimiter, bool cleans)
      : pad_(std::move(pad)), delimiter_(std::move(delimiter)), cleans_(cleans) {}
  void apply(Tokens& tokens) const override {
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    for (std::string& token : tokens) {
      replace_all(token, pad_, "");
      if (!cleans_) continue;
      clean_up(token);
      replace_all(token, delimiter_, " ");
    }
    std::erase(tokens, "");
  }

 private:
  std::string pad_, delimiter_;
  bool cleans_;
};

template <class Decoder>
std::unique_ptr<TokenDecoder> make_plain(const Json&) {
  return std::make_unique<Decoder>();
}
std::unique_ptr<TokenDecoder> make_metaspace(const Json& object) {
  const std::string scheme = optional_string(object, "prepend_scheme").value_or("always");
  const bool prepends =
      scheme != "never" && optional_bool(object, "add_prefix_space").value_or(true);
  return std::make_unique<Metaspace>(required_character(object, "replacement"), prepends);
}
std::unique_ptr<TokenDecoder> make_strip(const Json& object) {
  const int64_t start = required_int(object, "start"), stop = required_int(object, "stop");
  if (start < 0 || stop < 0)
    fail("keys 'start' and 'stop' are ", start, " and ", stop, ", expected at least 0");
  return std::make_unique<Strip>(required_character(object, "content"), start, stop);
}
std::unique_ptr<TokenDecoder> make_replace(const Json& object) {
  return std::make_unique<Replace>(make_pattern(object), required_string(object, "content"));
}
std::unique_ptr<TokenDecoder> make_bpe_suffix(const Json& object) {
  return std::make_unique<BpeSuffix>(required_string(object, "suffix"));
}
std::unique_ptr<TokenDecoder> make_word_piece_decoder(const Json& object) {
  return std::make_unique<WordPiece>(required_string(object, "prefix"),
                                     required_bool(object, "cleanup"));
}
std::unique_ptr<TokenDecoder> make_ctc(const Json& object) {
  return std::make_unique<Ctc>(required_string(object, "pad_token"),
                               required_string(object, "word_delimiter_token"),
                               required_bool(object, "cleanup"));
}

}  // namespace

const Registry<MakeTokenDecoder> kTokenDecoders{"type",
                                                {{"BPEDecoder", make_bpe_suffix},
                                                 {"ByteFallback", make_plain<ByteFallback>},
                                                 {"ByteLevel", make_plain<ByteLevel>},
                                                 {"CTC", make_ctc},
                                                 {"Fuse", make_plain<Fuse>},
                                                 {"Metaspace", make_metaspace},
                                                 {"Replace", make_replace},
                                                 {"Strip", make_strip},
                                                 {"WordPiece", make_word_piece_decoder}}};

std::vector<std::unique_ptr<TokenDecoder>> make_decoders(const Json& json,
                                                         const std::string& path) {
  std::vector<std::unique_ptr<TokenDecoder>> steps;
  for_each_part(json, path, "decoders", [&](const Json& part, const std::string& type) {
    if (steps.size() == kMostSteps) fail("more than ", kMostSteps, " decoders");
    steps.push_back(kTokenDecoders.at(type)(part));
  });
  return steps;
}

}  // namespace kvcal::tokenizers
