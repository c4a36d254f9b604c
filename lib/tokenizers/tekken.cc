#include <algorithm>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "core/safe_points.h"
#include "tokenizers/bpe.h"
#include "tokenizers/components.h"
#include "tokenizers/tokenizer_files.h"

namespace kvcal::tokenizers {
namespace {

constexpr int64_t kMostTokens = 4'000'000, kMostSpecial = 20'000;
/// Bounds the pairs that one token can be made of.
constexpr size_t kLongestToken = 1024;
/// Bytes that are looked at for the pairs of all tokens.
constexpr size_t kMostPairBytes = 1'000'000'000;

/// Files of up to version 7 do not list their special tokens. Source: mistral-common, Tekkenizer.
std::vector<std::string> unlisted_tokens() {
  std::istringstream tokens(
      "<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] "
      "[/TOOL_RESULTS] [TOOL_CALLS] [IMG] <pad> [IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] "
      "[SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_CONTENT]");
  return {std::istream_iterator<std::string>(tokens), {}};
}

struct Sizes {
  int64_t special = 0;  ///< special tokens: the ids from 0 on
  int64_t ranks = 0;    ///< tokens of bytes behind them
};

Sizes read_sizes(const Json& config, int64_t named, int64_t listed) {
  const auto special = optional_int(config, "default_num_special_tokens");
  Sizes sizes{.special = special.value_or(named), .ranks = listed};
  if (sizes.special < 0 || sizes.special > kMostSpecial)
    fail("key 'default_num_special_tokens' is ", sizes.special, ", expected 0 to ", kMostSpecial);
  if (const auto all = optional_int(config, "default_vocab_size")) {
    sizes.ranks = *all - sizes.special;
    if (*all > kMostTokens || sizes.ranks < 256 || sizes.ranks > listed)
      fail("key 'default_vocab_size' is ", *all, ": with ", sizes.special,
           " special tokens that leaves ", sizes.ranks, " of the ", listed, " in 'vocab'");
  }
  return sizes;
}

/// Texts of the special tokens by id; those that no one named get a name with their number.
std::vector<std::string> special_texts(const Json& json, int64_t count) {
  std::vector<std::string> texts;
  for (int64_t i = 0; i < count; ++i) texts.push_back("<SPECIAL_" + std::to_string(i) + ">");
  const auto name = [&](int64_t rank, const std::string& text) {
    if (rank < 0 || rank >= count)
      fail("special token '", text.substr(0, 40), "' has the rank ", rank, ", expected 0 to ",
           count - 1);
    texts[static_cast<size_t>(rank)] = text;
  };
  const Json* listed = find_field(json, "special_tokens");
  int64_t next = 0;
  if (!listed) {
    for (const std::string& text : unlisted_tokens())
      if (next < count) name(next++, text);
    return texts;
  }
  if (!listed->is_array()) fail_kind("special_tokens", "an array", *listed);
  for (const Json& token : *listed)
    name(required_int(token, "rank"), required_string(token, "token_str"));
  return texts;
}

/// Bytes of the tokens by rank.
std::vector<std::string> read_ranks(const Json& vocab, int64_t count) {
  std::vector<std::string> ranks;
  SafePoints points;
  for (int64_t i = 0; i < count; ++i)
    in_context("vocab[" + std::to_string(i) + "]", [&] {
      points.pass();
      const Json& token = vocab[static_cast<size_t>(i)];
      if (required_int(token, "rank") != i)
        fail("key 'rank' is ", required_int(token, "rank"), ", expected ", i);
      const auto bytes = decode_base64(required_string(token, "token_bytes"));
      if (!bytes) fail("key 'token_bytes' is not base64");
      if (bytes->empty() || bytes->size() > kLongestToken)
        fail("a token of ", bytes->size(), " bytes, expected 1 to ", kLongestToken);
      ranks.push_back(*bytes);
    });
  return ranks;
}

/// Two neighbours are merged when they spell a token, the one of lowest rank first: so each way to
/// halve a token is a merge of that token's rank.
MergeTable make_merges(const std::vector<std::string>& ranks, const Vocabulary& bytes) {
  MergeTable merges;
  size_t pair_bytes = 0;
  SafePoints points;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::string_view text = ranks[rank];
    pair_bytes += text.size() * text.size();
    if (pair_bytes > kMostPairBytes) fail("vocab: too many long tokens");
    for (size_t i = 1; i < text.size(); ++i) {
      points.pass();
      const auto left = bytes.find(text.substr(0, i)), right = bytes.find(text.substr(i));
      if (left && right) merges.add(*left, *right, static_cast<uint32_t>(rank), *bytes.find(text));
    }
  }
  return merges;
}

std::unique_ptr<TokenModel> make_ranked_bpe(const std::vector<std::string>& ranks,
                                            const std::vector<std::string>& special) {
  Vocabulary bytes, vocabulary;
  SafePoints points;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    points.pass();
    const auto id = static_cast<TokenId>(special.size() + rank);
    if (bytes.find(ranks[rank])) fail("vocab[", rank, "] repeats an earlier token");
    bytes.add(ranks[rank], id);
    std::string text;
    append_byte_alphabet(text, ranks[rank]);
    vocabulary.add(text, id);
  }
  for (size_t id = 0; id < special.size(); ++id)
    vocabulary.add(special[id], static_cast<TokenId>(id));
  BpeOptions options;
  options.ignore_merges = true;
  return make_bpe(std::move(options), std::move(vocabulary), make_merges(ranks, bytes));
}

Json make_parts(const std::string& pattern, const std::vector<std::string>& special) {
  Json tokens = Json::array();
  for (size_t id = 0; id < special.size(); ++id)
    tokens.push_back(
        {{"id", id}, {"content", special[id]}, {"normalized", false}, {"special", true}});
  const Json byte_level{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const Json split{{"type", "Split"},
                   {"pattern", {{"Regex", pattern}}},
                   {"behavior", "Isolated"},
                   {"invert", false}};
  return {{"pre_tokenizer",
           {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level})}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"added_tokens", tokens}};
}

}  // namespace

bool is_rank_list(std::string_view model) {
  const std::string_view line = model.substr(0, std::min(model.find('\n'), size_t{4096}));
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0) return false;
  const std::string_view rank = line.substr(space + 1, line.find_last_not_of('\r') - space);
  return decode_base64(line.substr(0, space)).has_value() && !rank.empty() &&
         rank.find_first_not_of("0123456789") == std::string_view::npos;
}

std::unique_ptr<Tokenizer> read_tekken(std::string_view text) {
  const Json json = parse_model_json(text, kTokenizerLimits);
  const Json* config = find_field(json, "config");
  if (!config) fail_missing("config", "an object");
  const Json& vocab = required_array(json, "vocab");
  const Json* named = find_field(json, "special_tokens");
  const Sizes sizes = in_context("config", [&] {
    return read_sizes(*config,
                      static_cast<int64_t>(named ? named->size() : unlisted_tokens().size()),
                      static_cast<int64_t>(vocab.size()));
  });
  if (sizes.ranks > kMostTokens) fail("vocabulary of ", sizes.ranks, " tokens is too large");
  const std::vector<std::string> special = special_texts(json, sizes.special);
  auto model = make_ranked_bpe(read_ranks(vocab, sizes.ranks), special);
  const std::string pattern =
      in_context("config", [&] { return required_string(*config, "pattern"); });
  return assemble_tokenizer(make_parts(pattern, special), std::move(model));
}

}  // namespace kvcal::tokenizers
