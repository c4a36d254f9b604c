#pragma once

#include <string_view>
#include <vector>

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

}  // namespace kvcal::tokenizers
