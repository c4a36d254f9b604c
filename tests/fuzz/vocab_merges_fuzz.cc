// vocab.json, merges.txt and the files beside them, one after the other.
#include "support/encode_texts.h"
#include "support/fuzz.h"
#include "support/json_mutator.h"
#include "tokenizers/tokenizer_files.h"

using namespace kvcal;

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  return fuzz::mutate_json_parts(data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parts = fuzz::parts_of(fuzz::text_of(data, size), 7);
  fuzz::accepts([&] {
    const auto tokenizer = tokenizers::read_vocab_and_merges({.vocab = parts[0],
                                                              .merges = parts[1],
                                                              .config = parts[2],
                                                              .added = parts[3],
                                                              .special_tokens = parts[4],
                                                              .model_config = parts[5]});
    fuzz::encode_texts(*tokenizer, parts[6]);
  });
  return 0;
}
