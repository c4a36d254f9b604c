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
  enum class PieceType { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };
  struct Piece {
    std::string_view text;
    float score = 0.0f;
    PieceType type = PieceType::kNormal;
  };
  std::vector<Piece> pieces;  ///< by id
  bool is_bpe = false, byte_fallback = false, treat_whitespace_as_suffix = false;
  bool has_charsmap = false, add_dummy_prefix = true, remove_extra_whitespaces = true,
       escape_whitespaces = true;
};

/// Throws Error for bytes that are no ModelProto that sentencepiece's library can be trusted with:
/// broken fields, no pieces, too many or too long ones, scores that are not finite, a character map
/// with loose ends.
ModelProto read_model_proto(std::string_view bytes);

/// sentencepiece's BPE in our own BPE, for the models where both give the same ids: no character
/// map, spaces kept, no pieces of unusual types, every character of a piece a piece itself, no
/// piece with a space mark behind another character. Llama's and Mistral's are of this kind.
class ScoredBpe {
 public:
  /// nullptr when the model is of another kind.
  static std::unique_ptr<ScoredBpe> make(const ModelProto& model);

  /// Appends the ids of text; with mark_start a space mark goes before it.
  void encode(std::string_view text, bool mark_start, std::vector<TokenId>& ids) const;

 private:
  explicit ScoredBpe(std::unique_ptr<TokenModel> bpe) : bpe_(std::move(bpe)) {}

  std::unique_ptr<TokenModel> bpe_;
  ScratchPool scratch_;
};

}  // namespace kvcal::tokenizers
