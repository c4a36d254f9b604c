#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.h"
#include "tokenizers/byte_alphabet.h"
#include "tokenizers/growth.h"
#include "tokenizers/json_parts.h"
#include "tokenizers/normalizer.h"
#include "unicode/unicode.h"
#include "unicode/unicode_normalize.h"

namespace kvcal::tokenizers {
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

/// A normalizer that is a function of one code point.
template <class Rewrite>
class EachNormalizer : public Normalizer {
 public:
  explicit EachNormalizer(Rewrite rewrite) : rewrite_(rewrite) {}
  void apply(Normalized& normalized) const override { rewrite_each(normalized, rewrite_); }

 private:
  Rewrite rewrite_;
};
template <class Rewrite>
std::unique_ptr<Normalizer> each(Rewrite rewrite) {
  return std::make_unique<EachNormalizer<Rewrite>>(rewrite);
}

class UnicodeForm : public Normalizer {
 public:
  explicit UnicodeForm(unicode::Form form) : form_(form) {}
  void apply(Normalized& normalized) const override {
    const std::string origin =
        unicode::normalize(normalized.text.substr(0, normalized.origin_bytes), form_);
    normalized.text = unicode::normalize(normalized.text, form_);
    if (normalized.origin_bytes == 0 || normalized.text.empty()) return;
    // A mark behind the first character may have gone into it.
    normalized.origin_bytes = normalized.text.starts_with(origin)
                                  ? origin.size()
                                  : unicode::decode(normalized.text, 0).size;
  }

 private:
  unicode::Form form_;
};
template <unicode::Form form>
std::unique_ptr<Normalizer> make_form(const Json&) {
  return std::make_unique<UnicodeForm>(form);
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

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(Normalized& normalized) const override {
    const std::string_view text = normalized.text;
    size_t begin = 0, end = text.size();
    while (left_ && begin < end) {
      const unicode::Decoded next = unicode::decode(text, begin);
      if (!unicode::is_space(next.code_point)) break;
      begin += next.size;
    }
    while (right_ && end > begin) {
      const unicode::Decoded last = unicode::decode_before(text, end);
      if (!unicode::is_space(last.code_point)) break;
      end -= last.size;
    }
    normalized.origin_bytes -= std::min(normalized.origin_bytes, begin);
    normalized.text = normalized.text.substr(begin, end - begin);
  }

 private:
  bool left_, right_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(Normalized& normalized) const override { prepend(normalized, prefix_); }

 private:
  std::string prefix_;
};

class Replace : public Normalizer {
 public:
  Replace(std::unique_ptr<Pattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(Normalized& normalized) const override {
    const std::string_view text = normalized.text;
    const size_t origin = normalized.origin_bytes;
    std::string output;
    size_t at = 0, origin_bytes = 0;
    const auto keep = [&](size_t end) {
      output += text.substr(at, end - at);
      origin_bytes += std::min(end, origin) - std::min(at, origin);
    };
    pattern_->for_each(text, [&](Span match) {
      keep(match.begin);
      output += content_;
      check_growth(text.size(), output.size());
      // The replacement of a match stems from the match's last character.
      if (match.end <= origin) origin_bytes += content_.size();
      at = match.end;
    });
    keep(text.size());
    normalized = {std::move(output), origin_bytes};
  }

 private:
  std::unique_ptr<Pattern> pattern_;
  std::string content_;
};

class Sequence : public Normalizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Normalizer>> parts) : parts_(std::move(parts)) {}
  void apply(Normalized& normalized) const override {
    const size_t size = normalized.text.size();
    for (const auto& part : parts_) {
      part->apply(normalized);
      check_growth(size, normalized.text.size());
    }
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

bool is_chinese(char32_t c) {
  // Source: `tokenizers`, normalizers/bert.rs, is_chinese_char, with its gap before U+2B920.
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
         (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b81f) ||
         (c >= 0x2b920 && c <= 0x2ceaf) || (c >= 0xf900 && c <= 0xfaff) ||
         (c >= 0x2f800 && c <= 0x2fa1f);
}

struct BertOptions {
  bool clean_text = true, handle_chinese_chars = true, strip_accents = true, lowercase = true;
};

class Bert : public Normalizer {
 public:
  explicit Bert(const BertOptions& options) : options_(options) {}
  void apply(Normalized& normalized) const override {
    if (options_.clean_text)
      rewrite_each(normalized, [](char32_t c, std::string_view bytes, std::string& output) {
        if (c == 0 || c == 0xfffd || unicode::is_control(c)) return;
        if (unicode::is_space(c))
          output += ' ';
        else
          output += bytes;
      });
    if (options_.handle_chinese_chars)
      rewrite_each(normalized, [](char32_t c, std::string_view bytes, std::string& output) {
        if (is_chinese(c))
          output.append(" ").append(bytes).append(" ");
        else
          output += bytes;
      });
    if (options_.strip_accents) {
      UnicodeForm(unicode::Form::kNfd).apply(normalized);
      rewrite_each(normalized, [](char32_t c, std::string_view bytes, std::string& output) {
        if (!unicode::is_nonspacing_mark(c)) output += bytes;
      });
    }
    if (options_.lowercase) rewrite_each(normalized, lower);
  }

 private:
  BertOptions options_;
};

std::unique_ptr<Normalizer> make_bert(const Json& object) {
  const bool lowercase = optional_bool(object, "lowercase").value_or(true);
  return std::make_unique<Bert>(BertOptions{
      .clean_text = optional_bool(object, "clean_text").value_or(true),
      .handle_chinese_chars = optional_bool(object, "handle_chinese_chars").value_or(true),
      .strip_accents = optional_bool(object, "strip_accents").value_or(lowercase),
      .lowercase = lowercase,
  });
}
std::unique_ptr<Normalizer> make_strip(const Json& object) {
  return std::make_unique<Strip>(required_bool(object, "strip_left"),
                                 required_bool(object, "strip_right"));
}
std::unique_ptr<Normalizer> make_prepend(const Json& object) {
  return std::make_unique<Prepend>(required_string(object, "prepend"));
}
std::unique_ptr<Normalizer> make_replace(const Json& object) {
  return std::make_unique<Replace>(make_pattern(object), required_string(object, "content"));
}

}  // namespace

const Registry<MakeNormalizer> kNormalizers{
    "type",
    {
        {"BertNormalizer", make_bert},
        {"ByteLevel", [](const Json&) { return each(to_byte_alphabet); }},
        {"Lowercase", [](const Json&) { return each(lower); }},
        {"NFC", make_form<unicode::Form::kNfc>},
        {"NFD", make_form<unicode::Form::kNfd>},
        {"NFKC", make_form<unicode::Form::kNfkc>},
        {"NFKD", make_form<unicode::Form::kNfkd>},
        {"Nmt", [](const Json&) { return each(nmt); }},
        {"Precompiled", make_precompiled_charsmap},
        {"Prepend", make_prepend},
        {"Replace", make_replace},
        {"Strip", make_strip},
        {"StripAccents", [](const Json&) { return each(strip_accent); }},
    }};

void prepend(Normalized& normalized, std::string_view prefix) {
  if (normalized.text.empty()) return;
  normalized.text.insert(0, prefix);
  if (normalized.origin_bytes > 0) normalized.origin_bytes += prefix.size();
}

std::unique_ptr<Pattern> make_pattern(const Json& object) {
  const Json* pattern = find_field(object, "pattern");
  if (!pattern) fail_missing("pattern", "an object with 'String' or 'Regex'");
  if (const auto text = optional_string(*pattern, "String")) return make_literal(*text);
  if (const auto text = optional_string(*pattern, "Regex")) return make_regex(*text);
  fail("key 'pattern' has neither 'String' nor 'Regex'");
}

std::unique_ptr<Normalizer> make_normalizer(const Json& json, const std::string& path) {
  std::vector<std::unique_ptr<Normalizer>> parts;
  for_each_part(json, path, "normalizers", [&](const Json& part, const std::string& type) {
    if (parts.size() == kMostSteps) fail("more than ", kMostSteps, " normalizers");
    parts.push_back(kNormalizers.at(type)(part));
  });
  return std::make_unique<Sequence>(std::move(parts));
}

}  // namespace kvcal::tokenizers
