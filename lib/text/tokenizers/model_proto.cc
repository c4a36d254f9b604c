#include "text/tokenizers/model_proto.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>

#include "core/error.h"
#include "text/tokenizers/normalizer.h"
#include "text/unicode.h"

namespace kvcal::tokenizers {
namespace {

constexpr int64_t kMostPieces = int64_t{1} << 22;
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

void check_piece(std::string_view bytes) {
  Message message(bytes);
  for (Field field; message.next(field);) {
    if (field.number == 1 && (field.bytes.empty() || field.bytes.size() > kLongestPiece ||
                              !unicode::is_valid(field.bytes)))
      fail("its text of ", field.bytes.size(), " bytes is empty, too long or not UTF-8");
    if (field.number == 2 &&
        !std::isfinite(std::bit_cast<float>(static_cast<uint32_t>(field.value))))
      fail("its score is not finite");
  }
}

void check_normalizer(std::string_view bytes) {
  Message message(bytes);
  for (Field field; message.next(field);)
    if (field.number == 2 && !field.bytes.empty()) check_charsmap(field.bytes);
}

}  // namespace

void check_model_proto(std::string_view bytes) {
  // Source: sentencepiece_model.proto: 1 pieces {1 piece, 2 score}, 3 normalizer_spec and 5
  // denormalizer_spec {2 precompiled_charsmap}.
  in_context("not a sentencepiece model", [&] {
    int64_t pieces = 0;
    Message message(bytes);
    for (Field field; message.next(field);) {
      if (field.number == 1) {
        if (++pieces > kMostPieces) fail("more than ", kMostPieces, " pieces");
        in_context("piece " + std::to_string(pieces - 1), [&] { check_piece(field.bytes); });
      }
      if (field.number == 3 || field.number == 5)
        in_context("normalizer", [&] { check_normalizer(field.bytes); });
    }
    if (pieces == 0) fail("it has no pieces");
  });
}

}  // namespace kvcal::tokenizers
