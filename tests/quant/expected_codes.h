#pragma once

#include "core/file.h"
#include "quant/fp8.h"
#include "support/folders.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <iomanip>
#include <sstream>
#include <string>
#include <vector>

/// What ml_dtypes and torch say; made by reference/quant_codes.py, which describes the files.
namespace kvcal::test {

inline constexpr std::array kFormats{fp8::Format::kE4m3Fn, fp8::Format::kE4m3Fnuz,
                                     fp8::Format::kE5m2};

template <class T>
std::vector<T> read_expected(const std::string& name) {
  const std::string bytes = read_text(tests_folder().string() + "/fixtures/quant/" + name);
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

/// Collects what disagrees, the first few in words: one CHECK for a hundred thousand comparisons.
class Mismatches {
 public:
  void compare(uint32_t input, uint32_t found, uint32_t expected) {
    if (found == expected) return;
    if (++count_ > 5) return;
    text_ << std::hex << "input 0x" << input << ": 0x" << found << ", expected 0x" << expected
          << '\n';
  }
  /// Empty when everything agreed.
  std::string text() const {
    return count_ == 0 ? "" : text_.str() + std::to_string(count_) + " mismatches";
  }

 private:
  std::ostringstream text_;
  uint64_t count_ = 0;
};

}  // namespace kvcal::test
