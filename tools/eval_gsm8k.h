#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

namespace kvcal {

struct EvalOptions;

/// What --task gsm8k is asked beside what all tasks are.
struct GsmCommandOptions {
  std::string fewshot_dataset, log_samples;
  int64_t num_fewshot = 5, max_gen_toks = 256;
  std::optional<int64_t> limit;
  std::optional<bool> add_bos_token;
  bool apply_chat_template = false;
  std::optional<bool> fewshot_as_multiturn;
  int64_t batch_size = 0;
  std::string cache_memory, min_exact_match, min_exact_match_flexible;
};
inline constexpr const char* kGsmOptionsTitle = "Options of --task gsm8k";
void add_gsm8k_options(CLI::App& command, GsmCommandOptions& options);

/// --task gsm8k: of each variant.
void run_gsm8k(const EvalOptions& options);

}  // namespace kvcal
