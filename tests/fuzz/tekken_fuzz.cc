// Mistral's tekken.json, and text behind it that is encoded.
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
  const auto parts = fuzz::parts_of(fuzz::text_of(data, size), 2);
  fuzz::accepts([&] { fuzz::encode_texts(*tokenizers::read_tekken(parts[0]), parts[1]); });
  return 0;
}
