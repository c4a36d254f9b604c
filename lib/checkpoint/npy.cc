#include "checkpoint/npy.h"

#include <charconv>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "core/shown_name.h"

namespace kvcal {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kVersionBytes = 2;
constexpr uint32_t kMaxHeaderBytes = 10'000;
constexpr size_t kMaxDimensions = 64;  // numpy `NPY_MAXDIMS`

struct Header {
  std::optional<DType> dtype;
  std::optional<bool> is_fortran;
  std::optional<Shape> shape;
};

DType dtype_of(std::string_view descr) {
  if (descr == "<f2") return DType::kF16;
  if (descr == "<f4") return DType::kF32;
  if (descr == "<f8") return DType::kF64;
  fail("dtype is ", shown_name(descr), ", expected '<f2', '<f4' or '<f8'");
}

/// Parses the header: the subset of Python's literals that numpy writes, such as {'descr': '<f4',
/// 'fortran_order': False, 'shape': (2, 3), }
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  Header parse() {
    Header header;
    expect('{');
    while (!take('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr")
        set(header.dtype, key, dtype_of(quoted()));
      else if (key == "fortran_order")
        set(header.is_fortran, key, boolean());
      else if (key == "shape")
        set(header.shape, key, shape());
      else
        fail("header has an unknown key ", shown_name(key));
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    skip_spaces();
    if (at_ != text_.size()) fail_at("its end");
    if (!header.dtype || !header.is_fortran || !header.shape)
      fail("header has not all of the keys 'descr', 'fortran_order' and 'shape'");
    return header;
  }

 private:
  template <class T>
  static void set(std::optional<T>& field, std::string_view key, T value) {
    if (field) fail("header has the key ", shown_name(key), " twice");
    field = std::move(value);
  }

  [[noreturn]] void fail_at(std::string_view wanted) const {
    fail("header, byte ", at_, " of ", text_.size(), ": expected ", wanted);
  }

  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }

  bool take(char wanted) {
    skip_spaces();
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  void expect(char wanted) {
    if (!take(wanted)) fail_at(shown_name({&wanted, 1}));
  }

  std::string_view quoted() {
    const char quote = take('\'') ? '\'' : '"';
    if (quote == '"' && !take('"')) fail_at("a text in quotes");
    const size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) fail_at("a text that ends");
    const std::string_view text = text_.substr(at_, end - at_);
    at_ = end + 1;
    return text;
  }

  bool boolean() {
    skip_spaces();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return value;
    }
    fail_at("True or False");
  }

  Shape shape() {
    Shape shape;
    expect('(');
    while (!take(')')) {
      skip_spaces();
      int64_t size = 0;
      const char *begin = text_.data() + at_, *end = text_.data() + text_.size();
      const auto [rest, error] = std::from_chars(begin, end, size);
      if (error != std::errc() || size < 0) fail_at("a dimension");
      at_ += static_cast<size_t>(rest - begin);
      shape.dims.push_back(size);
      if (shape.rank() > kMaxDimensions)
        fail("shape has over ", kMaxDimensions, " dimensions, which is numpy's limit");
      if (!take(',')) {
        expect(')');
        break;
      }
    }
    return shape;
  }

  std::string_view text_;
  size_t at_ = 0;
};

/// Takes the next bytes of a file as a little-endian number.
template <class T>
uint32_t take_number(std::span<const std::byte>& bytes, std::string_view what) {
  if (bytes.size() < sizeof(T)) fail("the array is cut short in its ", what);
  T value = 0;
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes = bytes.subspan(sizeof(T));
  return value;
}

/// Takes the header's text from the front of a file.
std::string_view take_header(std::span<const std::byte>& bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kMagic)) fail("does not begin as a .npy array does");
  if (text.size() < kMagic.size() + kVersionBytes) fail("the array is cut short in its version");
  const int major = static_cast<uint8_t>(text[kMagic.size()]);
  const int minor = static_cast<uint8_t>(text[kMagic.size() + 1]);
  if (major < 1 || major > 3 || minor != 0)
    fail("is of .npy version ", major, ".", minor, ", expected 1.0, 2.0 or 3.0");
  bytes = bytes.subspan(kMagic.size() + kVersionBytes);
  const uint32_t length = major == 1 ? take_number<uint16_t>(bytes, "header's length")
                                     : take_number<uint32_t>(bytes, "header's length");
  if (length > kMaxHeaderBytes)
    fail("header of ", length, " bytes, the limit is ", kMaxHeaderBytes);
  if (length > bytes.size())
    fail("header of ", length, " bytes does not fit the ", bytes.size(), " bytes that are left");
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()), length);
  bytes = bytes.subspan(length);
  return header;
}

}  // namespace

TensorView parse_npy(std::string_view name, std::span<const std::byte> bytes) {
  Header header = HeaderParser(take_header(bytes)).parse();
  TensorView view{
      .name = name, .dtype = *header.dtype, .shape = *std::move(header.shape), .bytes = bytes};
  const uint64_t wanted = byte_count(view.shape, view.dtype);
  if (bytes.size() != wanted)
    fail("shape ", view.shape, " of ", view.dtype, " needs ", wanted, " bytes, the array has ",
         bytes.size());
  if (*header.is_fortran && view.shape.rank() > 1 && element_count(view.shape) > 1)
    fail("shape ", view.shape, " is in Fortran order, expected C order");
  return view;
}

}  // namespace kvcal
