#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <unordered_map>

#include <sentencepiece_processor.h>

#include "core/error.h"
#include "core/json.h"
#include "core/safe_points.h"
#include "tokenizers/added_tokens.h"
#include "tokenizers/charsmap.h"
#include "tokenizers/components.h"
#include "tokenizers/model_proto.h"
#include "tokenizers/tokenizer_files.h"
#include "unicode/unicode.h"

namespace kvcal::tokenizers {
namespace {

/// Twice the largest published; the library that makes its table of them cannot be stopped.
constexpr size_t kMostPieces = size_t{1} << 19;
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
    const uint64_t wire_type = tag & 7;
    if (wire_type == 0)
      field.value = varint();
    else if (wire_type == 1 || wire_type == 5)
      field.value = fixed(wire_type == 1 ? 8 : 4);
    else if (wire_type == 2)
      field.bytes = take(varint());
    else
      fail("field ", field.number, " has wire type ", wire_type);
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
    // As protobuf does it, an unknown kind leaves the one before.
    if (field.number == 3 && field.value >= 1 && field.value <= 4)
      model.kind = static_cast<ModelProto::Kind>(field.value);
    if (field.number == 24) model.treat_whitespace_as_suffix = field.value != 0;
    if (field.number == 35) model.byte_fallback = field.value != 0;
  }
}

void read_normalizer(std::string_view bytes, ModelProto& model) {
  Message message(bytes);
  for (Field field; message.next(field);) {
    if (field.number == 2) {
      if (!field.bytes.empty()) Charsmap(field.bytes).check();
      model.charsmap = field.bytes;
    }
    if (field.number == 3) model.add_dummy_prefix = field.value != 0;
    if (field.number == 4) model.remove_extra_whitespaces = field.value != 0;
    if (field.number == 5) model.escape_whitespaces = field.value != 0;
  }
}

}  // namespace

ModelProto read_model_proto(std::string_view bytes) {
  return in_context("not a sentencepiece model", [&] {
    ModelProto model;
    Message message(bytes);
    for (Field field; message.next(field);) {
      if (field.number == 1) {
        const size_t id = model.pieces.size();
        if (id == kMostPieces) fail("more than ", kMostPieces, " pieces");
        model.pieces.push_back(
            in_context("piece " + std::to_string(id), [&] { return read_piece(field.bytes); }));
      }
      if (field.number == 2) in_context("trainer", [&] { read_trainer(field.bytes, model); });
      if (field.number == 3) in_context("normalizer", [&] { read_normalizer(field.bytes, model); });
      // Of what is applied after decoding, only the character map concerns us.
      if (field.number == 5)
        in_context("denormalizer", [&] {
          ModelProto unused;
          read_normalizer(field.bytes, unused);
        });
    }
    if (model.pieces.empty()) fail("it has no pieces");
    return model;
  });
}

namespace {

void check(const sentencepiece::util::Status& status) {
  if (!status.ok()) fail("sentencepiece: ", status.ToString());
}

/// The text of the unknown piece. The library's unk_id() is no piece where the trainer's unk_piece
/// has another text.
std::string unknown_piece(const ModelProto& model) {
  for (const ModelProto::Piece& piece : model.pieces)
    if (piece.type == ModelProto::PieceType::kUnknown) return std::string(piece.text);
  fail("not a sentencepiece model: no piece is the unknown one");
}

/// Settings of a sentencepiece tokenizer in tokenizer_config.json. Defaults: transformers'
/// LlamaTokenizer.
struct SentencePieceOptions {
  bool add_bos = true, add_eos = false, legacy = true, add_prefix_space = true;
};

/// Text between tokens that are recognised in it goes to sentencepiece. Source for these tokens and
/// for `legacy`: transformers 4, LlamaTokenizer and PreTrainedTokenizer.tokenize.
class SentencePieceTokenizer : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const SentencePieceFiles& files) {
    const ModelProto proto = read_model_proto(files.model);
    const Json config =
        files.config.empty()
            ? Json::object()
            : in_context("tokenizer_config.json", [&] { return parse_model_json(files.config); });
    options_ = in_context("tokenizer_config.json", [&] { return read_options(config); });
    std::string model(files.model);
    // Later fields of a message win: without legacy the words in the middle of a text get no space
    // before them.
    if (!options_.legacy) model += std::string("\x1a\x02\x18\x00", 4);
    check(processor_.LoadFromSerializedProto(model));
    if (!files.added.empty())
      in_context("added_tokens.json", [&] {
        const Json added = parse_model_json(files.added);
        if (!added.is_object()) fail("found ", kind_of(added), ", expected an object");
        for (const auto& [text, id] : added.get_ref<const Json::object_t&>())
          add_token({.content = text, .normalized = false},
                    token_id(id, "'" + text.substr(0, 40) + "'"));
      });
    in_context("tokenizer_config.json", [&] { add_tokens(config); });
    encoder_ = make_piece_encoder(proto);
    unknown_text_ = unknown_piece(proto);
    encoder_->encode(unknown_text_, options_.legacy, unknown_ids_);
  }

  std::vector<TokenId> encode(std::string_view text, bool add_special_tokens) const override {
    std::string repaired;
    if (!unicode::is_valid(text)) text = repaired = unicode::replace_invalid(text);
    std::vector<TokenId> ids;
    if (add_special_tokens && options_.add_bos && processor_.bos_id() >= 0)
      ids.push_back(processor_.bos_id());
    const size_t before = ids.size();
    std::string marked;
    if (!options_.legacy && !text.empty()) text = marked = mark_start(text);
    encode_parts(text, ids);
    if (!marked.empty() && ids.size() > before + 1 &&
        processor_.IdToPiece(ids[before]) == kSpaceMark && is_special(ids[before + 1]))
      ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(before));
    if (add_special_tokens && options_.add_eos && processor_.eos_id() >= 0)
      ids.push_back(processor_.eos_id());
    return ids;
  }

  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const override {
    std::string text;
    std::vector<int> run;
    const auto flush = [&] {
      std::string part;
      if (!run.empty()) check(processor_.Decode(run, &part));
      text += part;
      run.clear();
    };
    for (const TokenId id : ids) {
      const auto added = added_.find(id);
      if (added == added_.end() && !is_special(id)) {
        if (id >= 0 && id < processor_.GetPieceSize()) run.push_back(id);
        continue;
      }
      flush();
      if (!(skip_special_tokens && is_special(id))) text += *id_to_token(id);
    }
    flush();
    return text;
  }

  int64_t vocab_size() const override {
    int64_t size = processor_.GetPieceSize();
    for (const auto& [id, token] : added_) size = std::max(size, int64_t{id} + 1);
    return size;
  }
  std::optional<TokenId> token_to_id(std::string_view token) const override {
    if (const auto found = by_content_.find(std::string(token)); found != by_content_.end())
      return found->second;
    const TokenId id = processor_.PieceToId(token);
    if (id < 0 || processor_.IdToPiece(id) != token) return std::nullopt;
    return id;
  }
  std::optional<std::string> id_to_token(TokenId id) const override {
    if (const auto found = added_.find(id); found != added_.end()) return found->second.content;
    if (id < 0 || id >= processor_.GetPieceSize()) return std::nullopt;
    return processor_.IdToPiece(id);
  }

 private:
  static SentencePieceOptions read_options(const Json& config) {
    SentencePieceOptions options;
    for (const auto& [key, option] : {std::pair{"add_bos_token", &options.add_bos},
                                      {"add_eos_token", &options.add_eos},
                                      {"legacy", &options.legacy},
                                      {"add_prefix_space", &options.add_prefix_space}})
      *option = optional_bool(config, key).value_or(*option);
    return options;
  }

  static AddedToken read_token(const Json& json) {
    if (json.is_string())
      return {.content = json.get<std::string>(), .normalized = false, .special = true};
    return read_added_token(json, true);
  }

  void add_tokens(const Json& config) {
    for_each_numbered_token(
        config, [&](TokenId id, const Json& token) { add_token(read_token(token), id); });
    std::vector<const Json*> named;
    for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token"})
      if (const Json* token = find_field(config, key)) named.push_back(token);
    if (const Json* more = find_field(config, "additional_special_tokens"))
      if (more->is_array())
        for (const Json& token : *more) named.push_back(&token);
    for (const Json* json : named) {
      AddedToken token = read_token(*json);
      token.special = true;
      if (const auto id = token_to_id(token.content); id && !added_.contains(*id))
        add_token(std::move(token), *id);
    }
  }

  void add_token(AddedToken token, TokenId id) {
    if (token.content.empty()) return;
    by_content_[token.content] = id;
    trie_.add(token.content, id);
    added_[id] = std::move(token);
  }

  bool is_special(TokenId id) const {
    if (const auto found = added_.find(id); found != added_.end()) return found->second.special;
    return id >= 0 && id < processor_.GetPieceSize() && processor_.IsControl(id);
  }

  std::string mark_start(std::string_view text) const {
    std::string marked = options_.add_prefix_space ? std::string(kSpaceMark) : "";
    for (size_t at = 0; at < text.size();) {
      const bool is_mark = text.substr(at).starts_with(kSpaceMark);
      marked += is_mark ? ' ' : text[at];
      at += is_mark ? kSpaceMark.size() : 1;
    }
    return marked;
  }

  void encode_parts(std::string_view text, std::vector<TokenId>& ids) const {
    size_t begin = 0;
    SafePoints points(1024);  // each place may begin many long tokens
    for (size_t at = trie_.next_start(text, 0); at < text.size(); at = trie_.next_start(text, at)) {
      points.pass();
      const auto [id, end] = trie_.longest(text, at);
      const auto found = added_.find(id);
      if (found == added_.end() || !stands_alone(found->second, text, {at, end})) {
        ++at;
        continue;
      }
      const AddedToken& token = found->second;
      const size_t text_end = token.lstrip ? std::max(unicode::spaces_begin(text, at), begin) : at;
      encode_text(text.substr(begin, text_end - begin), ids);
      ids.push_back(id);
      at = begin = token.rstrip ? unicode::spaces_end(text, end) : end;
    }
    encode_text(text.substr(begin), ids);
  }

  static bool stands_alone(const AddedToken& token, std::string_view text, Span span) {
    if (!token.single_word) return true;
    return (span.begin == 0 || text[span.begin - 1] == ' ') &&
           (span.end == text.size() || text[span.end] == ' ');
  }

  void encode_text(std::string_view text, std::vector<TokenId>& ids) const {
    if (text.empty()) return;
    if (options_.legacy || !(text.starts_with(' ') || text.starts_with(kSpaceMark)))
      return encoder_->encode(text, options_.legacy, ids);
    // The unknown token's text in front keeps sentencepiece from dropping the spaces.
    std::vector<TokenId> part;
    encoder_->encode(unknown_text_ + std::string(text), false, part);
    const size_t before = part.size() >= unknown_ids_.size() ? unknown_ids_.size() : 0;
    ids.insert(ids.end(), part.begin() + static_cast<std::ptrdiff_t>(before), part.end());
  }

  sentencepiece::SentencePieceProcessor processor_;
  SentencePieceOptions options_;
  std::unordered_map<TokenId, AddedToken> added_;
  std::unordered_map<std::string, TokenId> by_content_;
  TokenTrie trie_;
  std::string unknown_text_;
  std::vector<TokenId> unknown_ids_;
  std::unique_ptr<PieceEncoder> encoder_;  ///< what the library would give, also where that is slow
};

}  // namespace

std::unique_ptr<Tokenizer> read_sentencepiece(const SentencePieceFiles& files) {
  return std::make_unique<SentencePieceTokenizer>(files);
}

}  // namespace kvcal::tokenizers
