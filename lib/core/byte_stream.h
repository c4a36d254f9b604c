#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/error.h"

namespace kvcal {

static_assert(std::endian::native == std::endian::little, "byte streams are little-endian");

/// Writes numbers and texts one after the other, little-endian.
class ByteWriter {
 public:
  template <class T>
  requires std::is_arithmetic_v<T>
  void put(T value) { put_bytes(std::as_bytes(std::span(&value, 1))); }
  /// The length, then the text.
  void put_text(std::string_view text) {
    put(static_cast<uint64_t>(text.size()));
    put_bytes(std::as_bytes(std::span(text)));
  }
  void put_bytes(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// Reads the output of a ByteWriter from untrusted bytes. Throws Error where they end early.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes), size_(bytes.size()) {}

  template <class T>
  requires std::is_arithmetic_v<T> T get() {
    T value;
    const auto from = get_bytes(sizeof(T));
    std::memcpy(&value, from.data(), sizeof(T));
    return value;
  }
  /// Borrows from the reader's bytes.
  std::span<const std::byte> get_bytes(uint64_t count) {
    if (count > bytes_.size())
      fail("ends after ", size_, " bytes, expected ", count, " bytes at offset ", offset());
    const auto result = bytes_.first(static_cast<size_t>(count));
    bytes_ = bytes_.subspan(static_cast<size_t>(count));
    return result;
  }
  /// Reads a count of items of at least bytes_each bytes; throws Error where the bytes cannot hold
  /// them.
  uint64_t get_count(uint64_t bytes_each) {
    const auto count = get<uint64_t>();
    if (count > bytes_.size() / bytes_each)
      fail("count ", count, " at offset ", offset() - sizeof(count), ", but ", bytes_.size(),
           " bytes follow");
    return count;
  }
  size_t offset() const { return size_ - bytes_.size(); }
  void expect_end() const {
    if (!bytes_.empty()) fail("has ", bytes_.size(), " bytes behind its end at offset ", offset());
  }

 private:
  std::span<const std::byte> bytes_;
  size_t size_;
};

}  // namespace kvcal
