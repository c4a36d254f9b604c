// Layers that add n-grams to the residual streams.
#include <algorithm>

#include "core/number.h"
#include "family/layer_plan.h"
#include "family/ngram_hashes.h"

namespace kvcal {
namespace {

/// More would be mistakes.
constexpr int64_t kMostNgramTokens = 16, kMostNgramHashes = 256, kMostNgramRows = int64_t{1} << 31;

/// eos_token_id, or the first of its list.
int64_t separator_of(const ConfigReader& reader) {
  const Json* found = reader.find("eos_token_id");
  const Json* first = found && found->is_array() && !found->empty() ? &found->at(0) : found;
  if (!first || !first->is_number_integer() || *first < 0 || *first >= kMaxVocab)
    fail("key 'eos_token_id' is ", found ? found->dump() : "missing",
         ", expected the token that separates n-grams, or a list that begins with it");
  return first->get<int64_t>();
}

/// Layers of the list, counted from 0, ascending.
std::vector<int64_t> ngram_layers(const ConfigReader& reader, const ModelConfig& config) {
  constexpr std::string_view kKey = "ple_layer_ids";
  const Json* list = reader.find(kKey);
  if (!list) return {};
  if (!list->is_array()) fail_kind(kKey, "a list of layers", *list);
  std::vector<int64_t> layers;
  for (const Json& entry : *list) {
    if (!entry.is_number_integer() || entry < 1 || entry > config.num_hidden_layers)
      fail("key '", kKey, "' holds ", entry.dump(), ", expected 1 to ", config.num_hidden_layers);
    const int64_t layer = entry.get<int64_t>() - 1;
    if (!config.layer(layer).has_recurrence)
      fail("key '", kKey, "' holds ", entry.dump(),
           ", a layer without linear attention, which has no n-grams");
    layers.push_back(layer);
  }
  std::ranges::sort(layers);
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  return layers;
}

}  // namespace

// Source: transformers 5.24, models/qwen4_exp `Qwen4ExpTextConfig`; tensors of a table as
// save_pretrained cuts them, like torch.chunk.
void parse_ngrams(const ConfigReader& reader, ModelConfig& config) {
  if (!config.architecture->adds_ngrams) return;
  reader.knows({"ple_embed_dim", "ple_conv_kernel_size", "ngram_size", "heads_per_ngram",
                "ngram_vocab_size_base", "make_ngram_vocab_size_divisible_by", "seed",
                "split_ngram_parts", "eos_token_id"});
  const std::vector<int64_t> layers = ngram_layers(reader, config);
  if (layers.empty()) return;
  NgramConfig& ngrams = config.ngrams;
  ngrams.longest = reader.size("ngram_size", kMostNgramTokens, 2);
  ngrams.hashes = reader.size("heads_per_ngram", kMostNgramHashes);
  ngrams.width = reader.integer("ple_embed_dim") ? reader.size("ple_embed_dim", kMaxWidth)
                                                 : config.hidden_size;
  if (ngrams.width % ngrams.all_hashes() != 0)
    fail("key 'ple_embed_dim' is ", ngrams.width, ", expected a multiple of ",
         counted(ngrams.all_hashes(), "hash"));
  ngrams.kernel = reader.size("ple_conv_kernel_size", 64);
  ngrams.least_rows = reader.size("ngram_vocab_size_base", kMostNgramRows);
  ngrams.separator = separator_of(reader);
  // Files hold the factors, so that it matters where they are made.
  if (const auto seed = reader.integer("seed")) ngrams.seed = static_cast<uint64_t>(*seed);
  const int64_t multiple = reader.size("make_ngram_vocab_size_divisible_by", kMaxVocab);
  const int64_t parts = reader.size("split_ngram_parts", kMaxWidth);
  for (size_t i = 0; i < layers.size(); ++i) {
    LayerConfig& layer = config.layers[static_cast<size_t>(layers[i])];
    layer.has_ngrams = true;
    layer.ngram_index = static_cast<int64_t>(i);
    const int64_t rows = ngram_hashes(ngrams, config.vocab_size, layer.ngram_index).rows();
    layer.ngram_rows = (rows + multiple - 1) / multiple * multiple;
    layer.ngram_part_rows = (layer.ngram_rows + parts - 1) / parts;
  }
}

}  // namespace kvcal
