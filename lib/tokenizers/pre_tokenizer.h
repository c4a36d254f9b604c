#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/registry.h"
#include "tokenizers/pattern.h"

namespace kvcal::tokenizers {

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

/// One step of splitting. Source: `tokenizers`, src/pre_tokenizers. Thread-safe.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// Hands the parts of piece to out, in order; empty parts may be among them.
  virtual void split(Piece piece, Visitor<Piece> out) const = 0;
  /// Whether this step writes all that it hands out in GPT-2's alphabet.
  virtual bool writes_alphabet() const { return false; }
  /// From now on such a step leaves bytes as they are, because the model reads bytes.
  virtual void keep_bytes() {}
};

using MakePreTokenizer = std::unique_ptr<PreTokenizer> (*)(const Json& object);

/// "type" → maker; "Sequence" is not in it.
extern const Registry<MakePreTokenizer> kPreTokenizers;

/// Steps one after the other, each on the parts of the one before.
class PreTokenizers {
 public:
  PreTokenizers() = default;
  /// Those that json (an object or a "Sequence") describes. path: where json stands in the file,
  /// for messages.
  PreTokenizers(const Json& json, const std::string& path);

  /// Hands the parts of piece that are not empty to out.
  void split(Piece piece, Visitor<Piece> out) const { run(0, piece.text.size(), piece, out); }
  /// Whether the last step does.
  bool writes_alphabet() const { return !steps_.empty() && steps_.back()->writes_alphabet(); }
  void keep_bytes() { steps_.back()->keep_bytes(); }

 private:
  /// whole_size: of the piece that the first step was given.
  void run(size_t step, size_t whole_size, Piece piece, Visitor<Piece> out) const;

  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

}  // namespace kvcal::tokenizers
