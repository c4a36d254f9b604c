/// The components of a tokenizer.json beside its model: normalizers, pre-tokenizers,
/// post-processors and decoders, each a row of steps.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "core/registry.h"
#include "tokenizers/pattern.h"
#include "tokenizers/tokenizer.h"

namespace kvcal::tokenizers {

/// GPT-2's alphabet: each byte as one printable character. Bytes that print in Latin-1 stand for
/// themselves, the others, in order, for U+0100 on. Source: openai/gpt-2, encoder.py,
/// bytes_to_unicode.
char32_t byte_to_character(uint8_t byte);

/// Appends the characters of bytes.
void append_byte_alphabet(std::string& text, std::string_view bytes);
/// The bytes that text spells, or nullopt when a character of it is not of the alphabet.
std::optional<std::string> bytes_of_alphabet(std::string_view text);

/// The bytes of base64 text (RFC 4648, padding not needed), or nullopt for other characters.
std::optional<std::string> decode_base64(std::string_view text);

/// One step of a component: a function with what it needs. Thread-safe.
template <class... Arguments>
class Step {
 public:
  virtual ~Step() = default;
  virtual void apply(Arguments... arguments) const = 0;

  template <class Function>
  static std::unique_ptr<Step> of(Function function) {
    class FunctionStep : public Step {
     public:
      explicit FunctionStep(Function function) : function_(std::move(function)) {}
      void apply(Arguments... arguments) const override { function_(arguments...); }

     private:
      Function function_;
    };
    return std::make_unique<FunctionStep>(std::move(function));
  }
};

/// "type" → function that builds the step from its object in tokenizer.json and throws Error naming
/// the field. "Sequence" is in no registry, make_steps takes it apart.
template <class AnyStep>
using StepRegistry = Registry<std::unique_ptr<AnyStep> (*)(const Json& object)>;

/// Visits the step that json describes, or, when its type is "Sequence", those in its list
/// `list_key`, nested ones too, in order. Errors are told where in the file they arose:
/// "pre_tokenizer.pretokenizers[1]: ...". Throws Error for more steps than a tokenizer may have.
void for_each_step(const Json& json, const std::string& path, std::string_view list_key,
                   std::string_view steps_name,
                   const std::function<void(const Json& step, const std::string& type)>& visit);

/// The steps that json describes. path: where json stands in the file, for messages.
template <class AnyStep>
std::vector<std::unique_ptr<AnyStep>> make_steps(const StepRegistry<AnyStep>& registry,
                                                 const Json& json, const std::string& path,
                                                 std::string_view list_key,
                                                 std::string_view steps_name) {
  std::vector<std::unique_ptr<AnyStep>> steps;
  for_each_step(json, path, list_key, steps_name, [&](const Json& step, const std::string& type) {
    steps.push_back(registry.at(type)(step));
  });
  return steps;
}

/// Throws Error where the steps of a tokenizer.json make too much of a text: each may double it,
/// and a row of them would fill any memory. NFKC makes the most of one character of all that are
/// published, 11 times as many bytes.
inline void check_growth(size_t before, size_t after) {
  constexpr size_t kMostTimes = 32, kMostOfShort = 65536;
  if (after > kMostTimes * before + kMostOfShort)
    fail("the tokenizer makes more than ", kMostTimes * before + kMostOfShort, " bytes or ids of ",
         before, ", the limit");
}

/// A text on its way through the normalizers.
struct Normalized {
  std::string text;
  /// How many leading bytes of text stem from the first character of the whole input. Metaspace
  /// with prepend_scheme "first" marks only pieces that begin there. 0 when none does.
  size_t origin_bytes = 0;
};
/// Puts prefix before normalized, unless that is empty.
void prepend(Normalized& normalized, std::string_view prefix);

/// Rewrites valid UTF-8 into valid UTF-8. Source: `tokenizers`, src/normalizers.
using Normalizer = Step<Normalized&>;
extern const StepRegistry<Normalizer> kNormalizers;
/// The normalizers that json describes, one after the other.
std::unique_ptr<Normalizer> make_normalizer(const Json& json, const std::string& path);

/// "Precompiled": the character map that sentencepiece compiles into its models.
std::unique_ptr<Normalizer> make_precompiled_charsmap(const Json& object);

/// A part of the normalized text. Borrows the text for the length of a call.
struct Piece {
  std::string_view text;
  size_t origin_bytes = 0;  ///< see Normalized
};

/// The part of piece from begin to end.
inline Piece part_of(Piece piece, Span span) {
  const size_t origin = piece.origin_bytes;
  return {piece.text.substr(span.begin, span.end - span.begin),
          span.begin < origin ? (origin < span.end ? origin : span.end) - span.begin : 0};
}

/// Hands the parts of a piece to the visitor, in order; empty parts may be among them. Source:
/// `tokenizers`, src/pre_tokenizers.
using PreTokenizer = Step<Piece, Visitor<Piece>>;
extern const StepRegistry<PreTokenizer> kPreTokenizers;

/// Steps one after the other, each on the parts of the one before.
class PreTokenizers {
 public:
  PreTokenizers() = default;
  /// Those that json describes. path: where json stands in the file, for messages.
  PreTokenizers(const Json& json, const std::string& path);

  /// Hands the parts of piece that are not empty to out.
  void split(Piece piece, Visitor<Piece> out) const { run(0, piece.text.size(), piece, out); }
  /// Whether the last step writes all that it hands out in GPT-2's alphabet.
  bool writes_alphabet() const;
  /// From now on that step leaves bytes as they are, because the model reads bytes.
  void keep_bytes();

 private:
  /// whole_size: of the piece that the first step was given.
  void run(size_t step, size_t whole_size, Piece piece, Visitor<Piece> out) const;

  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

/// Works on the ids of one text. Without add_special_tokens only what templates do to the text
/// itself happens (repeat it, drop it). Source: `tokenizers`, src/processors, for single sequences.
using PostProcessor = Step<std::vector<TokenId>&, bool /*add_special_tokens*/>;
extern const StepRegistry<PostProcessor> kPostProcessors;

/// One step from tokens to text: rewrites the list of token texts. Source: `tokenizers`,
/// src/decoders.
using Decoder = Step<std::vector<std::string>&>;
extern const StepRegistry<Decoder> kDecoders;

bool required_bool(const Json& object, std::string_view key);
const Json& required_array(const Json& object, std::string_view key);
/// A string of exactly one code point.
char32_t required_character(const Json& object, std::string_view key);
/// The {"String": ...} or {"Regex": ...} of a "pattern" field.
std::unique_ptr<Pattern> make_pattern(const Json& object);
/// value as a token id: an integer from 0 to 2^31 - 1.
TokenId token_id(const Json& value, std::string_view what);
/// Visits the "added_tokens_decoder" of a tokenizer_config.json: id → flags.
void for_each_numbered_token(const Json& config,
                             const std::function<void(TokenId id, const Json& token)>& visit);

}  // namespace kvcal::tokenizers
