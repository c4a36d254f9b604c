#pragma once

#include <cstddef>
#include <string_view>

#include "core/json.h"

namespace kvcal {

/// Limits of config.json and the other small files beside a model's weights.
inline constexpr JsonLimits kSmallFileLimits{.max_bytes = size_t{16} << 20, .max_values = 500'000};

/// Limits of a tokenizer's files. The largest published have 35 MB and two million values.
inline constexpr JsonLimits kTokenizerLimits{.max_bytes = size_t{128} << 20,
                                             .max_values = 4'000'000};

/// No string, number or run of white space of files that are no data sets may be longer, in bytes:
/// the parser holds one of them at a time, twice.
inline constexpr size_t kMaxTokenBytes = size_t{16} << 20;

/// Refuses a JSON text before anything is built of it: a value takes many times the two bytes that
/// it may have in the file. Throws Error for more than max_values values, keys not counted, and for
/// a longer token than max_token_bytes. What is no valid JSON is the parser's matter.
void check_json_sizes(std::string_view text, size_t max_values, size_t max_token_bytes);

/// parse_json of a file beside a model: check_json_sizes with kMaxTokenBytes goes before it.
Json parse_model_json(std::string_view text, const JsonLimits& limits = kSmallFileLimits);

}  // namespace kvcal
