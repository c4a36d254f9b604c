#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/chat_template.h"

// The words of lm-evaluation-harness's task `gsm8k`, version 3: prompts, what counts as an answer,
// and when it is right. Source: lm_eval 0.4.13, tasks/gsm8k/gsm8k.yaml, api/task.py
// `fewshot_context`, api/samplers.py, filters/extraction.py, api/metrics.py.
namespace kvcal {

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

}  // namespace kvcal
