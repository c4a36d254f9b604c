#include "tokenizers/model_proto.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>

#include "core/error.h"
#include "tokenizers/components.h"
#include "unicode/unicode.h"

namespace kvcal::tokenizers {
namespace {

constexpr size_t kMostPieces = size_t{1} << 22;
constexpr size_t kLongestPiece = 64 * 1024;

/// One field of a protobuf message.
struct Field {
  uint32_t number = 0;
  uint64_t value = 0;      ///< of a varint or a fixed field
  std::string_view bytes;  ///< of a length-delimited field
};

/// Walks over the fields of one message.
class Message {
 public:
  explicit Message(std::string_view bytes) : bytes_(bytes) {}

  bool next(Field& field) {
    if (at_ == bytes_.size()) return false;
    const uint64_t tag = varint();
    if (tag >> 3 == 0 || tag >> 3 > 0x1fffffff) fail("field number ", tag >> 3, " at byte ", at_);
    field = {static_cast<uint32_t>(tag >> 3), 0, {}};
    switch (tag & 7) {
      case 0:
        field.value = varint();
        break;
      case 1:
        field.value = fixed(8);
        break;
      case 2:
        field.bytes = take(varint());
        break;
      case 5:
        field.value = fixed(4);
        break;
      default:
        fail("field ", field.number, " has wire type ", tag & 7);
    }
    return true;
  }

 private:
  std::string_view take(uint64_t size) {
    if (size > bytes_.size() - at_)
      fail("field of ", size, " bytes at byte ", at_, ", only ", bytes_.size() - at_, " are left");
    const std::string_view part = bytes_.substr(at_, size);
    at_ += size;
    return part;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    fail("number at byte ", at_, " is too long");
  }
  uint64_t fixed(size_t size) {
    const std::string_view part = take(size);
    uint64_t value = 0;
    for (size_t i = size; i-- > 0;) value = (value << 8) | static_cast<unsigned char>(part[i]);
    return value;
  }

  std::string_view bytes_;
  size_t at_ = 0;
};

ModelProto::Piece read_piece(std::string_view bytes) {
  ModelProto::Piece piece;
  Message message(bytes);
  for (Field field; message.next(field);) {
    if (field.number == 1) piece.text = field.bytes;
    if (field.number == 2) piece.score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
    if (field.number == 3) {
      if (field.value < 1 || field.value > 6)
        fail("its type is ", field.value, ", expected 1 to 6");
      piece.type = static_cast<ModelProto::PieceType>(field.value);
    }
  }
  if (piece.text.empty() || piece.text.size() > kLongestPiece || !unicode::is_valid(piece.text))
    fail("its text of ", piece.text.size(), " bytes is empty, too long or not UTF-8");
  // The library that makes its table of pieces takes it for the end of the text.
  if (piece.text.find('\0') != std::string::npos) fail("its text holds a zero byte");
  if (!std::isfinite(piece.score)) fail("its score is not finite");
  return piece;
}

void read_trainer(std::string_view bytes, ModelProto& model) {
  Message message(bytes);
  for (Field field; message.next(field);) {
    if (field.number == 3) model.is_bpe = field.value == 2;
    if (field.number == 24) model.treat_whitespace_as_suffix = field.value != 0;
    if (field.number == 35) model.byte_fallback = field.value != 0;
  }
}

void read_normalizer(std::string_view bytes, ModelProto& model) {
  Message message(bytes);
  for (Field field; message.next(field);) {
    if (field.number == 2 && !field.bytes.empty()) {
      check_charsmap(field.bytes);
      model.has_charsmap = true;
    }
    if (field.number == 3) model.add_dummy_prefix = field.value != 0;
    if (field.number == 4) model.remove_extra_whitespaces = field.value != 0;
    if (field.number == 5) model.escape_whitespaces = field.value != 0;
  }
}

/// Only the character map of what is applied after decoding concerns us.
void check_denormalizer(std::string_view bytes) {
  ModelProto unused;
  read_normalizer(bytes, unused);
}

}  // namespace

ModelProto read_model_proto(std::string_view bytes) {
  return in_context("not a sentencepiece model", [&] {
    ModelProto model;
    Message message(bytes);
    for (Field field; message.next(field);) {
      switch (field.number) {
        case 1: {
          const size_t id = model.pieces.size();
          if (id == kMostPieces) fail("more than ", kMostPieces, " pieces");
          model.pieces.push_back(
              in_context("piece " + std::to_string(id), [&] { return read_piece(field.bytes); }));
          break;
        }
        case 2:
          in_context("trainer", [&] { read_trainer(field.bytes, model); });
          break;
        case 3:
          in_context("normalizer", [&] { read_normalizer(field.bytes, model); });
          break;
        case 5:
          in_context("denormalizer", [&] { check_denormalizer(field.bytes); });
          break;
        default:
          break;
      }
    }
    if (model.pieces.empty()) fail("it has no pieces");
    return model;
  });
}

}  // namespace kvcal::tokenizers
