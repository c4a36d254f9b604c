#include "tokenizers/components.h"

#include <array>
#include <limits>

#include "unicode/unicode.h"

namespace kvcal::tokenizers {
namespace {

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<int16_t, 512> byte{};
};

const Alphabet& alphabet() {
  static const Alphabet kAlphabet = [] {
    Alphabet result;
    result.byte.fill(-1);
    char32_t next = 256;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool prints =
          (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      const char32_t character = prints ? byte : next++;
      result.character[byte] = character;
      result.byte[character] = static_cast<int16_t>(byte);
    }
    return result;
  }();
  return kAlphabet;
}

std::array<int8_t, 256> digit_values() {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<int8_t, 256> values{};
  values.fill(-1);
  for (size_t i = 0; i < kDigits.size(); ++i)
    values[static_cast<unsigned char>(kDigits[i])] = static_cast<int8_t>(i);
  return values;
}

}  // namespace

char32_t byte_to_character(uint8_t byte) {
  return alphabet().character[byte];
}

void append_byte_alphabet(std::string& text, std::string_view bytes) {
  for (const char byte : bytes)
    unicode::append(text, byte_to_character(static_cast<uint8_t>(byte)));
}

std::optional<std::string> bytes_of_alphabet(std::string_view text) {
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const unicode::Decoded next = unicode::decode(text, at);
    const int byte = next.code_point < 512 ? alphabet().byte[next.code_point] : -1;
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
    at += next.size;
  }
  return bytes;
}

std::optional<std::string> decode_base64(std::string_view text) {
  static const std::array<int8_t, 256> kValues = digit_values();
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  while (text.ends_with('=')) text.remove_suffix(1);
  for (const char c : text) {
    const int8_t value = kValues[static_cast<unsigned char>(c)];
    if (value < 0) return std::nullopt;
    bits = (bits << 6) | static_cast<uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes.push_back(static_cast<char>((bits >> count) & 0xff));
    }
  }
  return bytes;
}

bool required_bool(const Json& object, std::string_view key) {
  const auto value = optional_bool(object, key);
  if (!value) fail_missing(key, "true or false");
  return *value;
}

const Json& required_array(const Json& object, std::string_view key) {
  const Json* field = find_field(object, key);
  if (!field) fail_missing(key, "an array");
  if (!field->is_array()) fail_kind(key, "an array", *field);
  return *field;
}

char32_t required_character(const Json& object, std::string_view key) {
  const std::string text = required_string(object, key);
  if (text.empty() || unicode::decode(text, 0).size != text.size())
    fail("key '", key, "' is '", text, "', expected one character");
  return unicode::decode(text, 0).code_point;
}

TokenId token_id(const Json& value, std::string_view what) {
  const bool is_id =
      value.is_number_unsigned() || (value.is_number_integer() && value.get<int64_t>() >= 0);
  if (!is_id || value.get<uint64_t>() > uint64_t{std::numeric_limits<TokenId>::max()})
    fail("id of ", what, " is ",
         value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 40),
         ", expected an integer from 0 to ", std::numeric_limits<TokenId>::max());
  return static_cast<TokenId>(value.get<uint64_t>());
}

void for_each_numbered_token(const Json& config,
                             const std::function<void(TokenId id, const Json& token)>& visit) {
  const Json* decoder = find_field(config, "added_tokens_decoder");
  if (!decoder) return;
  if (!decoder->is_object()) fail_kind("added_tokens_decoder", "an object", *decoder);
  for (const auto& [key, token] : decoder->get_ref<const Json::object_t&>()) {
    if (key.empty() || key.size() > 9 || key.find_first_not_of("0123456789") != std::string::npos)
      fail("added_tokens_decoder['", key.substr(0, 40), "']: expected a token id");
    visit(std::stoi(key), token);
  }
}

std::unique_ptr<Pattern> make_pattern(const Json& object) {
  const Json* pattern = find_field(object, "pattern");
  if (!pattern) fail_missing("pattern", "an object with 'String' or 'Regex'");
  if (const auto text = optional_string(*pattern, "String")) return make_literal(*text);
  if (const auto text = optional_string(*pattern, "Regex")) return make_regex(*text);
  fail("key 'pattern' has neither 'String' nor 'Regex'");
}

void for_each_step(const Json& json, const std::string& path, std::string_view list_key,
                   std::string_view steps_name,
                   const std::function<void(const Json& step, const std::string& type)>& visit) {
  constexpr size_t kMostSteps = 64;
  size_t count = 0;
  const auto walk = [&](const auto& self, const Json& part, const std::string& place) -> void {
    const std::string type = in_context(place, [&] { return required_string(part, "type"); });
    if (type != "Sequence")
      return in_context(place, [&] {
        if (++count > kMostSteps) fail("more than ", kMostSteps, " ", steps_name);
        visit(part, type);
      });
    const Json& parts =
        in_context(place, [&]() -> const Json& { return required_array(part, list_key); });
    for (size_t i = 0; i < parts.size(); ++i)
      self(self, parts[i], place + "." + std::string(list_key) + "[" + std::to_string(i) + "]");
  };
  walk(walk, json, path);
}

}  // namespace kvcal::tokenizers
