// config.json through the eyes of every family, and the modules and tensors that it promises.
#include "family/model_config.h"

#include "family/architecture.h"
#include "family/expected_tensors.h"
#include "support/fuzz.h"
#include "support/json_mutator.h"
#include "synth/synthetic.h"

using namespace kvcal;

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  return fuzz::mutate_json(data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::accepts([&] {
    const Json json = parse_json(fuzz::text_of(data, size), {.has_python_constants = true});
    const ModelConfig config = parse_model_config(json);
    KVCAL_CHECK(config.num_hidden_layers == static_cast<int64_t>(config.layers.size()));
    for (const LayerConfig& layer : config.layers)
      // Behind a latent lies the rotated part of its key, which GLM-5.3 has not.
      KVCAL_CHECK(layer.cache.heads > 0 && layer.cache.k_dim > 0 &&
                  (layer.cache.v_dim > 0 ||
                   (config.architecture->has_latent_attention && layer.cache.v_dim == 0)));
    fuzz::accepts([&] { synthetic_config(json, {.num_layers = 1}); });
    // Sizes up to the limits are legal and their lists long; they are another test's matter.
    constexpr int64_t kFew = 64;
    if (config.num_hidden_layers > kFew || config.moe.num_experts > kFew) return;
    list_modules(config);
  });
  return 0;
}
