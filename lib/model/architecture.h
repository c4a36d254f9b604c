#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "core/json.h"

namespace kvcal {

/// Where a family's layers see only the last tokens.
enum class SlidingWindow : uint8_t { kNone, kAllLayers };

/// What a tensor is to the forward pass.
enum class Role : uint8_t {
  kEmbedding,
  kFinalNorm,
  kLmHead,
  kInputNorm,
  kQuery,
  kKey,
  kValue,
  kOutput,
  kPostAttentionNorm,
  kGate,
  kUp,
  kDown,
  kQueryBias,
  kKeyBias,
  kValueBias,
  kOutputBias,
  kGateBias,
  kUpBias,
  kDownBias,
};

/// A dimension by meaning, resolved against ModelConfig.
enum class Dim : uint8_t { kHidden, kQueryWidth, kKvWidth, kIntermediate, kVocab };

/// When a tensor must be there.
enum class Presence : uint8_t { kAlways, kAttentionBias, kMlpBias, kUntied };

/// One tensor of a family's checkpoints. Layer tensors stand below "<layer prefix>N.".
struct TensorRow {
  Role role;
  std::string_view name;
  std::vector<Dim> shape;
  Presence presence = Presence::kAlways;
};

/// A model family as the set of its variations; what is not named is as in Llama.
struct Architecture {
  std::string_view name;
  std::vector<std::string_view> model_types;  ///< config.json "model_type"
  std::string_view attention_class;           ///< what recipes' targets call its attention modules
  SlidingWindow sliding_window = SlidingWindow::kNone;
  bool has_bias_switches = true;  ///< reads attention_bias and mlp_bias
  std::string_view layer_prefix = "model.layers.";
  std::string_view attention_module = "self_attn";
  std::vector<TensorRow> model_tensors;
  std::vector<TensorRow> layer_tensors;
  std::vector<std::string_view>
      ignored_suffixes;  ///< tensors old checkpoints carry and nobody reads
};

/// The tensor tables of Llama, which most families share.
std::vector<TensorRow> llama_model_tensors();
std::vector<TensorRow> llama_layer_tensors();

/// The table of families, in the order they are listed to users.
const std::vector<Architecture>& architectures();

/// The family of a config.json. Throws Error naming model_type and the known ones.
const Architecture& architecture_of(const Json& config);

/// Rotary position embedding. Source: transformers `modeling_rope_utils`.
struct RopeConfig {
  enum class Type : uint8_t { kDefault, kLinear, kDynamic, kYarn, kLlama3 };
  Type type = Type::kDefault;
  double theta = 10000.0;
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  ///< llama3
  double beta_fast = 32.0, beta_slow = 1.0;              ///< yarn
  double mscale = 0.0, mscale_all_dim = 0.0;             ///< yarn; 0: absent
  double attention_factor = 0.0;                         ///< yarn; 0: derived from factor
  bool truncate = true;                                  ///< yarn
  int64_t original_max_position_embeddings = 0;
};

/// config.json, checked and with defaults filled in, in either spelling: rope_theta / rope_scaling
/// / torch_dtype, or transformers 5's rope_parameters / dtype.
struct ModelConfig {
  const Architecture* architecture = nullptr;
  std::string model_type;
  int64_t hidden_size = 0, intermediate_size = 0, vocab_size = 0;
  int64_t num_hidden_layers = 0, num_attention_heads = 0, num_key_value_heads = 0, head_dim = 0;
  int64_t max_position_embeddings = 0;
  float rms_norm_eps = 0.0f;
  Activation activation = Activation::kSilu;
  bool attention_bias = false, mlp_bias = false, tie_word_embeddings = false;
  std::vector<int64_t> sliding_window;  ///< per layer; 0: sees everything
  RopeConfig rope;
  std::string dtype;  ///< "float16", "bfloat16", "float32"; empty where absent

  int64_t query_width() const { return num_attention_heads * head_dim; }
  int64_t kv_width() const { return num_key_value_heads * head_dim; }
  int64_t size_of(Dim dim) const;
  bool has(Presence presence) const;
  /// "model.layers.3.self_attn"
  std::string attention_module(int64_t layer) const;
};

/// Throws Error naming key, found and expected for anything missing, mistyped, out of range or not
/// supported.
ModelConfig parse_model_config(const Json& json);

}  // namespace kvcal
