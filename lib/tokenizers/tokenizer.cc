#include "tokenizers/tokenizer.h"

#include <functional>

#include "core/error.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/json.h"
#include "tokenizers/tokenizer_files.h"

namespace kvcal {

namespace {

/// The largest tokenizers published have 35 MB.
constexpr size_t kMaxBytes = kTokenizerLimits.max_bytes;

using FolderText = std::function<std::string(const char*)>;

std::unique_ptr<Tokenizer> make_sentencepiece(const fs::path& path, const FolderText& text_of) {
  const std::string model = read_text(path, kMaxBytes), config = text_of("tokenizer_config.json"),
                    added = text_of("added_tokens.json");
  return in_context(path.string(), [&] {
    if (tokenizers::is_rank_list(model))
      fail(
          "found tiktoken ranks, which do not say how text is split; expected a sentencepiece "
          "model. Convert the tokenizer to tokenizer.json");
    return tokenizers::read_sentencepiece({.model = model, .config = config, .added = added});
  });
}

std::unique_ptr<Tokenizer> make_from_vocabulary(const fs::path& folder, const FolderText& text_of) {
  const std::string vocab = text_of("vocab.json"), merges = text_of("merges.txt"),
                    config = text_of("tokenizer_config.json"), added = text_of("added_tokens.json"),
                    special = text_of("special_tokens_map.json"), model = text_of("config.json");
  return in_context(folder.string(), [&] {
    return tokenizers::read_vocab_and_merges({.vocab = vocab,
                                              .merges = merges,
                                              .config = config,
                                              .added = added,
                                              .special_tokens = special,
                                              .model_config = model});
  });
}

/// Names what the folder has instead, so that the way out can be named too.
[[noreturn]] void fail_without_tokenizer(const fs::path& folder) {
  std::string ranks;
  for (const fs::path& path : paths_in(folder)) {
    const std::string name = path.filename().string();
    if (name.ends_with(".tiktoken") || name == "tiktoken.model") ranks = name;
  }
  if (!ranks.empty())
    fail(folder.string(), ": ", ranks,
         " holds tiktoken ranks, which do not say how text is split; convert the tokenizer to "
         "tokenizer.json");
  fail(folder.string(),
       ": found neither tokenizer.json, tokenizer.model, vocab.json with merges.txt, nor "
       "tekken.json");
}

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const std::filesystem::path& folder) {
  const auto has = [&](const char* name) { return is_there(folder / name); };
  const auto text_of = [&](const char* name) {
    return has(name) ? read_text(folder / name, kMaxBytes) : std::string();
  };
  const auto read = [&](const char* name, auto reader) {
    const std::string text = text_of(name);
    return in_context((folder / name).string(), [&] { return reader(text); });
  };
  if (has("tokenizer.json")) return read("tokenizer.json", tokenizers::read_tokenizer_json);
  if (has("tokenizer.model")) return make_sentencepiece(folder / "tokenizer.model", text_of);
  if (has("vocab.json") && has("merges.txt")) return make_from_vocabulary(folder, text_of);
  if (has("tekken.json")) return read("tekken.json", tokenizers::read_tekken);
  fail_without_tokenizer(folder);
}

}  // namespace kvcal
