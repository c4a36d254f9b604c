#pragma once

#include <cstddef>
#include <cstdint>

/// Unicode properties as the `tokenizers` library has them (each of its parts carries its own
/// Unicode version; ids must not depend on which version a system library happens to have). Read
/// off that library by reference/tokenizers_unicode.py. Use through unicode/unicode.h.
namespace kvcal::unicode_tables {

/// Runs from U+0000 on: length * 32 + index into the order of unicode::Category.
extern const uint32_t kCategoryRuns[];
extern const size_t kCategoryRunsCount;

/// Code points where a property differs from the general categories it is nearest to, as pairs:
/// distance from the end of the previous range, length.
extern const uint32_t kWordDiffers[], kPunctuationDiffers[], kNumericDiffers[],
    kCombiningMarkDiffers[], kNonspacingMarkDiffers[], kControlDiffers[];
extern const size_t kWordDiffersCount, kPunctuationDiffersCount, kNumericDiffersCount,
    kCombiningMarkDiffersCount, kNonspacingMarkDiffersCount, kControlDiffersCount;

/// Code points that normalization leaves alone: its tables are of Unicode 9. Pairs as above.
extern const uint32_t kFrozen[];
extern const size_t kFrozenCount;

/// Code points assigned after Unicode 14, which PCRE2's tables may lack. Pairs as above.
extern const uint32_t kAfterUnicode14[];
extern const size_t kAfterUnicode14Count;

/// Rows of four: first, last, stride, difference to the lower case letter.
extern const int32_t kLowerRuns[];
extern const size_t kLowerRunsCount;

}  // namespace kvcal::unicode_tables
