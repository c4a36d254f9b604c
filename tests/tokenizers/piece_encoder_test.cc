#include <bit>
#include <random>
#include <set>

#include <sentencepiece_processor.h>

#include "core/error.h"
#include "core/interrupt.h"
#include "support/catch.h"
#include "tokenizer_fixtures.h"
#include "tokenizers/model_proto.h"

using namespace kvcal;
using tokenizers::ModelProto;
using Type = ModelProto::PieceType;
using Kind = ModelProto::Kind;

namespace {

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(0x80 | (value & 0x7f));
  out += static_cast<char>(value);
}
void put_number(std::string& out, uint32_t field, uint64_t value) {
  put_varint(out, field << 3);
  put_varint(out, value);
}
void put_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  put_varint(out, (field << 3) | 2);
  put_varint(out, bytes.size());
  out += bytes;
}

/// The bytes of a tokenizer.model.
std::string serialized(const ModelProto& model) {
  std::string out, trainer, normalizer;
  for (const auto& [text, score, type] : model.pieces) {
    std::string piece;
    put_bytes(piece, 1, text);
    put_varint(piece, (2 << 3) | 5);
    for (int i = 0; i < 4; ++i) piece += static_cast<char>(std::bit_cast<uint32_t>(score) >> 8 * i);
    put_number(piece, 3, static_cast<uint64_t>(type));
    put_bytes(out, 1, piece);
  }
  put_number(trainer, 3, static_cast<uint64_t>(model.kind));
  put_number(trainer, 24, model.treat_whitespace_as_suffix ? 1 : 0);
  put_number(trainer, 35, model.byte_fallback ? 1 : 0);
  put_bytes(normalizer, 2, model.charsmap);
  put_number(normalizer, 3, model.add_dummy_prefix ? 1 : 0);
  put_number(normalizer, 4, model.remove_extra_whitespaces ? 1 : 0);
  put_number(normalizer, 5, model.escape_whitespaces ? 1 : 0);
  put_bytes(out, 2, trainer);
  put_bytes(out, 3, normalizer);
  return out;
}

/// The library's ids, or nothing where it refuses the text.
std::optional<std::vector<TokenId>> judged(const sentencepiece::SentencePieceProcessor& library,
                                           const std::string& text) {
  std::vector<int> ids;
  if (!library.Encode(text, &ids).ok()) return std::nullopt;
  return std::vector<TokenId>(ids.begin(), ids.end());
}
std::optional<std::vector<TokenId>> ours(const tokenizers::PieceEncoder& encoder,
                                         const std::string& text) {
  try {
    std::vector<TokenId> ids;
    encoder.encode(text, true, ids);
    return ids;
  } catch (const Error&) {
    return std::nullopt;
  }
}

class Draw {
 public:
  explicit Draw(uint32_t seed) : random_(seed) {}
  uint32_t below(uint32_t count) { return static_cast<uint32_t>(random_() % count); }
  bool once_in(uint32_t count) { return below(count) == 0; }
  std::string text(const std::vector<std::string>& parts, size_t count) {
    std::string text;
    while (count-- > 0) text += parts[below(static_cast<uint32_t>(parts.size()))];
    return text;
  }

 private:
  std::mt19937 random_;
};

/// A model of random pieces, whose texts lie in `texts`. Scores that are equal are common.
ModelProto random_model(Draw& draw, std::set<std::string>& texts, std::string_view charsmap) {
  ModelProto model;
  model.kind = static_cast<Kind>(1 + draw.below(4));
  model.byte_fallback = draw.once_in(3);
  model.treat_whitespace_as_suffix = draw.once_in(4);
  model.add_dummy_prefix = !draw.once_in(3);
  model.remove_extra_whitespaces = draw.once_in(2);
  model.escape_whitespaces = !draw.once_in(4);
  if (draw.once_in(2)) model.charsmap = charsmap;
  const auto add = [&](const std::string& text, Type type) {
    const auto [place, is_new] = texts.insert(text);
    const float score = draw.once_in(2) ? -static_cast<float>(draw.below(8))
                                        : -static_cast<float>(draw.below(100000)) / 7777.0f;
    if (is_new) model.pieces.push_back({*place, score, type});
  };
  add("<unk>", Type::kUnknown);
  add("<s>", Type::kControl);
  if (draw.once_in(4)) add("c", Type::kControl);
  if (model.byte_fallback)
    for (int byte = 0; byte < 256; ++byte) {
      char name[8];
      std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
      add(name, Type::kByte);
    }
  const bool has_odd = draw.once_in(2);
  for (uint32_t i = 0, count = 1 + draw.below(60); i < count; ++i) {
    const std::string text =
        draw.text({"a", "b", "b", "c", "é", "▁", "▁", "漢", " "}, 1 + draw.below(5));
    const uint32_t kind = has_odd ? draw.below(8) : 7;
    add(text, kind == 0 ? Type::kUserDefined : kind == 1 ? Type::kUnused : Type::kNormal);
  }
  return model;
}

}  // namespace

TEST_CASE("piece_encoder: any model gives the ids of sentencepiece's library") {
  const std::string file = read_text(test::tokenizer_fixtures() / "spm_unigram.model");
  const std::string_view charsmap = tokenizers::read_model_proto(file).charsmap;
  REQUIRE(charsmap.size() > 1000);
  const std::vector<std::string> parts{"a",  "b",  "c", "é",  "e\u0301", "▁",  " ", "  ",
                                       "漢", "Ａ", "ﬁ", "㈱", "😀",       "\t", "x", "\n"};
  size_t refused = 0, ids = 0;
  for (uint32_t seed = 0; seed < 500; ++seed) {
    Draw draw(seed);
    std::set<std::string> texts;
    const ModelProto model = random_model(draw, texts, charsmap);
    const std::string bytes = serialized(model);
    sentencepiece::SentencePieceProcessor library;
    REQUIRE(library.LoadFromSerializedProto(bytes).ok());
    const auto encoder = tokenizers::make_piece_encoder(tokenizers::read_model_proto(bytes));
    for (uint32_t i = 0; i < 12; ++i) {
      const std::string text = draw.text(parts, i == 0 ? 2000 : draw.below(30));
      const auto expected = judged(library, text), found = ours(*encoder, text);
      INFO("seed " << seed << ", text " << i << ": " << text);
      REQUIRE(found == expected);
      if (expected) ids += expected->size();
      if (!expected) ++refused;
    }
  }
  CHECK(refused > 0);
  CHECK(ids > 50000);
}

TEST_CASE("piece_encoder: long texts have the library's ids to the last bit of their scores") {
  for (const char* name : {"bpe", "unigram"}) {
    const std::string bytes =
        read_text(test::tokenizer_fixtures() / (std::string("spm_") + name + ".model"));
    sentencepiece::SentencePieceProcessor library;
    REQUIRE(library.LoadFromSerializedProto(bytes).ok());
    const auto encoder = tokenizers::make_piece_encoder(tokenizers::read_model_proto(bytes));
    Draw draw(7);
    std::string text;
    const auto hard = test::fixture_json("texts.json")["texts"].get<std::vector<std::string>>();
    while (text.size() < 400000) text += draw.text(hard, 1);
    INFO(name);
    CHECK(ours(*encoder, text) == judged(library, text));
  }
}

TEST_CASE("piece_encoder: pieces of the user that begin alike, and a chain of unused ones") {
  // The library reads beyond its lists of 32 and 64 results, and calls itself for each part.
  ModelProto model;
  std::vector<std::string> texts(2, "<unk>");
  for (size_t i = 1; i <= 3000; ++i) texts.push_back(std::string(i, 'a'));
  model.pieces.push_back({texts[0], 0.0f, Type::kUnknown});
  for (const Type type : {Type::kUserDefined, Type::kUnused}) {
    model.pieces.resize(1);
    for (size_t i = 2; i < texts.size(); ++i) model.pieces.push_back({texts[i], -1.0f, type});
    for (const Kind kind : {Kind::kUnigram, Kind::kBpe, Kind::kCharacter}) {
      model.kind = kind;
      model.add_dummy_prefix = false;
      const auto encoder = tokenizers::make_piece_encoder(model);
      std::vector<TokenId> ids;
      encoder->encode(std::string(7000, 'a'), false, ids);
      CHECK(!ids.empty());
      if (type == Type::kUserDefined) CHECK(ids == std::vector<TokenId>{3000, 3000, 1000});
    }
  }
}

TEST_CASE("piece_encoder: a run of unknown characters takes linear time, and can be stopped") {
  ModelProto model;
  model.pieces = {{"<unk>", 0.0f, Type::kUnknown}, {"b", -1.0f, Type::kNormal}};
  const std::string text(2000000, 'a');
  for (const Kind kind : {Kind::kUnigram, Kind::kBpe, Kind::kWord, Kind::kCharacter}) {
    model.kind = kind;
    const auto encoder = tokenizers::make_piece_encoder(model);
    std::vector<TokenId> ids;
    encoder->encode(text, false, ids);
    CHECK(ids == std::vector<TokenId>{0});
    request_interrupt();
    CHECK_THROWS_AS(encoder->encode(text, false, ids), Interrupted);
    clear_interrupt();
  }
}
