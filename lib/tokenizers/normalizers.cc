#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "tokenizers/charsmap.h"
#include "tokenizers/components.h"
#include "unicode/unicode.h"

namespace kvcal::tokenizers {
namespace {

/// The normalized text, and for its first code points how the library accounts for them: 1 for an
/// inserted one, -n for one that stands before n removed ones. It forgets what is removed before
/// anything is written, so the accounts decide which bytes stem from the first character.
struct Rewritten {
  static constexpr size_t kAccounts = 64;

  void keep(std::string_view one) {
    text += one;
    if (changes.size() < kAccounts) changes.push_back(0);
  }
  void replace(std::string_view old_part, std::string_view new_part) {
    text += new_part;
    if (changes.size() >= kAccounts) return;
    const auto old_count = static_cast<int>(unicode::length(old_part));
    const auto new_count = static_cast<int>(unicode::length(new_part));
    changes.insert(changes.end(), static_cast<size_t>(new_count), 0);
    for (int i = old_count; i < new_count; ++i) *(changes.end() - 1 - (i - old_count)) = 1;
    if (new_count < old_count && !changes.empty()) changes.back() += new_count - old_count;
  }
  /// Bytes of text that stem from the first `origin` bytes of old_text.
  size_t origin_bytes(std::string_view old_text, size_t origin) const {
    size_t at = 0, taken = 0;  // in text, in old_text
    for (const int change : changes) {
      const bool is_origin = change > 0 ? taken == 0 || taken <= origin : taken < origin;
      if (!is_origin || origin == 0) break;
      at += unicode::decode(text, at).size;
      for (int i = change; i <= 0 && taken < old_text.size(); ++i)
        taken += unicode::decode(old_text, taken).size;
    }
    return at;
  }

  std::string text;
  std::vector<int> changes;
};

/// Source: `tokenizers`, normalizers/precompiled.rs: a grapheme of fewer than 6 bytes is replaced
/// as a whole by the entry of its shortest prefix; else its code points are replaced one by one.
class PrecompiledCharsmap : public Normalizer {
 public:
  explicit PrecompiledCharsmap(Charsmap map) : map_(std::move(map)) {
    for (char32_t c = 0; c < 128; ++c) changes_[c] = find(unicode::encode(c)).has_value();
  }

  void apply(Normalized& normalized) const override {
    const std::string_view text = normalized.text;
    Rewritten output;
    output.text.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      if (is_plain(text, at)) {
        output.keep(text.substr(at++, 1));
      } else {
        const std::string_view grapheme = text.substr(at, unicode::grapheme_end(text, at) - at);
        append_grapheme(grapheme, output);
        at += grapheme.size();
      }
    }
    const size_t origin_bytes = output.origin_bytes(text, normalized.origin_bytes);
    normalized = {std::move(output.text), origin_bytes};
  }

 private:
  std::optional<std::string_view> find(std::string_view text) const {
    return map_.of_shortest_prefix(text);
  }
  /// An unchanged ASCII character before another one is a grapheme for itself.
  bool is_plain(std::string_view text, size_t at) const {
    const auto c = static_cast<unsigned char>(text[at]);
    return c < 0x80 && c != '\r' && !changes_[c] &&
           (at + 1 == text.size() || static_cast<unsigned char>(text[at + 1]) < 0x80);
  }
  void append_grapheme(std::string_view grapheme, Rewritten& output) const {
    if (grapheme.size() < 6) {
      if (const auto found = find(grapheme)) return output.replace(grapheme, *found);
    }
    for (size_t at = 0; at < grapheme.size();) {
      const std::string_view one = grapheme.substr(at, unicode::decode(grapheme, at).size);
      if (const auto found = find(one))
        output.replace(one, *found);
      else
        output.keep(one);
      at += one.size();
    }
  }

  Charsmap map_;
  std::array<bool, 128> changes_{};
};

}  // namespace

std::unique_ptr<Normalizer> make_precompiled_charsmap(const Json& object) {
  const auto blob = decode_base64(required_string(object, "precompiled_charsmap"));
  if (!blob) fail("key 'precompiled_charsmap' is not base64");
  Charsmap map(*blob);
  if (!unicode::is_valid(map.replacements()))
    fail("the character map holds replacements that are not UTF-8");
  return std::make_unique<PrecompiledCharsmap>(std::move(map));
}

namespace {

/// Rewrites code point by code point: rewrite(code_point, bytes, output).
template <class Rewrite>
void rewrite_each(Normalized& normalized, Rewrite rewrite) {
  std::string output;
  output.reserve(normalized.text.size());
  const std::string_view text = normalized.text;
  size_t origin_bytes = 0;
  for (size_t at = 0; at < text.size();) {
    const unicode::Decoded next = unicode::decode(text, at);
    rewrite(next.code_point, text.substr(at, next.size), output);
    if (at < normalized.origin_bytes) origin_bytes = output.size();
    at += next.size;
  }
  normalized.text = std::move(output);
  normalized.origin_bytes = origin_bytes;
}

template <void (*rewrite)(char32_t, std::string_view, std::string&)>
std::unique_ptr<Normalizer> make_each(const Json&) {
  return Normalizer::of([](Normalized& normalized) { rewrite_each(normalized, rewrite); });
}

void apply_normalization(unicode::Normalization form, Normalized& normalized) {
  const std::string origin =
      unicode::normalize(normalized.text.substr(0, normalized.origin_bytes), form);
  normalized.text = unicode::normalize(normalized.text, form);
  if (normalized.origin_bytes == 0 || normalized.text.empty()) return;
  // A mark behind the first character may have gone into it.
  normalized.origin_bytes = normalized.text.starts_with(origin)
                                ? origin.size()
                                : unicode::decode(normalized.text, 0).size;
}
template <unicode::Normalization form>
std::unique_ptr<Normalizer> make_normalization(const Json&) {
  return Normalizer::of([](Normalized& normalized) { apply_normalization(form, normalized); });
}

void lower(char32_t c, std::string_view, std::string& output) {
  unicode::append_lower(output, c);
}
void strip_accent(char32_t c, std::string_view bytes, std::string& output) {
  if (!unicode::is_combining_mark(c)) output += bytes;
}
void to_byte_alphabet(char32_t, std::string_view bytes, std::string& output) {
  append_byte_alphabet(output, bytes);
}
/// Source: `tokenizers`, normalizers/unicode.rs, do_nmt.
void nmt(char32_t c, std::string_view bytes, std::string& output) {
  const bool is_removed = (c >= 0x01 && c <= 0x08) || c == 0x0b || (c >= 0x0e && c <= 0x1f) ||
                          c == 0x7f || c == 0x8f || c == 0x9f;
  const bool is_blank = c == 0x09 || c == 0x0a || c == 0x0c || c == 0x0d || c == 0x1680 ||
                        (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                        c == 0xfeff || c == 0xfffd;
  if (is_blank)
    output += ' ';
  else if (!is_removed)
    output += bytes;
}

std::unique_ptr<Normalizer> make_strip(const Json& object) {
  return Normalizer::of([left = required_bool(object, "strip_left"),
                         right = required_bool(object, "strip_right")](Normalized& normalized) {
    const std::string_view text = normalized.text;
    const size_t begin = left ? unicode::spaces_end(text, 0) : 0;
    const size_t end =
        right ? std::max(unicode::spaces_begin(text, text.size()), begin) : text.size();
    normalized.origin_bytes -= std::min(normalized.origin_bytes, begin);
    normalized.text = normalized.text.substr(begin, end - begin);
  });
}

std::unique_ptr<Normalizer> make_prepend(const Json& object) {
  return Normalizer::of([prefix = required_string(object, "prepend")](Normalized& normalized) {
    prepend(normalized, prefix);
  });
}

void replace(const Pattern& pattern, std::string_view content, Normalized& normalized) {
  const std::string_view text = normalized.text;
  const size_t origin = normalized.origin_bytes;
  std::string output;
  size_t at = 0, origin_bytes = 0;
  const auto keep = [&](size_t end) {
    output += text.substr(at, end - at);
    origin_bytes += std::min(end, origin) - std::min(at, origin);
  };
  pattern.for_each(text, [&](Span match) {
    keep(match.begin);
    output += content;
    check_growth(text.size(), output.size());
    // The replacement of a match stems from the match's last character.
    if (match.end <= origin) origin_bytes += content.size();
    at = match.end;
  });
  keep(text.size());
  normalized = {std::move(output), origin_bytes};
}
std::unique_ptr<Normalizer> make_replace(const Json& object) {
  return Normalizer::of([pattern = make_pattern(object),
                         content = required_string(object, "content")](Normalized& normalized) {
    replace(*pattern, content, normalized);
  });
}

bool is_chinese(char32_t c) {
  // Source: `tokenizers`, normalizers/bert.rs, is_chinese_char, with its gap before U+2B920.
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
         (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b81f) ||
         (c >= 0x2b920 && c <= 0x2ceaf) || (c >= 0xf900 && c <= 0xfaff) ||
         (c >= 0x2f800 && c <= 0x2fa1f);
}

void clean_text(char32_t c, std::string_view bytes, std::string& output) {
  if (c == 0 || c == 0xfffd || unicode::is_control(c)) return;
  output += unicode::is_space(c) ? " " : bytes;
}
void set_chinese_apart(char32_t c, std::string_view bytes, std::string& output) {
  if (is_chinese(c))
    output.append(" ").append(bytes).append(" ");
  else
    output += bytes;
}
void strip_nonspacing_mark(char32_t c, std::string_view bytes, std::string& output) {
  if (!unicode::is_nonspacing_mark(c)) output += bytes;
}

std::unique_ptr<Normalizer> make_bert(const Json& object) {
  const auto flag = [&](const char* key, bool usual) {
    return optional_bool(object, key).value_or(usual);
  };
  const bool lowercases = flag("lowercase", true);
  return Normalizer::of(
      [cleans_text = flag("clean_text", true), handles_chinese = flag("handle_chinese_chars", true),
       strips_accents = flag("strip_accents", lowercases), lowercases](Normalized& normalized) {
        if (cleans_text) rewrite_each(normalized, clean_text);
        if (handles_chinese) rewrite_each(normalized, set_chinese_apart);
        if (strips_accents) {
          apply_normalization(unicode::Normalization::kNfd, normalized);
          rewrite_each(normalized, strip_nonspacing_mark);
        }
        if (lowercases) rewrite_each(normalized, lower);
      });
}

}  // namespace

const StepRegistry<Normalizer> kNormalizers{
    "type",
    {
        {"BertNormalizer", make_bert},
        {"ByteLevel", make_each<to_byte_alphabet>},
        {"Lowercase", make_each<lower>},
        {"NFC", make_normalization<unicode::Normalization::kNfc>},
        {"NFD", make_normalization<unicode::Normalization::kNfd>},
        {"NFKC", make_normalization<unicode::Normalization::kNfkc>},
        {"NFKD", make_normalization<unicode::Normalization::kNfkd>},
        {"Nmt", make_each<nmt>},
        {"Precompiled", make_precompiled_charsmap},
        {"Prepend", make_prepend},
        {"Replace", make_replace},
        {"Strip", make_strip},
        {"StripAccents", make_each<strip_accent>},
    }};

void prepend(Normalized& normalized, std::string_view prefix) {
  if (normalized.text.empty()) return;
  normalized.text.insert(0, prefix);
  if (normalized.origin_bytes > 0) normalized.origin_bytes += prefix.size();
}

std::unique_ptr<Normalizer> make_normalizer(const Json& json, const std::string& path) {
  return Normalizer::of([steps = make_steps(kNormalizers, json, path, "normalizers",
                                            "normalizers")](Normalized& normalized) {
    const size_t size = normalized.text.size();
    for (const auto& step : steps) {
      step->apply(normalized);
      check_growth(size, normalized.text.size());
    }
  });
}

}  // namespace kvcal::tokenizers
