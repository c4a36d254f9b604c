#pragma once

#include <string>
#include <vector>

#include "core/file.h"
#include "core/json.h"
#include "support/folders.h"
#include "tokenizers/tokenizer.h"
#include "tokenizers/tokenizer_files.h"

namespace kvcal::test {

inline fs::path tokenizer_fixtures() {
  return tests_folder() / "fixtures/text/tokenizers";
}
inline Json fixture_json(const std::string& name) {
  return parse_json(read_text(tokenizer_fixtures() / name));
}

/// The hard texts, then those that are no UTF-8. Source: reference/tokenizers_texts.py.
inline std::vector<std::string> hard_texts() {
  const Json json = fixture_json("texts.json");
  std::vector<std::string> texts = json["texts"].get<std::vector<std::string>>();
  for (const auto& hex : json["invalid"].get<std::vector<std::string>>()) {
    std::string bytes;
    for (size_t i = 0; i < hex.size(); i += 2)
      bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    texts.push_back(bytes);
  }
  return texts;
}

/// The tokenizer.json of a variant: its base with what the variant changes.
inline Json variant_json(const Json& variant) {
  Json json = fixture_json("base_" + variant["base"].get<std::string>() + ".json");
  for (const auto& [key, value] : variant["patch"].items()) {
    if (key == "model")
      json["model"].update(value);
    else
      json[key] = value;
  }
  return json;
}
inline std::string variant_text(const Json& variant) {
  std::string text = variant_json(variant).dump();
  if (const size_t at = text.find("@charsmap"); at != std::string::npos)
    text.replace(at, 9, fixture_json("charsmap.json").get<std::string>());
  return text;
}
inline std::unique_ptr<Tokenizer> variant_tokenizer(const std::string& name) {
  return tokenizers::read_tokenizer_json(variant_text(fixture_json("variants.json").at(name)));
}

/// Made as reference/tokenizers_texts.py makes it.
inline std::string generated_text(size_t length, uint64_t seed, std::string_view alphabet) {
  std::string text;
  for (size_t i = 0; i < length; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    text.push_back(alphabet[(seed >> 33) % alphabet.size()]);
  }
  return text;
}
/// FNV-1a of the ids as little-endian 32-bit numbers.
inline uint64_t hash_of_ids(const std::vector<TokenId>& ids) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const TokenId id : ids)
    for (int shift = 0; shift < 32; shift += 8)
      hash = (hash ^ ((static_cast<uint32_t>(id) >> shift) & 0xffu)) * 0x100000001b3u;
  return hash;
}

}  // namespace kvcal::test
