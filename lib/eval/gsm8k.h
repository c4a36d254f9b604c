// The words of lm-evaluation-harness's task `gsm8k`, version 3: prompts, what counts as an answer,
// and when it is right. Source: lm_eval 0.4.13, tasks/gsm8k/gsm8k.yaml, api/task.py
// `fewshot_context`, api/samplers.py, filters/extraction.py, api/metrics.py.

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/diagnostics.h"
#include "core/json.h"
#include "datasets/chat_template.h"
#include "datasets/record_columns.h"
#include "eval/generate.h"
#include "forward/decoder.h"
#include "tokenizers/tokenizer.h"

namespace kvcal {

/// Python's random.Random: MT19937, seeded by an integer, and what sample makes of it. Draws are
/// those of CPython 3.9 and later.
class PythonRandom {
 public:
  explicit PythonRandom(uint64_t seed);

  /// random.sample(range(population), count). Throws Error where count is negative or more than
  /// population, or population 2^32 or more.
  std::vector<int64_t> sample(int64_t population, int64_t count);

 private:
  /// Evenly from [0, bound), 0 < bound < 2^32.
  int64_t below(int64_t bound);

  std::mt19937 random_;
};

struct GsmRecord {
  std::string question;
  std::string answer;  ///< worked, with "#### " and the number at its end
};

/// The first `limit` {"question", "answer"} records of a JSON or JSON lines file, or of a split of
/// what a descriptor names. nullopt: all. Throws Error with file and line.
std::vector<GsmRecord> read_gsm_records(const std::filesystem::path& dataset,
                                        const std::string& split, std::optional<int64_t> limit);

struct GsmPromptOptions {
  int64_t num_fewshot = 5;
  const ChatFormat* chat = nullptr;  ///< null: plain text
  bool fewshot_as_multiturn = true;  ///< with chat: a turn an example, else all in one message
};

/// One prompt a question. Each has its own examples, drawn from `examples` as the harness does with
/// its default seed. Throws Error where there are fewer than num_fewshot.
std::vector<std::string> gsm_prompts(std::span<const GsmRecord> questions,
                                     std::span<const GsmRecord> examples,
                                     const GsmPromptOptions& options);

/// The answer by the filter `strict-match`: the first number after "#### ".
std::string strict_answer(std::string_view text);
/// The answer by `flexible-extract`: the last number. Both give "[invalid]" where there is none.
std::string flexible_answer(std::string_view text);

/// exact_match with the task's rules, of an extracted answer and a record's whole one.
bool is_gsm_match(std::string_view extracted, std::string_view answer);

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
