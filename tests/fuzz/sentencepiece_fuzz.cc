// tokenizer.model, alone and with a tokenizer_config.json beside it.
#include "support/encode_texts.h"
#include "support/fuzz.h"
#include "tokenizers/tokenizer_files.h"

using namespace kvcal;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view model = fuzz::text_of(data, size);
  tokenizers::is_rank_list(model);
  for (const std::string_view config :
       {R"({})",
        R"({"add_bos_token": true, "legacy": false, "bos_token": "<s>", "added_tokens_decoder":
           {"0": {"content": "<unk>", "special": true}, "1": {"content": "<s>", "special": true}}})"})
    fuzz::accepts([&] {
      const auto tokenizer =
          tokenizers::read_sentencepiece({.model = model, .config = config, .added = {}});
      fuzz::encode_texts(*tokenizer, {});
    });
  return 0;
}
