#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/json.h"
#include "tokenizers/components.h"
#include "tokenizers/token_model.h"
#include "tokenizers/tokenizer_files.h"

namespace kvcal::tokenizers {
namespace {

constexpr size_t kMostAddedTokens = 100'000;
constexpr size_t kMostMerges = 1'000'000;

/// The parts of a tokenizer.json that a class stands for, and the named tokens that it has even
/// where no file gives them.
struct ClassParts {
  const char* parts;
  std::vector<const char*> default_tokens;
};
constexpr const char* kDefaultToken = "<|endoftext|>";

constexpr const char* kGpt2Parts = R"({
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
  "decoder": {"type": "ByteLevel"}})";
constexpr const char* kQwen2Parts = R"json({
  "normalizer": {"type": "NFC"},
  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    {"type": "Split", "behavior": "Isolated", "invert": false, "pattern": {"Regex":
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]},
  "decoder": {"type": "ByteLevel"}})json";

const ClassParts kGpt2{kGpt2Parts, {"unk_token", "bos_token", "eos_token"}};
const ClassParts kQwen2{kQwen2Parts, {"unk_token", "eos_token", "pad_token"}};

const Registry<const ClassParts*> kClasses{"tokenizer_class",
                                           {{"CodeGenTokenizer", &kGpt2},
                                            {"CodeGenTokenizerFast", &kGpt2},
                                            {"GPT2Tokenizer", &kGpt2},
                                            {"GPT2TokenizerFast", &kGpt2},
                                            {"Qwen2Tokenizer", &kQwen2},
                                            {"Qwen2TokenizerFast", &kQwen2}}};

/// The class by config.json's model_type, where tokenizer_config.json names none.
const Registry<const ClassParts*> kModelTypes{"model_type",
                                              {{"codegen", &kGpt2},
                                               {"gpt2", &kGpt2},
                                               {"gpt_bigcode", &kGpt2},
                                               {"phi", &kGpt2},
                                               {"qwen2", &kQwen2},
                                               {"qwen2_moe", &kQwen2},
                                               {"qwen3", &kQwen2},
                                               {"qwen3_moe", &kQwen2},
                                               {"starcoder2", &kGpt2}}};

const ClassParts& class_parts(const Json& config, const Json& model_config) {
  const std::string need =
      "vocab.json and merges.txt do not say how text is split (a tokenizer.json would)";
  if (const auto name = optional_string(config, "tokenizer_class"))
    return *in_context("tokenizer_config.json: " + need, [&] { return kClasses.at(*name); });
  const auto type = optional_string(model_config, "model_type");
  if (!type) fail(need, ", and neither tokenizer_config.json nor config.json names the tokenizer");
  return *in_context("config.json: " + need, [&] { return kModelTypes.at(*type); });
}

Json parse_object(std::string_view text, const char* file) {
  if (text.empty()) return Json::object();
  return in_context(file, [&] {
    Json json = parse_model_json(text, kTokenizerLimits);
    if (!json.is_object()) fail("found ", kind_of(json), ", expected an object");
    return json;
  });
}

Json read_merge_lines(std::string_view text) {
  Json merges = Json::array();
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    // Merges of '#' are lines like any other.
    if (line.empty() || line.starts_with("#version")) continue;
    if (merges.size() == kMostMerges) fail("merges.txt: more than ", kMostMerges, " merges");
    merges.push_back(std::string(line));
  }
  return merges;
}

/// The entries of a tokenizer.json's "added_tokens", with the ids that they will get.
class AddedList {
 public:
  explicit AddedList(const Vocabulary& vocabulary)
      : vocabulary_(vocabulary), next_(vocabulary.size()) {}

  /// stated: the id that a file gives, or -1.
  void add(Json token, TokenId stated = -1) {
    const std::string content = required_string(token, "content");
    if (content.empty() || !ids_.emplace(content, -1).second) return;
    if (ids_.size() > kMostAddedTokens) fail("more than ", kMostAddedTokens, " added tokens");
    const auto known = vocabulary_.find(content);
    const TokenId id = known ? *known : static_cast<TokenId>(next_++);
    if (stated >= 0 && stated != id)
      fail("token '", content.substr(0, 40), "' has the id ", stated, ", expected ", id,
           known ? " as in vocab.json" : ", the next free one");
    ids_[content] = id;
    token["id"] = id;
    tokens_.push_back(std::move(token));
  }
  const Json& tokens() const { return tokens_; }
  std::optional<TokenId> id_of(const std::string& content) const {
    const auto found = ids_.find(content);
    return found == ids_.end() ? vocabulary_.find(content) : found->second;
  }

 private:
  const Vocabulary& vocabulary_;
  Json tokens_ = Json::array();
  std::unordered_map<std::string, TokenId> ids_;
  size_t next_;
};

/// A special token of a configuration: an object with its flags, or its text.
Json special_token(const Json& value) {
  Json token = value.is_string() ? Json{{"content", value}} : value;
  if (!token.is_object()) fail("found ", kind_of(value), ", expected a token");
  required_string(token, "content");
  if (!token.contains("normalized")) token["normalized"] = false;
  token["special"] = true;
  return token;
}

/// Special tokens in the order in which transformers adds them, by name ("bos_token"); behind these
/// the ones without a name.
using SpecialTokens = std::vector<std::pair<std::string, Json>>;

SpecialTokens read_special_tokens(const ClassParts& of_class, const Json& config, const Json& map) {
  SpecialTokens special;
  for (const char* key : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                          "cls_token", "mask_token"}) {
    const bool in_map = map.contains(key), in_config = config.contains(key);
    const Json* value = find_field(in_map ? map : config, key);
    const bool is_default = !in_map && !in_config &&
                            std::count(of_class.default_tokens.begin(),
                                       of_class.default_tokens.end(), std::string_view(key)) > 0;
    if (is_default) special.emplace_back(key, special_token(kDefaultToken));
    if (value) special.emplace_back(key, special_token(*value));
  }
  for (const Json* source : {&map, &config})
    for (const char* key : {"extra_special_tokens", "additional_special_tokens"})
      if (const Json* list = find_field(*source, key); list && list->is_array())
        for (const Json& token : *list) special.emplace_back("", special_token(token));
  return special;
}

/// Tokens of added_tokens_decoder (id → flags) or added_tokens.json (text → id), by id.
std::map<TokenId, Json> read_numbered_tokens(const Json& config, const Json& added,
                                             const SpecialTokens& special) {
  std::map<TokenId, Json> tokens;
  if (find_field(config, "added_tokens_decoder")) {
    for_each_numbered_token(config, [&](TokenId id, const Json& token) { tokens[id] = token; });
    return tokens;
  }
  std::set<std::string_view> special_texts;
  for (const auto& [name, token] : special)
    special_texts.insert(token.at("content").get_ref<const std::string&>());
  for (const auto& [text, id] : added.get_ref<const Json::object_t&>()) {
    const bool special_here = special_texts.contains(text);
    tokens[token_id(id, "'" + text.substr(0, 40) + "'")] = {
        {"content", text}, {"normalized", !special_here}, {"special", special_here}};
  }
  return tokens;
}

/// A template with bos and eos where tokenizer_config.json asks for them.
Json post_processor(const Json& config, const SpecialTokens& special, const AddedList& added) {
  Json single = Json::array(), tokens = Json::object();
  const auto add = [&](const char* flag, const char* name) {
    if (!optional_bool(config, flag).value_or(false)) return;
    const auto token = std::ranges::find(special, name, &SpecialTokens::value_type::first);
    if (token == special.end()) fail("key '", flag, "' is true, but there is no ", name);
    const std::string text = required_string(token->second, "content");
    const std::optional<TokenId> id = added.id_of(text);
    if (!id) fail("key '", flag, "' is true, but ", name, " is an empty text");
    single.push_back({{"SpecialToken", {{"id", text}}}});
    tokens[text] = {{"ids", Json::array({*id})}};
  };
  add("add_bos_token", "bos_token");
  single.push_back({{"Sequence", {{"id", "A"}}}});
  add("add_eos_token", "eos_token");
  if (single.size() == 1) return nullptr;
  return {{"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", tokens}};
}

}  // namespace

std::unique_ptr<Tokenizer> read_vocab_and_merges(const VocabularyFiles& files) {
  const Json config = parse_object(files.config, "tokenizer_config.json");
  const Json map = parse_object(files.special_tokens, "special_tokens_map.json");
  const ClassParts& of_class = class_parts(config, parse_object(files.model_config, "config.json"));
  Json parts = parse_json(of_class.parts);
  if (optional_bool(config, "add_prefix_space").value_or(false)) {
    Json& pre = parts["pre_tokenizer"];
    Json& last = pre.contains("pretokenizers") ? pre["pretokenizers"].back() : pre;
    last["add_prefix_space"] = true;
  }
  Json described{{"type", "BPE"}};
  described["vocab"] = parse_object(files.vocab, "vocab.json");
  described["merges"] = read_merge_lines(files.merges);
  auto model = make_model(described, "vocab.json and merges.txt");

  // As in transformers, the map of special tokens is an older form of the same list.
  const bool has_decoder = find_field(config, "added_tokens_decoder") != nullptr;
  const SpecialTokens special = in_context("special tokens", [&] {
    return read_special_tokens(of_class, config, has_decoder ? Json::object() : map);
  });
  const Json added_tokens = parse_object(files.added, "added_tokens.json");
  AddedList added(model->vocabulary());
  in_context(has_decoder ? "tokenizer_config.json" : "added_tokens.json", [&] {
    for (auto& [id, token] : read_numbered_tokens(config, added_tokens, special))
      added.add(token, id);
  });
  in_context("special tokens", [&] {
    for (const auto& [name, token] : special) added.add(token);
  });
  parts["added_tokens"] = added.tokens();
  parts["post_processor"] =
      in_context("tokenizer_config.json", [&] { return post_processor(config, special, added); });
  return assemble_tokenizer(parts, std::move(model));
}

}  // namespace kvcal::tokenizers
