#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

#include "core/json.h"

namespace kvcal {

/// Limits of config.json and the other small files beside a model's weights.
inline constexpr JsonLimits kSmallFileLimits{.max_bytes = size_t{16} << 20, .max_values = 500'000};

/// Limits of a tokenizer's files. The largest published one has 35 MB and two million values.
inline constexpr JsonLimits kTokenizerLimits{.max_bytes = size_t{128} << 20,
                                             .max_values = 4'000'000};

/// Longest string, number or run of white space, in bytes, in files other than data sets. The
/// parser holds two copies of one at a time.
inline constexpr size_t kMaxTokenBytes = size_t{16} << 20;

/// Checks a JSON text before any value is built, since a value takes many times its two bytes in
/// the file. Throws Error for more than max_values values, without keys, and for a token longer
/// than max_token_bytes. Does not check whether the JSON is valid.
void check_json_sizes(std::string_view text, size_t max_values, size_t max_token_bytes);

/// parse_json of a file beside a model, after check_json_sizes with kMaxTokenBytes.
Json parse_model_json(std::string_view text, const JsonLimits& limits = kSmallFileLimits);

/// The object in a file beside a model. Throws Error naming the file.
Json read_json_object(const std::filesystem::path& path,
                      const JsonLimits& limits = kSmallFileLimits);

/// The object of a config.json, which may hold Python's NaN and Infinity. Throws Error naming the
/// file.
Json read_model_config(const std::filesystem::path& path);

}  // namespace kvcal
