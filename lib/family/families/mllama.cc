#include "family/tensor_tables.h"

namespace kvcal {

namespace {

/// With text alone the layers whose K and V are the image's do nothing: no gate, no MLP.
void skip_cross_attention(const Json& json, ModelConfig& config) {
  std::vector<int64_t> layers{3, 8, 13, 18, 23, 28, 33, 38};
  const Json* list = find_field(json, "cross_attention_layers");
  if (list) {
    layers.clear();
    if (!list->is_array()) fail_kind("cross_attention_layers", "a list of layers", *list);
    for (const Json& layer : *list) {
      if (!layer.is_number_integer() || layer.get<int64_t>() < 0)
        fail("key 'cross_attention_layers' holds ", layer.dump(), ", expected numbers of layers");
      layers.push_back(layer.get<int64_t>());
    }
  }
  for (const int64_t number : layers) {
    if (number >= std::ssize(config.layers)) continue;
    LayerConfig& layer = config.layers[static_cast<size_t>(number)];
    layer.has_attention = layer.has_mixer = layer.has_mlp = false;
  }
}

}  // namespace

// Llama with layers that attend to the image. Source: transformers, models/mllama.
Architecture mllama_architecture() {
  return {
      .name = "mllama",
      .model_types = {"mllama_text_model"},
      .attention_class = "MllamaTextSelfAttention",
      .description = "text model of Llama 3.2 Vision",
      .defaults = R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 500000})",
      .text_defaults = R"({"vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
                           "num_hidden_layers": 40, "num_attention_heads": 32,
                           "max_position_embeddings": 131072})",
      .fixed = {{"tie_word_embeddings", "false"}},
      .known_keys = {"cross_attention_layers"},
      .resolve = skip_cross_attention,
      .extra_embeddings = 8,
      .model_tensors =
          joined({{{Role::kEmbedding, "embed_tokens.weight", {Dim::kEmbeddingRows, Dim::kHidden}}},
                  {{Role::kFinalNorm, "norm.weight", {Dim::kHidden}},
                   {Role::kLmHead, "lm_head.weight", {Dim::kVocab, Dim::kHidden}}}}),
      .layer_tensors = with(when(&LayerConfig::has_attention),
                            joined({pre_norm_rows(), attention_rows(), mlp_rows()})),
  };
}

}  // namespace kvcal
