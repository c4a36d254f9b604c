// kv_cache_scales.json through our own reader and through the rules of the engines that read it.
#include <cmath>

#include "engines/scale_loading.h"
#include "stored/kv_scales.h"
#include "support/fuzz.h"
#include "support/json_mutator.h"

using namespace kvcal;

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  return fuzz::mutate_json(data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Folder folder;
  static const ModelConfig config =
      parse_model_config(parse_json(fuzz::fixture("models/llama/config.json")));
  const fs::path path = folder.write("kv_cache_scales.json", fuzz::text_of(data, size));
  fuzz::accepts([&] {
    const ScalesFile file = read_scales_json(path, config);
    KVCAL_CHECK(static_cast<int64_t>(file.layers.size()) == config.num_hidden_layers);
  });
  for (const int64_t tp_size : {int64_t{1}, int64_t{2}}) {
    fuzz::accepts([&] {
      const ScalesFileContent content = read_scales_file(path, config, tp_size);
      KVCAL_CHECK(content.rejection.empty() != content.layers.empty());
    });
  }
  return 0;
}
