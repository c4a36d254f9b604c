#pragma once

#include <cstddef>

#include "core/error.h"

namespace kvcal::tokenizers {

/// Normalizers, pre-tokenizers, post-processors or decoders of one tokenizer.
inline constexpr size_t kMostSteps = 64;

/// Throws Error where the steps of a tokenizer.json make too much of a text: each may double it,
/// and a row of them would fill any memory. NFKC makes the most of one character of all that are
/// published, 11 times as many bytes.
inline void check_growth(size_t before, size_t after) {
  constexpr size_t kMostTimes = 32, kMostOfShort = 65536;
  if (after > kMostTimes * before + kMostOfShort)
    fail("the tokenizer makes more than ", kMostTimes * before + kMostOfShort, " bytes or ids of ",
         before, ", the limit");
}

}  // namespace kvcal::tokenizers
