#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizers/token_model.h"

namespace kvcal::tokenizers {

/// The fields of a sentencepiece model that kvcal uses. Source: sentencepiece_model.proto. Borrows
/// the file's bytes.
struct ModelProto {
  enum class Kind { kUnigram = 1, kBpe, kWord, kCharacter };
  enum class PieceType { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };
  struct Piece {
    std::string_view text;
    float score = 0.0f;
    PieceType type = PieceType::kNormal;
  };
  std::vector<Piece> pieces;  ///< by id
  Kind kind = Kind::kUnigram;
  bool byte_fallback = false, treat_whitespace_as_suffix = false;
  std::string_view charsmap;  ///< empty: none
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
};

/// Throws Error for bytes that are no ModelProto that sentencepiece's library can be trusted with:
/// broken fields, no pieces, too many or too long ones, scores that are not finite, a character map
/// with loose ends.
ModelProto read_model_proto(std::string_view bytes);

/// Text to ids as sentencepiece's library has them. Thread-safe.
class PieceEncoder {
 public:
  virtual ~PieceEncoder() = default;
  /// Appends the ids of text, which is UTF-8; with has_prefix the model's dummy prefix goes before
  /// it, where the model has one.
  virtual void encode(std::string_view text, bool has_prefix, std::vector<TokenId>& ids) const = 0;
};

/// The fastest that gives the library's ids for this model.
std::unique_ptr<PieceEncoder> make_piece_encoder(const ModelProto& model);
/// One by our own BPE, for the models where both give the same ids: no character map, spaces kept,
/// no pieces of unusual types, every character of a piece a piece itself, no piece with a space
/// mark behind another character. Llama's and Mistral's are of this kind; nullptr for others.
std::unique_ptr<PieceEncoder> make_scored_bpe(const ModelProto& model);

}  // namespace kvcal::tokenizers
