#include "text/tokenizer.h"

#include "core/error.h"
#include "core/file.h"
#include "text/tokenizers/tokenizer_files.h"

namespace kvcal {

std::unique_ptr<Tokenizer> make_tokenizer(const std::filesystem::path& folder) {
  if (const fs::path json = folder / "tokenizer.json"; fs::exists(json)) {
    const std::string text = read_text(json);
    return in_context(json.string(), [&] { return tokenizers::read_tokenizer_json(text); });
  }
  const fs::path model = folder / "tokenizer.model";
  if (!fs::exists(model))
    fail(folder.string(), ": found neither tokenizer.json nor tokenizer.model");
  const auto text_or_empty = [&](const char* name) {
    return fs::exists(folder / name) ? read_text(folder / name) : std::string();
  };
  const std::string model_text = read_text(model);
  const std::string config = text_or_empty("tokenizer_config.json"),
                    added = text_or_empty("added_tokens.json");
  return in_context(model.string(), [&] {
    return tokenizers::read_sentencepiece({.model = model_text, .config = config, .added = added});
  });
}

}  // namespace kvcal
