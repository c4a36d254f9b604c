#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/token.h"
#include "tokenizers/tokenizer.h"

namespace kvcal {

/// Strings that end a text, as lm-evaluation-harness's hf backend looks for them.
/// Source: lm_eval 0.4.13, models/utils_hf.py `MultiTokenEOSCriteria`, models/utils.py
/// `postprocess_generated_text`.
class StopStrings {
 public:
  /// tokenizer must outlive this; empty strings are left out.
  StopStrings(const Tokenizer& tokenizer, const std::vector<std::string>& strings);

  /// Whether one of them stands in the last tokens of ids: as many as it has itself, and two more.
  /// Special tokens count as their text.
  bool end(std::span<const TokenId> ids) const;
  /// text up to the first of them.
  std::string cut(std::string_view text) const;

 private:
  struct Stop {
    std::string text;
    size_t tokens = 0;  ///< that are looked at
  };
  const Tokenizer& tokenizer_;
  std::vector<Stop> stops_;
};

}  // namespace kvcal
