// kvcal_overlay.json.
#include "export/checkpoint_copy.h"

#include "support/fuzz.h"
#include "support/json_mutator.h"

using namespace kvcal;

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  return fuzz::mutate_json(data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Folder folder;
  folder.write(std::string(kOverlayName), fuzz::text_of(data, size));
  fuzz::accepts([&] { read_overlay(folder.path()); });
  return 0;
}
