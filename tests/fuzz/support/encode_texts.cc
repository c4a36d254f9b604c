#include "support/encode_texts.h"

#include "support/fuzz.h"

namespace kvcal::fuzz {

void encode_texts(const Tokenizer& tokenizer, std::string_view more) {
  const std::string_view texts[] = {"", "Hello world, it's 12345!\n\n  x",
                                    "<s>a</s>[INST] \xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
                                    "\xff\xfe a\tb", more.substr(0, 1000)};
  for (const std::string_view text : texts) {
    accepts([&] {
      // What a template adds may be no token of the vocabulary; callers check ids.
      tokenizer.decode(tokenizer.encode(text, true), false);
      const std::vector<TokenId> ids = tokenizer.encode(text, false);
      for (const TokenId id : ids) KVCAL_CHECK(id >= 0 && id < tokenizer.vocab_size());
      tokenizer.decode(ids, true);
    });
  }
  accepts([&] {
    for (const TokenId id : {TokenId{0}, TokenId{1}, TokenId{-1}, TokenId{INT32_MAX}})
      if (const auto token = tokenizer.id_to_token(id)) tokenizer.token_to_id(*token);
  });
}

}  // namespace kvcal::fuzz
