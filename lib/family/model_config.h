// A layer without a cache of its own has the scales of the one it reads
// (LayerConfig::cache_layer). Its statistics of K and V are copies, so that every output and
// `kvcal scales` treat it as any layer; vLLM 0.32 dequantizes the shared cache with the reading
// layer's scales (flash_attn.py, layer._k_scale). It runs only where its queries or its Linears'
// inputs are wanted. In a pass by layers, K and V that later layers read travel beside the
// residual stream, as planes of the hidden states (carried_width), dequantized, so that spilling
// and resuming need not know of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "backend/operations.h"
#include "backend/routing_operations.h"
#include "core/json.h"
#include "family/family_choice.h"
#include "family/words.h"

namespace kvcal {

struct Architecture;
struct Wrapper;
enum class Dim : uint8_t;
struct Condition;

/// Rotary position embedding. Source: transformers `modeling_rope_utils`.
struct RopeConfig {
  enum class Type : uint8_t {
    kDefault,
    kLinear,
    kDynamic,
    kYarn,
    kLongRope,
    kLlama3,
    kProportional
  };
  Type type = Type::kDefault;
  double theta = 10000.0;
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  ///< llama3
  double beta_fast = 32.0, beta_slow = 1.0;              ///< yarn
  double mscale = 0.0, mscale_all_dim = 0.0;             ///< yarn; 0: absent
  double attention_factor = 0.0;                         ///< yarn, longrope; 0: derived from factor
  double short_mscale = 0.0, long_mscale = 0.0;          ///< longrope; 0: attention_factor
  bool truncate = true;                                  ///< yarn
  bool turns_back = false;                               ///< by the negative angle
  double query_beta =
      0.0;  ///< queries grow by 1 + beta · ln(1 + position / trained length); 0: none
  int64_t query_growth_shift = 0;  ///< added to the position in query_beta's formula
  /// Queries grow by 1 + beta · ln(max(1, shifted position / trained length)) instead.
  bool queries_grow_late = false;
  int64_t unturned_dim = 0;  ///< first dimensions of a head, which do not turn; their queries grow
  std::vector<double> short_factor, long_factor;  ///< longrope, [rotary_dim / 2]
  int64_t original_max_position_embeddings = 0;
  int64_t max_position_embeddings = 0;
  /// M-RoPE: numbers of pairs that turn by a token's place in time, height and width; 0: all turn
  /// by its position. Interleaved: pair i turns by axis i mod 3, as far as its section goes.
  std::array<int64_t, 3> sections{};
  bool sections_are_interleaved = false;
  int64_t rotary_dim = 0;   ///< rotated dimensions of each head; even; 0: queries grow, only
  int64_t turning_dim = 0;  ///< proportional: those of them whose frequency is not 0

  bool has_sections() const { return sections[0] > 0; }
  /// The axis of a token's place by which a pair of dimensions turns.
  size_t axis_of(int64_t pair) const;
  bool operator==(const RopeConfig&) const = default;
};

/// YaRN's attention factor: 0.1 · mscale · ln(factor) + 1, and 1 for factors up to 1. Source:
/// transformers `get_mscale`.
double yarn_mscale(double factor, double mscale);

struct MoeConfig {
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;  ///< in the layer that has the most
  int64_t intermediate_size = 0, shared_intermediate_size = 0;
  /// Shared experts that the router scores, each of shared_intermediate_size; 0: it scores none.
  int64_t scored_shared = 0;
  int64_t latent_size = 0;  ///< of the experts' inputs and outputs; 0: hidden_size
  RouterScore score = RouterScore::kSoftmax;
  GroupScore group_score = GroupScore::kNone;
  int64_t num_groups = 1, groups_per_token = 1;
  float shared_multiplier = 1.0f;  ///< of the shared expert's output
  float logits_softcap = 0.0f;     ///< of the router; 0: none

  bool operator==(const MoeConfig&) const = default;
};

/// Latent attention: the cache holds the normed latent [latent_rank] and a rotated key [rope_dim]
/// that all heads share.
struct LatentConfig {
  int64_t query_rank = 0;  ///< 0: Q is projected in one step
  int64_t latent_rank = 0, nope_dim = 0, rope_dim = 0, value_dim = 0;
  /// Of the norms of both ranks: that of their class in most published code, not rms_norm_eps.
  float norm_eps = 1e-6f;
  float query_multiplier = 1.0f, latent_multiplier = 1.0f;  ///< of what these norms give

  /// Width of the latent and the rotated key of a token.
  int64_t width() const { return latent_rank + rope_dim; }
  /// Width of unrotated K and V of all heads.
  int64_t up_width(int64_t heads) const { return heads * (nope_dim + value_dim); }
  bool operator==(const LatentConfig&) const = default;
};

/// The indexer of sparse attention: scores all keys for each query, of which attention reads the
/// topk with the largest scores. Its one key a token and its queries have head_dim.
struct IndexerConfig {
  int64_t topk = 0;  ///< 0: there is no indexer
  int64_t heads = 0, head_dim = 0;
  /// Keys that are selected together, by their mean, which turns by the first one's position. Those
  /// behind the last whole block are always read.
  int64_t block = 1;
  bool rope_is_interleaved = false;

  int64_t query_width() const { return heads * head_dim; }
  bool operator==(const IndexerConfig&) const = default;
};

/// Embeddings of the n-grams that end at a token, by their hashes, which some layers add to the
/// residual streams.
struct NgramConfig {
  int64_t longest = 0;     ///< n-grams have 2 to so many tokens; 0: there are none
  int64_t hashes = 0;      ///< of each length
  int64_t width = 0;       ///< of the embeddings of all hashes
  int64_t kernel = 0;      ///< taps of the convolution, `longest` tokens apart
  int64_t separator = 0;   ///< token behind which no n-gram reaches back
  int64_t least_rows = 0;  ///< the rows of hashes are the primes from here on
  uint64_t seed = 0;       ///< of the hashes' multipliers

  int64_t all_hashes() const { return (longest - 1) * hashes; }
  int64_t hash_width() const { return longest == 0 ? 0 : width / all_hashes(); }
  /// Tokens before a token that its n-grams hold.
  int64_t history() const { return longest - 1; }
  /// Rows of the convolution, with those between the taps.
  int64_t convolved_rows() const { return (kernel - 1) * longest + 1; }
  bool operator==(const NgramConfig&) const = default;
};

/// Operation that mixes tokens. A short convolution is LFM2's: two gates around a convolution over
/// a few tokens, no other state.
KVCAL_WORDED_ENUM(Mixer, "mixer", kAttention, kMamba, kMamba2, kDeltaNet, kShortConvolution,
                  kLightning,  ///< a sum of k vᵀ that each head lets fade at a fixed rate
                  kNone)

/// Factors of the parts of a Mamba 2 mixer's projection: gate, x, B, C, step sizes.
using MixerMultipliers = std::array<float, 5>;

/// A recurrent mixer: a convolution over a few tokens, then a state that each token updates.
struct RecurrentConfig {
  int64_t heads = 0, head_dim = 0;    ///< of the values and the output; Mamba 1 and short
                                      ///< convolution: channels, 1
  int64_t groups = 0, state_dim = 0;  ///< Mamba: of B and C; delta net: of keys and queries
  int64_t kernel = 0;                 ///< width of the convolution, in tokens
  int64_t norm_groups = 1;            ///< Mamba 2: of the gated norm
  float dt_min = 0.0f, dt_max = std::numeric_limits<float>::infinity();  ///< Mamba 2

  float norm_eps = 0.0f;  ///< of the gated norm; 0: the model's
  float beta_range =
      1.0f;  ///< delta net: update strengths are below this; 2: states may change sign

  int64_t step_rank = 0;  ///< Mamba 1: of the step sizes' projection
  /// Kimi's delta net, whose states fade by key: of the projections of the output's gates and of
  /// decays; 0: rows of the input's.
  int64_t gate_rank = 0, decay_rank = 0;
  bool fades_by_key = false;  ///< delta net: states fade by key, as Kimi's, not by head
  float decay_floor = 0.0f;   ///< then the logarithms of decays lie above it; 0: no bound
  bool sigmoid_gate = false;  ///< delta net: of the output, instead of the SiLU
  int64_t channels = 0;       ///< of the convolution
  MixerMultipliers in_multipliers{1.0f, 1.0f, 1.0f, 1.0f, 1.0f};

  int64_t inner() const { return heads * head_dim; }
  /// Width of all keys, or queries, of a delta net.
  int64_t keys() const { return groups * state_dim; }
  /// In the input's projection: the output's gates, which come first, and what precedes the
  /// convolution's channels.
  int64_t gate_width() const { return gate_rank > 0 ? gate_rank : inner(); }
  int64_t gates_width() const { return gate_width() + decay_rank; }
  bool operator==(const RecurrentConfig&) const = default;
};

/// Hyper-connections between parallel residual streams; see ConnectStreamsArgs.
struct ConnectionConfig {
  int64_t iterations = 0;  ///< of Sinkhorn's normalization; 0: there are none
  float epsilon = 0.0f;

  bool exist() const { return iterations > 0; }
  bool operator==(const ConnectionConfig&) const = default;
};

/// Heads of one layer's attention.
struct AttentionSizes {
  int64_t heads = 0, kv_heads = 0;
  int64_t head_dim = 0, value_dim = 0;  ///< of Q and K; of V

  int64_t query_width() const { return heads * head_dim; }
  int64_t key_width() const { return kv_heads * head_dim; }
  int64_t value_width() const { return kv_heads * value_dim; }
  int64_t qkv_width() const { return query_width() + key_width() + value_width(); }
  /// Width of the output of attention, per token.
  int64_t attended_width() const { return heads * value_dim; }
  bool operator==(const AttentionSizes&) const = default;
};

/// K and V that a layer's attention reads, for one token: K [heads, k_dim], V [heads, v_dim].
/// Everything that stores, counts, scales, writes or shows K and V asks this value.
struct LayerCache {
  int64_t heads = 0, k_dim = 0, v_dim = 0;

  /// Elements of K and V.
  int64_t width() const { return heads * (k_dim + v_dim); }
  bool operator==(const LayerCache&) const = default;
};

/// One layer's own variations.
struct LayerConfig {
  AttentionSizes attention;       ///< also set in layers without attention
  LayerCache cache;               ///< likewise
  LatentConfig latent;            ///< likewise, where attention is latent
  int64_t sliding_window = 0;     ///< 0: full attention
  int64_t relative_extent = 0;    ///< distances of keys that have a logit of their own; 0: none
  int64_t chunk = 0;              ///< tokens see their own chunk of so many tokens; 0: all
  int64_t rope = 0;               ///< index into ModelConfig::ropes; kNoRope: none
  int64_t cache_layer = 0;        ///< that computes and stores K and V: this one, or an earlier one
  int64_t intermediate_size = 0;  ///< of a dense MLP
  int64_t experts_per_token = 0;  ///< 0: the model's
  int64_t ngram_index = 0;        ///< among the layers with n-grams
  /// Of the table of n-grams: all rows, and those of each of its tensors but the last.
  int64_t ngram_rows = 0, ngram_part_rows = 0;
  /// Share of a dense MLP's gate that is zero, of numbers of a normal distribution; 0: all is kept.
  double activation_sparsity = 0.0;
  // Switches in the conditions of the tensor tables. A layer may have attention and a recurrent
  // mixer, which both read its input.
  bool has_attention = true, has_recurrence = false, has_mixer = true;
  bool has_window = false;           ///< of the kind that has one, also where sliding_window is 0
  bool has_own_cache = true;         ///< false: attention reads the cache of cache_layer
  bool has_value_projection = true;  ///< false: V is the projection of K before its norm
  bool has_mlp = true;               ///< a dense one
  bool is_moe = false;
  float softmax_factor = 1.0f;  ///< of ModelConfig::softmax_scale
  /// Of the activated gates of experts, of an MLP and of the shared expert; 0: none. See
  /// ActivationFunction::limits_activated.
  float expert_limit = 0.0f, mlp_limit = 0.0f;
  bool norms_heads = true;  ///< Q and K, where that norm has no weight
  /// Tokens of an image see all of their image, not only what is before them.
  bool sees_images_whole = false;
  bool is_draft = false;     ///< runs behind the model, as engines run a draft; see draft_layer.h
  bool has_indexer = false;  ///< of its own
  /// Beside an IndexerConfig: attention reads the keys that the layer's indexer selects, or that of
  /// the last layer before with one; false: all keys.
  bool reads_selected = false;
  bool has_ngrams = false;

  int64_t ngram_parts() const {
    return has_ngrams ? (ngram_rows + ngram_part_rows - 1) / ngram_part_rows : 0;
  }
  bool operator==(const LayerConfig&) const = default;
};
constexpr int64_t kNoRope = -1;

/// config.json, checked, with the family's defaults. Reads both spellings: rope_theta, rope_scaling
/// and torch_dtype, or rope_parameters and dtype of transformers 5.
struct ModelConfig {
  const Architecture* architecture = nullptr;
  std::string model_type;
  std::string wrapper_type;              ///< of the multimodal model around it; empty: none
  const Wrapper* wrapper = nullptr;      ///< its row; nullptr: none, or the type is not known
  FamilyChoice chosen;                   ///< the user's, where model_type is not known; else empty
  std::vector<std::string> unread_keys;  ///< see ConfigReader; empty where chosen
  int64_t hidden_size = 0, intermediate_size = 0, vocab_size = 0;
  int64_t output_vocab_size = 0;  ///< width of the logits; vocab_size in most models
  /// Width of the embedding's table and of lm_head's input; hidden_size in most models.
  int64_t embedding_size = 0;
  int64_t num_hidden_layers = 0, num_attention_heads = 0, num_key_value_heads = 0, head_dim = 0;
  int64_t max_position_embeddings = 0;
  /// Of longer sequences, attention reads blocks of keys that no backend selects; 0: no limit.
  int64_t most_tokens = 0;
  float norm_eps = 0.0f;
  Activation activation = Activation::kSilu;
  float activation_beta = 1.0f;     ///< of SiTU
  float up_softcap = 0.0f;          ///< see ActivationFunction; 0: none
  float activation_limit = 0.0f;    ///< gpt-oss' clamped gate; 0: none
  bool activation_adds_one = true;  ///< gpt-oss: 1 is added to what the clamped gate multiplies

  // Switches in the conditions of the tensor tables.
  bool attention_bias = false, output_bias = false, mlp_bias = false, lm_head_bias = false;
  bool tie_word_embeddings = false;
  /// A wrapper does not say whether lm_head is tied: it is where the file has none.
  bool ties_by_file = false;
  bool has_qk_norm = false;
  bool has_mlp_norm = true;      ///< false: the MLP shares attention's norm
  bool has_norm_weights = true;  ///< false: the family's plain_norms have none
  bool has_final_norm = true;
  bool projects_embedding = false;  ///< to hidden_size, and back before lm_head
  bool has_output_norms = false;    ///< in families where they are optional
  bool norms_stream = false;        ///< norms before attention and MLP change the residual stream
  bool parallel_residual = false;   ///< attention and MLP both read the layer's input
  bool norm_topk_prob = false;
  bool centers_norm = false;       ///< LayerNorm: subtracts the mean
  bool gates_attention = true;     ///< in families where gates of attention are optional
  bool gates_whole_heads = false;  ///< one gate a head, not one an element
  /// Names and parts of tensors are those that transformers' save_pretrained writes, where the
  /// family was published with others; found by the file.
  bool has_saved_names = false;
  bool rope_is_interleaved = false;  ///< rotates pairs (2i, 2i + 1) instead of halves
  bool has_query_rank = false;
  bool has_shared_expert = false;
  bool has_expert_latent = false, norms_expert_latent = false;
  bool corrects_router = true;  ///< in families where a correction of the router is optional
  bool experts_in_out = false;  ///< tensors of all experts are [experts, in, out]
  bool has_conv_bias = false, mixer_bias = false, mixer_output_bias = false;
  bool has_full_rank_gate = false;  ///< of a delta net, where the rank is optional
  bool has_mixer_norm = true;       ///< Mamba 2: the gated output is normed
  bool norms_before_gate = false;   ///< that norm precedes the gate
  bool multi_query = false, new_decoder_architecture = false;  ///< Falcon
  bool has_parallel_norms = false;                             ///< Falcon's ln_attn and ln_mlp
  bool has_layer_inputs = false;     ///< every layer reads an embedding of its own
  bool scales_active_stream = true;  ///< where the layer's own input is gated by it

  float embedding_multiplier = 1.0f, residual_multiplier = 1.0f, logits_multiplier = 1.0f;
  float head_input_multiplier = 1.0f;  ///< of the final norm's output
  // Of the inputs of attention and recurrent mixers, and of their outputs and the MLP's, where
  // residual_multiplier applies, too.
  float attention_input_multiplier = 1.0f, mixer_input_multiplier = 1.0f;
  float attention_output_multiplier = 1.0f, mixer_output_multiplier = 1.0f;
  float mlp_output_multiplier = 1.0f;
  /// Where norms change the residual stream, its factors behind those before attention, recurrent
  /// mixers and MLPs.
  float attention_stream_multiplier = 1.0f, mixer_stream_multiplier = 1.0f;
  float mlp_stream_multiplier = 1.0f;
  float key_multiplier = 1.0f;   ///< of the projection of K
  float gate_multiplier = 1.0f;  ///< of an MLP's gate, before the activation
  float softmax_scale = 0.0f;    ///< times the layer's softmax_factor
  float attention_softcap = 0.0f, logits_softcap = 0.0f;  ///< 0: none
  std::vector<float> alibi_slopes;  ///< [num_attention_heads], see AttentionArgs; or none
  float routed_scaling_factor = 1.0f;
  float qkv_limit = 0.0f;  ///< Q, K and V are cut to [-limit, limit] after their norms; 0: none
  float value_multiplier = 1.0f;  ///< of V, before it enters the cache
  float router_jitter = 0.0f;     ///< sparse mixer's margin
  float topk_norm_order = 1.0f;   ///< where norm_topk_prob: of the norm of the chosen weights

  MoeConfig moe;
  LatentConfig latent;  ///< of layers without sizes of their own
  IndexerConfig indexer;
  RecurrentConfig recurrent;
  /// Width in tokens of the convolutions of K, V and the outputs of attention and MLP; 0: none.
  int64_t short_kernel = 0;
  int64_t relative_rank = 0;  ///< of the states of relative logits, a head; 0: none
  NgramConfig ngrams;
  int64_t layer_input_size = 0, layer_input_vocab = 0;  ///< of the layers' own embeddings
  /// Parallel residual streams, of which layers run the active one.
  int64_t streams = 1, active_stream = 0;
  /// Where they exist, layers run a mix of all streams, and have no active one.
  ConnectionConfig connections;
  /// Of the gates that mix the streams into the input of attention, mixers and MLPs, whose output
  /// all streams get; 0: they are not mixed so.
  int64_t stream_mix_rank = 0;
  /// Layers whose outputs one residual sum holds; what attention, mixers and MLPs read attends over
  /// the sums. The first stream is that of the layer's own block, the others are those before, and
  /// the embedding. 0: one sum.
  int64_t residual_block = 0;
  bool attends_residuals = false;  ///< a switch: residual_block is set
  int64_t laurel_rank = 0;         ///< of the residual beside attention; 0: none
  /// [num_hidden_layers], and the draft layer where append_draft_layer has added it.
  std::vector<LayerConfig> layers;
  std::vector<RopeConfig> ropes;  ///< [0] for most layers; [1] for sliding layers with their own
  std::string dtype;              ///< "float16", "bfloat16", "float32"; empty where absent
  int64_t weight_block_rows = 0, weight_block_columns = 0;  ///< FP8 block-scaled; 0: 16 bits

  std::string backbone_prefix, head_prefix;  ///< prefixes of the tensors' names
  /// The checkpoint has no tensor of lm_head and ties none: an embedder or a reward model, whose K
  /// and V need none.
  bool lacks_head = false;

  /// With the draft layer.
  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
  bool has_draft() const { return !layers.empty() && layers.back().is_draft; }
  bool is_draft(int64_t layer) const { return has_draft() && layer == num_layers() - 1; }

  bool mixes_streams() const { return stream_mix_rank > 0; }
  /// Whether layers look up rows by the tokens' ids.
  bool reads_ids_in_layers() const { return has_layer_inputs || ngrams.longest > 0; }
  bool has_attention(int64_t layer) const {
    return layers[static_cast<size_t>(layer)].has_attention;
  }
  /// Layers for which holds(layers[i]) is true; holds may be a pointer to a field.
  template <class Predicate>
  std::vector<int64_t> layers_where(const Predicate& holds) const {
    std::vector<int64_t> found;
    for (int64_t i = 0; i < num_hidden_layers; ++i)
      if (std::invoke(holds, layers[static_cast<size_t>(i)])) found.push_back(i);
    return found;
  }
  bool has_own_cache(int64_t layer) const {
    return has_attention(layer) && layers[static_cast<size_t>(layer)].has_own_cache;
  }
  std::vector<int64_t> attention_layers() const {
    return layers_where(&LayerConfig::has_attention);
  }
  /// Layers that compute and store K and V.
  std::vector<int64_t> cached_layers() const {
    return layers_where(
        [](const LayerConfig& layer) { return layer.has_attention && layer.has_own_cache; });
  }
  /// Layers whose K and V later layers read, too, ascending.
  std::vector<int64_t> shared_layers() const;
  /// Whether a layer has a state beside K and V, from token to token.
  bool has_states(int64_t layer) const {
    const LayerConfig& own = layers[static_cast<size_t>(layer)];
    return short_kernel > 0 || own.has_recurrence || own.has_ngrams;
  }
  /// Whether attention over so many keys reads only those that an indexer selects.
  bool selects_keys(int64_t keys) const {
    return indexer.topk > 0 && keys >= indexer.topk + indexer.block;
  }
  /// Words of a token's row of KeySelection that go from layer to layer in a pass by layers.
  int64_t carried_words(int64_t longest_sample) const;
  /// Floats of one token that go from layer to layer in a pass by layers: the residual streams, K
  /// and V that later layers read, and carried_words.
  int64_t carried_width(int64_t longest_sample) const;
  int64_t last_attention_layer() const;
  /// Throws Error for a sequence of more than most_tokens.
  void check_length(int64_t tokens) const;
  /// The last layer that computes K and V.
  int64_t last_cached_layer() const { return cached_layers().back(); }

  const LayerConfig& layer(int64_t layer) const { return layers[static_cast<size_t>(layer)]; }
  const AttentionSizes& attention(int64_t layer) const {
    return layers[static_cast<size_t>(layer)].attention;
  }
  const LayerCache& cache(int64_t layer) const { return layers[static_cast<size_t>(layer)].cache; }
  /// Largest size(layers[i]); 0 without layers.
  template <class Size>
  int64_t largest(const Size& size) const {
    int64_t most = 0;
    for (const LayerConfig& layer : layers) most = std::max(most, std::invoke(size, layer));
    return most;
  }
  /// layer: null for rows of the model, which have no dimension that layers differ in.
  int64_t size_of(Dim dim, const LayerConfig* layer = nullptr) const;
  /// Whether all conditions hold; layer: null for rows of the model.
  bool holds(const std::vector<Condition>& conditions, const LayerConfig* layer) const;
  std::string layer_prefix(int64_t layer) const;      ///< "model.layers.3."
  std::string attention_module(int64_t layer) const;  ///< "model.layers.3.self_attn"

  bool operator==(const ModelConfig&) const = default;
};

/// Reads a config.json, or the text_config of a multimodal one. Throws Error naming key, found and
/// expected value for a key that is missing, mistyped, out of range or not supported. family: for a
/// model_type that is not known; it is refused for one of another family, and every key of such a
/// config.json must be read or neutral.
ModelConfig parse_model_config(const Json& json, const FamilyChoice& family = {});

}  // namespace kvcal
