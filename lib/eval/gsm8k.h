#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/diagnostics.h"
#include "core/json.h"
#include "datasets/record_columns.h"
#include "eval/batch_generate.h"
#include "forward/decoder.h"
#include "tokenizers/tokenizer.h"

namespace kvcal {

/// GSM8K as lm-evaluation-harness's task `gsm8k`, version 3, has it with the backend `hf`: word
/// problems behind worked examples, answered greedily. Names are the harness's.
struct GsmOptions {
  std::filesystem::path dataset;  ///< questions: JSON (lines), or a descriptor with a split `test`
  /// The worked examples; empty: split `train` of the descriptor in dataset.
  std::filesystem::path fewshot_dataset = {};
  /// Says what ends a text, and holds the tokenizer's settings and the chat template.
  std::filesystem::path model_folder;
  int64_t num_fewshot = 5;
  std::optional<int64_t> limit = {};  ///< the first questions alone
  int64_t max_gen_toks = 256;
  /// Absent: what the tokenizer adds on its own.
  std::optional<bool> add_bos_token = {};
  bool apply_chat_template = false;
  ChatOptions chat = {};             ///< with apply_chat_template
  bool fewshot_as_multiturn = true;  ///< with apply_chat_template
  /// Questions that are answered at a time; 0: kTextsTogether, or fewer where cache_bytes does not
  /// hold them. Changes no answer.
  int64_t batch_size = 0;
  std::optional<uint64_t> cache_bytes = {};  ///< for the KV cache of all of them; absent: unlimited
};

struct GsmAnswer {
  int64_t doc_id = 0;  ///< index of the question
  std::string prompt;
  std::string text;              ///< what the model wrote, up to the first stop string
  std::string strict, flexible;  ///< what the two filters took from it, or "[invalid]"
  std::string target;            ///< the record's worked answer
  bool is_strict_match = false, is_flexible_match = false;
};

/// Mean of matches, and the sample standard deviation over the square root of their number.
struct GsmScore {
  double exact_match = 0.0;
  std::optional<double> stderr_of_mean;  ///< none of a single question
};

/// Throws Error where there are none.
GsmScore gsm_score(const std::vector<bool>& matches);

struct GsmResult {
  std::vector<GsmAnswer> answers;  ///< by doc_id
  GsmScore strict = {}, flexible = {};
  int64_t num_fewshot = 0, batch_size = 0;
  BatchUse use = {};
};

/// Throws Error for data that cannot be read, fewer examples than are wanted, a model whose
/// positions do not hold max_gen_toks, or as Decoder::step.
GsmResult run_gsm8k(Decoder& decoder, const Tokenizer& tokenizer, const CacheType& cache_type,
                    const std::vector<LayerKvScales>& scales, const GsmOptions& options,
                    Diagnostics& diagnostics);

/// exact_match_strict, exact_match_strict_stderr, the same of flexible, num_questions, num_fewshot,
/// tokens_generated, tokens_per_second.
Json to_json(const GsmResult& result);
/// doc_id, text, strict, flexible, target, exact_match_strict, exact_match_flexible.
Json to_json(const GsmAnswer& answer);

}  // namespace kvcal
