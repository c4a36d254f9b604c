
#include "tokenizers/components.h"
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

void split_piece(Piece piece, const Pattern& pattern, bool invert, Behaviour behaviour,
                 Visitor<Piece> out) {
  split_at(piece.text, pattern, invert, behaviour, [&](Span span) { out(part_of(piece, span)); });
}

/// Single code points that a predicate accepts.
template <class IsMatch>
class Characters : public Pattern {
 public:
  explicit Characters(IsMatch is_match) : is_match_(is_match) {}
  void for_each(std::string_view text, Visitor<Span> visit) const override {
    for (size_t at = 0; at < text.size();) {
      const unicode::Decoded next = unicode::decode(text, at);
      if (is_match_(next.code_point)) visit({at, at + next.size});
      at += next.size;
    }
  }

 private:
  IsMatch is_match_;
};

template <class IsMatch>
std::unique_ptr<PreTokenizer> at_characters(IsMatch is_match, Behaviour behaviour) {
  return PreTokenizer::of(
      [pattern = Characters(is_match), behaviour](Piece piece, Visitor<Piece> out) {
        split_piece(piece, pattern, false, behaviour, out);
      });
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
  bool writes_alphabet() const { return writes_alphabet_; }
  void keep_bytes() { writes_alphabet_ = false; }
  void apply(Piece piece, Visitor<Piece> out) const override {
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

/// piece with a mark for each space, and one before it where the scheme wants that.
Normalized marked(Piece piece, std::string_view mark, PrependScheme scheme) {
  Normalized marked{{}, piece.origin_bytes};
  marked.text.reserve(piece.text.size() + piece.text.size() / 2 + mark.size());
  for (size_t i = 0; i < piece.text.size(); ++i) {
    if (piece.text[i] != ' ') {
      marked.text += piece.text[i];
      continue;
    }
    marked.text += mark;
    if (i < piece.origin_bytes) marked.origin_bytes += mark.size() - 1;
  }
  const bool is_wanted = scheme == PrependScheme::kAlways ||
                         (scheme == PrependScheme::kFirst && piece.origin_bytes > 0);
  if (is_wanted && !marked.text.starts_with(mark)) prepend(marked, mark);
  return marked;
}

/// \w+|[^\w\s]+ of Rust's regex crate, whose \w is not that of the other expressions.
void split_words(Piece piece, Visitor<Piece> out) {
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

/// Words between spaces, punctuation apart.
void split_bert(Piece piece, Visitor<Piece> out) {
  split_piece(piece, Characters(unicode::is_space), false, Behaviour::kRemoved, [&](Piece word) {
    split_piece(word, Characters(unicode::is_punctuation), false, Behaviour::kIsolated, out);
  });
}

std::unique_ptr<PreTokenizer> make_split(const Json& object) {
  return PreTokenizer::of([pattern = make_pattern(object), invert = required_bool(object, "invert"),
                           behaviour = read_behaviour(object)](Piece piece, Visitor<Piece> out) {
    split_piece(piece, *pattern, invert, behaviour, out);
  });
}
std::unique_ptr<PreTokenizer> make_digits(const Json& object) {
  return at_characters(is_number, required_bool(object, "individual_digits")
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
  const std::string mark = unicode::encode(required_character(object, "replacement"));
  return PreTokenizer::of(
      [mark, scheme, pattern = make_literal(mark),
       splits = optional_bool(object, "split").value_or(true)](Piece piece, Visitor<Piece> out) {
        const Normalized text = marked(piece, mark, scheme);
        piece = {text.text, text.origin_bytes};
        if (!splits) return out(piece);
        split_piece(piece, *pattern, false, Behaviour::kMergedWithNext, out);
      });
}
std::unique_ptr<PreTokenizer> make_punctuation(const Json& object) {
  const bool has_behaviour = find_field(object, "behavior") != nullptr;
  return at_characters(unicode::is_punctuation,
                       has_behaviour ? read_behaviour(object) : Behaviour::kIsolated);
}
std::unique_ptr<PreTokenizer> make_delimiter(const Json& object) {
  const char32_t delimiter = required_character(object, "delimiter");
  return at_characters([delimiter](char32_t c) { return c == delimiter; }, Behaviour::kRemoved);
}
std::unique_ptr<PreTokenizer> make_fixed_length(const Json& object) {
  const int64_t length = optional_int(object, "length").value_or(5);
  if (length < 1) fail("key 'length' is ", length, ", expected at least 1");
  return PreTokenizer::of([length](Piece piece, Visitor<Piece> out) {
    for (size_t at = 0; at < piece.text.size();) {
      size_t end = at;
      for (int64_t i = 0; i < length && end < piece.text.size(); ++i)
        end += unicode::decode(piece.text, end).size;
      out(part_of(piece, {at, end}));
      at = end;
    }
  });
}

}  // namespace

const StepRegistry<PreTokenizer> kPreTokenizers{
    "type",
    {
        {"BertPreTokenizer", [](const Json&) { return PreTokenizer::of(split_bert); }},
        {"ByteLevel", make_byte_level},
        {"CharDelimiterSplit", make_delimiter},
        {"Digits", make_digits},
        {"FixedLength", make_fixed_length},
        {"Metaspace", make_metaspace},
        {"Punctuation", make_punctuation},
        {"Split", make_split},
        {"Whitespace", [](const Json&) { return PreTokenizer::of(split_words); }},
        {"WhitespaceSplit",
         [](const Json&) { return at_characters(unicode::is_space, Behaviour::kRemoved); }},
    }};

PreTokenizers::PreTokenizers(const Json& json, const std::string& path)
    : steps_(make_steps(kPreTokenizers, json, path, "pretokenizers", "pre-tokenizers")) {}

bool PreTokenizers::writes_alphabet() const {
  const auto* last = steps_.empty() ? nullptr : dynamic_cast<const ByteLevel*>(steps_.back().get());
  return last && last->writes_alphabet();
}

void PreTokenizers::keep_bytes() {
  dynamic_cast<ByteLevel&>(*steps_.back()).keep_bytes();
}

void PreTokenizers::run(size_t step, size_t whole_size, Piece piece, Visitor<Piece> out) const {
  if (piece.text.empty()) return;
  check_growth(whole_size, piece.text.size());
  if (step == steps_.size()) return out(piece);
  steps_[step]->apply(piece, [&](Piece part) { run(step + 1, whole_size, part, out); });
}

}  // namespace kvcal::tokenizers
