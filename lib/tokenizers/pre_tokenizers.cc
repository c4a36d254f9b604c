#include "tokenizers/pre_tokenizer.h"

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

Behaviour read_behaviour(const Json& object) {
  static const Registry<Behaviour> kBehaviours{
      "behavior",
      {{"Removed", Behaviour::kRemoved},
       {"Isolated", Behaviour::kIsolated},
       {"MergedWithPrevious", Behaviour::kMergedWithPrevious},
       {"MergedWithNext", Behaviour::kMergedWithNext},
       {"Contiguous", Behaviour::kContiguous}}};
  return kBehaviours.at(required_string(object, "behavior"));
}

class Split : public PreTokenizer {
 public:
  Split(std::unique_ptr<Pattern> pattern, bool invert, Behaviour behaviour)
      : pattern_(std::move(pattern)), invert_(invert), behaviour_(behaviour) {}
  void split(Piece piece, Visitor<Piece> out) const override {
    split_at(piece.text, *pattern_, invert_, behaviour_,
             [&](Span span) { out(part_of(piece, span)); });
  }

 private:
  std::unique_ptr<Pattern> pattern_;
  bool invert_;
  Behaviour behaviour_;
};

/// Splits at single code points that a predicate accepts.
template <class IsMatch>
class SplitAtCharacters : public PreTokenizer {
 public:
  SplitAtCharacters(IsMatch is_match, Behaviour behaviour)
      : is_match_(is_match), behaviour_(behaviour) {}
  void split(Piece piece, Visitor<Piece> out) const override {
    const auto visit = [&](Span span) { out(part_of(piece, span)); };
    Splitter splitter(behaviour_, visit);
    size_t begin = 0;
    for (size_t at = 0; at < piece.text.size();) {
      const unicode::Decoded next = unicode::decode(piece.text, at);
      const size_t end = at + next.size;
      if (is_match_(next.code_point)) {
        if (begin < at) splitter.add({begin, at}, false);
        splitter.add({at, end}, true);
        begin = end;
      }
      at = end;
    }
    if (begin < piece.text.size()) splitter.add({begin, piece.text.size()}, false);
    splitter.finish();
  }

 private:
  IsMatch is_match_;
  Behaviour behaviour_;
};
template <class IsMatch>
std::unique_ptr<PreTokenizer> split_characters(IsMatch is_match, Behaviour behaviour) {
  return std::make_unique<SplitAtCharacters<IsMatch>>(is_match, behaviour);
}

bool is_number(char32_t c) {
  return c < 0x80 ? c >= '0' && c <= '9' : unicode::is_numeric(c);
}

class ByteLevel : public PreTokenizer {
 public:
  ByteLevel(bool add_prefix_space, bool use_regex) : add_prefix_space_(add_prefix_space) {
    if (use_regex)
      pattern_ = make_regex(
          R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)");
  }
  bool writes_alphabet() const override { return writes_alphabet_; }
  void keep_bytes() override { writes_alphabet_ = false; }
  void split(Piece piece, Visitor<Piece> out) const override {
    Normalized with_space;
    if (add_prefix_space_ && !piece.text.starts_with(' ')) {
      with_space = {std::string(piece.text), piece.origin_bytes};
      prepend(with_space, " ");
      piece = {with_space.text, with_space.origin_bytes};
    }
    if (!pattern_) return emit(piece, out);
    pattern_->for_each(piece.text, [&](Span span) { emit(part_of(piece, span), out); });
  }

 private:
  void emit(Piece piece, Visitor<Piece> out) const {
    if (!writes_alphabet_) return out(piece);
    std::string text, origin;
    append_byte_alphabet(text, piece.text);
    append_byte_alphabet(origin, piece.text.substr(0, piece.origin_bytes));
    out({text, origin.size()});
  }

  std::unique_ptr<Pattern> pattern_;
  bool add_prefix_space_, writes_alphabet_ = true;
};

enum class PrependScheme { kFirst, kNever, kAlways };

class Metaspace : public PreTokenizer {
 public:
  Metaspace(char32_t replacement, PrependScheme scheme, bool splits)
      : replacement_(unicode::encode(replacement)),
        pattern_(make_literal(replacement_)),
        scheme_(scheme),
        splits_(splits) {}
  void split(Piece piece, Visitor<Piece> out) const override {
    Normalized marked{{}, piece.origin_bytes};
    marked.text.reserve(piece.text.size() + piece.text.size() / 2 + replacement_.size());
    for (size_t i = 0; i < piece.text.size(); ++i) {
      if (piece.text[i] != ' ') {
        marked.text += piece.text[i];
        continue;
      }
      marked.text += replacement_;
      if (i < piece.origin_bytes) marked.origin_bytes += replacement_.size() - 1;
    }
    const bool is_wanted = scheme_ == PrependScheme::kAlways ||
                           (scheme_ == PrependScheme::kFirst && piece.origin_bytes > 0);
    if (is_wanted && !marked.text.starts_with(replacement_)) prepend(marked, replacement_);
    piece = {marked.text, marked.origin_bytes};
    if (!splits_) return out(piece);
    split_at(piece.text, *pattern_, false, Behaviour::kMergedWithNext,
             [&](Span span) { out(part_of(piece, span)); });
  }

 private:
  std::string replacement_;
  std::unique_ptr<Pattern> pattern_;
  PrependScheme scheme_;
  bool splits_;
};

/// \w+|[^\w\s]+ of Rust's regex crate, whose \w is not that of the other expressions.
class Whitespace : public PreTokenizer {
 public:
  void split(Piece piece, Visitor<Piece> out) const override {
    size_t begin = 0;
    int previous = 0;
    for (size_t at = 0; at < piece.text.size();) {
      const unicode::Decoded next = unicode::decode(piece.text, at);
      const int kind = unicode::is_space(next.code_point)  ? 0
                       : unicode::is_word(next.code_point) ? 1
                                                           : 2;
      if (kind != previous) {
        if (previous != 0) out(part_of(piece, {begin, at}));
        begin = at;
      }
      previous = kind;
      at += next.size;
    }
    if (previous != 0) out(part_of(piece, {begin, piece.text.size()}));
  }
};

class Bert : public PreTokenizer {
 public:
  void split(Piece piece, Visitor<Piece> out) const override {
    spaces_->split(piece, [&](Piece word) { punctuation_->split(word, out); });
  }

 private:
  std::unique_ptr<PreTokenizer> spaces_ = split_characters(unicode::is_space, Behaviour::kRemoved);
  std::unique_ptr<PreTokenizer> punctuation_ =
      split_characters(unicode::is_punctuation, Behaviour::kIsolated);
};

class FixedLength : public PreTokenizer {
 public:
  explicit FixedLength(int64_t length) : length_(length) {}
  void split(Piece piece, Visitor<Piece> out) const override {
    for (size_t at = 0; at < piece.text.size();) {
      size_t end = at;
      for (int64_t i = 0; i < length_ && end < piece.text.size(); ++i)
        end += unicode::decode(piece.text, end).size;
      out(part_of(piece, {at, end}));
      at = end;
    }
  }

 private:
  int64_t length_;
};

std::unique_ptr<PreTokenizer> make_split(const Json& object) {
  return std::make_unique<Split>(make_pattern(object), required_bool(object, "invert"),
                                 read_behaviour(object));
}
std::unique_ptr<PreTokenizer> make_digits(const Json& object) {
  return split_characters(is_number, required_bool(object, "individual_digits")
                                         ? Behaviour::kIsolated
                                         : Behaviour::kContiguous);
}
std::unique_ptr<PreTokenizer> make_byte_level(const Json& object) {
  return std::make_unique<ByteLevel>(required_bool(object, "add_prefix_space"),
                                     optional_bool(object, "use_regex").value_or(true));
}
std::unique_ptr<PreTokenizer> make_metaspace(const Json& object) {
  static const Registry<PrependScheme> kSchemes{"prepend_scheme",
                                                {{"first", PrependScheme::kFirst},
                                                 {"never", PrependScheme::kNever},
                                                 {"always", PrependScheme::kAlways}}};
  const auto scheme_name = optional_string(object, "prepend_scheme");
  PrependScheme scheme = kSchemes.at(scheme_name.value_or("always"));
  if (!optional_bool(object, "add_prefix_space").value_or(true)) {
    if (scheme_name && scheme != PrependScheme::kNever)
      fail("key 'add_prefix_space' is false, but 'prepend_scheme' is '", *scheme_name, "'");
    scheme = PrependScheme::kNever;
  }
  return std::make_unique<Metaspace>(required_character(object, "replacement"), scheme,
                                     optional_bool(object, "split").value_or(true));
}
std::unique_ptr<PreTokenizer> make_punctuation(const Json& object) {
  const bool has_behaviour = find_field(object, "behavior") != nullptr;
  return split_characters(unicode::is_punctuation,
                          has_behaviour ? read_behaviour(object) : Behaviour::kIsolated);
}
std::unique_ptr<PreTokenizer> make_delimiter(const Json& object) {
  const char32_t delimiter = required_character(object, "delimiter");
  return split_characters([delimiter](char32_t c) { return c == delimiter; }, Behaviour::kRemoved);
}
std::unique_ptr<PreTokenizer> make_fixed_length(const Json& object) {
  const int64_t length = optional_int(object, "length").value_or(5);
  if (length < 1) fail("key 'length' is ", length, ", expected at least 1");
  return std::make_unique<FixedLength>(length);
}

}  // namespace

const Registry<MakePreTokenizer> kPreTokenizers{
    "type",
    {
        {"BertPreTokenizer",
         [](const Json&) -> std::unique_ptr<PreTokenizer> { return std::make_unique<Bert>(); }},
        {"ByteLevel", make_byte_level},
        {"CharDelimiterSplit", make_delimiter},
        {"Digits", make_digits},
        {"FixedLength", make_fixed_length},
        {"Metaspace", make_metaspace},
        {"Punctuation", make_punctuation},
        {"Split", make_split},
        {"Whitespace",
         [](const Json&) -> std::unique_ptr<PreTokenizer> {
           return std::make_unique<Whitespace>();
         }},
        {"WhitespaceSplit",
         [](const Json&) { return split_characters(unicode::is_space, Behaviour::kRemoved); }},
    }};

PreTokenizers::PreTokenizers(const Json& json, const std::string& path) {
  for_each_part(json, path, "pretokenizers", [&](const Json& part, const std::string& type) {
    if (steps_.size() == kMostSteps) fail("more than ", kMostSteps, " pre-tokenizers");
    steps_.push_back(kPreTokenizers.at(type)(part));
  });
}

void PreTokenizers::run(size_t step, size_t whole_size, Piece piece, Visitor<Piece> out) const {
  if (piece.text.empty()) return;
  check_growth(whole_size, piece.text.size());
  if (step == steps_.size()) return out(piece);
  steps_[step]->split(piece, [&](Piece part) { run(step + 1, whole_size, part, out); });
}

}  // namespace kvcal::tokenizers
