#include "family/neutral_keys.h"

#include <algorithm>
#include <array>

namespace kvcal {
namespace {

// clang-format off
/// Keys whatever their value. Layers for multi-token prediction follow the model's own.
constexpr auto kNeutral = std::to_array<std::string_view>({
    "_attn_implementation", "_attn_implementation_autoset", "_commit_hash", "_name_or_path",
    "activation_dropout", "architectures", "attention_dropout", "attention_probs_dropout_prob",
    "attention_softmax_in_fp32", "attn_dropout", "attn_dropout_prob", "attn_implementation",
    "attn_pdrop", "auto_map", "aux_loss_alpha", "bad_words_ids", "begin_suppress_tokens",
    "bos_token_id", "cache_implementation", "chunk_size_feed_forward",
    "classifier_dropout", "cls_token_id", "compression_config", "decoder_start_token_id",
    "diversity_penalty",
    "do_sample", "dropout", "dtype", "early_stopping", "embd_dropout", "embd_pdrop",
    "embed_dropout", "embedding_dropout", "enable_moe_fp32_combine",
    "encoder_no_repeat_ngram_size", "eos_token_id", "ep_size", "experts_implementation",
    "exponential_decay_length_penalty", "finetuning_task", "forced_bos_token_id",
    "forced_eos_token_id", "gradient_checkpointing", "hidden_dropout", "hidden_dropout_prob",
    "id2label", "init_std", "initializer_factor", "initializer_range", "input_jitter_noise",
    "is_decoder", "kv_cache_torch_dtype", "label2id", "layerdrop", "length_penalty",
    "load_balance_coeff", "mamba_chunk_size", "mask_token_id", "max_length", "max_new_tokens",
    "min_length", "model_type", "mtp_num_hidden_layers", "mtp_transformer_layers", "n_ctx",
    "name_or_path", "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_labels",
    "num_logits_to_keep", "num_mtp_modules", "num_nextn_predict_layers", "num_return_sequences",
    "output_attentions", "output_hidden_states", "output_router_logits", "output_scores",
    "pad_token_id", "prefix", "pretraining_tp", "problem_type", "quantization_config",
    "remove_invalid_values", "repetition_penalty", "rescale_prenorm_residual", "resid_dropout",
    "resid_pdrop", "residual_dropout", "residual_in_fp32", "return_dict",
    "return_dict_in_generate", "router_aux_loss_coef", "router_jitter_noise",
    "router_z_loss_coef", "scale_attention_softmax_in_fp32", "sep_token_id", "seq_aux",
    "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type",
    "summary_use_proj", "suppress_tokens", "task_specific_params", "temperature",
    "tf_legacy_loss", "tie_encoder_decoder", "time_step_floor", "time_step_max", "time_step_min",
    "tokenizer_class", "top_k", "top_p", "torch_dtype", "torchscript", "transformers_version",
    "typical_p", "unk_token_id", "use_bfloat16", "use_cache", "use_mamba_kernels"
});
// clang-format on

/// Keys that change nothing only while they are off. Biases that are missing then, or there all the
/// same, are found by the check of tensors.
constexpr auto kNeutralWhileOff = std::to_array<std::string_view>(
    {"add_cross_attention", "attention_bias", "cross_attention_hidden_size", "is_encoder_decoder",
     "lm_head_bias", "mlp_bias", "pruned_heads"});

}  // namespace

bool is_neutral_key(std::string_view key, const Json& value) {
  const bool is_off = value.is_null() || value == false || (value.is_structured() && value.empty());
  return value.is_null() || std::ranges::find(kNeutral, key) != kNeutral.end() ||
         (is_off && std::ranges::find(kNeutralWhileOff, key) != kNeutralWhileOff.end());
}

}  // namespace kvcal
