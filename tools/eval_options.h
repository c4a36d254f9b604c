#pragma once

#include <optional>
#include <string>
#include <vector>

#include "eval/gates.h"
#include "eval/sequences.h"
#include "eval_gsm8k.h"
#include "loaded_model.h"
#include "plots.h"

namespace kvcal {

/// What all tasks of `eval` are asked.
struct EvalOptions {
  std::string model, task, dataset, reference;
  std::string reference_cache = "auto";
  std::vector<std::string> variants;  ///< as --variant has them
  CacheOptions cache;
  DeviceOptions device;
  bool json = false;
  bool overwrite = false;  ///< files that are written beside the result
  ReportOptions report;
  /// Sequences whose continuation stands in the report, with each cache.
  int64_t num_texts = 2;
  SequenceOptions sequences;
  bool per_layer = false;
  std::optional<double> max_kl;
  std::string max_perplexity_increase, min_top1;
  GsmCommandOptions gsm8k;
  // Of sensitivity:
  std::optional<double> kl_budget;
  std::string output_recipe;
};

}  // namespace kvcal
