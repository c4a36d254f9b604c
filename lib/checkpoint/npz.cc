#include "checkpoint/npz.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <zlib.h>

#include "core/number.h"
#include "core/text.h"

namespace kvcal {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kVersionBytes = 2;
constexpr uint32_t kMaxHeaderBytes = 10'000;
constexpr size_t kMaxDimensions = 64;  // numpy `NPY_MAXDIMS`

using Bytes = std::span<const std::byte>;

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

/// The little-endian number at offset of a record whose size is known to hold it.
template <class T>
T number_at(Bytes record, size_t offset) {
  KVCAL_CHECK(offset + sizeof(T) <= record.size());
  T value = 0;
  std::memcpy(&value, record.data() + offset, sizeof(T));
  return value;
}

std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Takes the header's text from the front of a file.
std::string_view take_header(Bytes& bytes) {
  const std::string_view text = text_of(bytes);
  if (!text.starts_with(kMagic)) fail("does not begin as a .npy array does");
  if (text.size() < kMagic.size() + kVersionBytes) fail("the array is cut short in its version");
  const int major = static_cast<uint8_t>(text[kMagic.size()]);
  const int minor = static_cast<uint8_t>(text[kMagic.size() + 1]);
  if (major < 1 || major > 3 || minor != 0)
    fail("is of .npy version ", major, ".", minor, ", expected 1.0, 2.0 or 3.0");
  bytes = bytes.subspan(kMagic.size() + kVersionBytes);
  const size_t width = major == 1 ? sizeof(uint16_t) : sizeof(uint32_t);
  if (bytes.size() < width) fail("the array is cut short in its header's length");
  const uint32_t length =
      major == 1 ? number_at<uint16_t>(bytes, 0) : number_at<uint32_t>(bytes, 0);
  bytes = bytes.subspan(width);
  if (length > kMaxHeaderBytes)
    fail("header of ", length, " bytes, the limit is ", kMaxHeaderBytes);
  if (length > bytes.size())
    fail("header of ", length, " bytes does not fit the ", bytes.size(), " bytes that are left");
  const std::string_view header = text_of(bytes.first(length));
  bytes = bytes.subspan(length);
  return header;
}

}  // namespace

TensorView parse_npy(std::string_view name, Bytes bytes) {
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

namespace {

constexpr uint32_t kLocalHeader = 0x04034b50, kDirectoryHeader = 0x02014b50;
constexpr uint32_t kEndRecord = 0x06054b50, kEndRecord64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr uint64_t kLocalHeaderBytes = 30, kDirectoryHeaderBytes = 46;
constexpr uint64_t kEndRecordBytes = 22, kEndRecord64Bytes = 56, kLocator64Bytes = 20;
constexpr uint64_t kMaxCommentBytes = 0xffff, kMaxDirectoryBytes = uint64_t{64} << 20;
constexpr uint32_t kIn64 = 0xffffffff;  // the number is in the zip64 field
constexpr uint16_t kField64 = 1, kEncrypted = 1, kStored = 0;

/// size bytes at offset. Throws Error where the file ends earlier.
Bytes part_of(Bytes bytes, uint64_t offset, uint64_t size, std::string_view what) {
  if (offset > bytes.size() || size > bytes.size() - offset)
    fail(what, " at byte ", offset, " needs ", size, " bytes, there are ", bytes.size(),
         " in all; the file may be cut short");
  return bytes.subspan(offset, size);
}

/// Location of the directory, and its expected end.
struct Directory {
  uint64_t offset = 0, size = 0, count = 0, end = 0;
};

/// Offset of the end record, which only a comment may follow.
uint64_t find_end_record(Bytes file) {
  if (file.size() >= kEndRecordBytes) {
    const uint64_t last = file.size() - kEndRecordBytes;
    for (uint64_t comment = 0; comment <= std::min(last, kMaxCommentBytes); ++comment) {
      const Bytes record = file.subspan(last - comment, kEndRecordBytes);
      if (number_at<uint32_t>(record, 0) == kEndRecord &&
          number_at<uint16_t>(record, 20) == comment)
        return last - comment;
    }
  }
  fail(file.size(), " bytes without a zip archive's end record; not an .npz file, or cut short");
}

void check_disks(uint64_t disk, uint64_t directory_disk, uint64_t count_here, uint64_t count) {
  if (disk != 0 || directory_disk != 0 || count_here != count)
    fail("is part of an archive of several files, expected one");
}

/// nullopt where the archive is no zip64 one.
std::optional<Directory> find_directory64(Bytes file, uint64_t end_record) {
  if (end_record < kLocator64Bytes) return std::nullopt;
  const uint64_t locator_offset = end_record - kLocator64Bytes;
  const Bytes locator = file.subspan(locator_offset, kLocator64Bytes);
  if (number_at<uint32_t>(locator, 0) != kLocator64) return std::nullopt;
  const auto offset = number_at<uint64_t>(locator, 8);
  const Bytes record =
      part_of(file.first(locator_offset), offset, kEndRecord64Bytes, "zip64 end record");
  if (number_at<uint32_t>(record, 0) != kEndRecord64)
    fail("no zip64 end record at byte ", offset, ", where its locator says it is");
  check_disks(number_at<uint32_t>(record, 16), number_at<uint32_t>(record, 20),
              number_at<uint64_t>(record, 24), number_at<uint64_t>(record, 32));
  return Directory{.offset = number_at<uint64_t>(record, 48),
                   .size = number_at<uint64_t>(record, 40),
                   .count = number_at<uint64_t>(record, 32),
                   .end = offset};
}

Directory find_directory(Bytes file) {
  const uint64_t end = find_end_record(file);
  Directory directory;
  if (const auto in64 = find_directory64(file, end)) {
    directory = *in64;
  } else {
    const Bytes record = file.subspan(end, kEndRecordBytes);
    check_disks(number_at<uint16_t>(record, 4), number_at<uint16_t>(record, 6),
                number_at<uint16_t>(record, 8), number_at<uint16_t>(record, 10));
    directory = {.offset = number_at<uint32_t>(record, 16),
                 .size = number_at<uint32_t>(record, 12),
                 .count = number_at<uint16_t>(record, 10),
                 .end = end};
  }
  if (directory.size > kMaxDirectoryBytes)
    fail("directory of ", directory.size, " bytes, the limit is ", kMaxDirectoryBytes);
  if (checked_add(directory.offset, directory.size) != directory.end)
    fail("directory of ", directory.size, " bytes at byte ", directory.offset,
         " does not end at byte ", directory.end, ", where the end record begins");
  return directory;
}

/// The extra field with this number among those of an entry; empty where there is none.
Bytes extra_field(Bytes extra, uint16_t wanted) {
  constexpr size_t kHeadBytes = 4;
  while (extra.size() >= kHeadBytes) {
    const auto id = number_at<uint16_t>(extra, 0);
    const Bytes field = part_of(extra, kHeadBytes, number_at<uint16_t>(extra, 2), "extra field");
    if (id == wanted) return field;
    extra = extra.subspan(kHeadBytes + field.size());
  }
  return {};
}

/// Replaces the placeholder numbers by those of the entry's zip64 field, in its order.
void read_field64(NpzEntry& entry, Bytes extra) {
  Bytes field = extra_field(extra, kField64);
  for (uint64_t* number : {&entry.size, &entry.stored_size, &entry.header_offset}) {
    if (*number != kIn64) continue;
    if (field.size() < sizeof(uint64_t)) fail("its zip64 field is missing or too short");
    *number = number_at<uint64_t>(field, 0);
    field = field.subspan(sizeof(uint64_t));
  }
}

/// Takes the next entry from the front of the directory.
NpzEntry take_entry(Bytes& directory) {
  const Bytes record = part_of(directory, 0, kDirectoryHeaderBytes, "directory's entry");
  if (number_at<uint32_t>(record, 0) != kDirectoryHeader) fail("has no entry's signature");
  const uint64_t name_size = number_at<uint16_t>(record, 28);
  const uint64_t extra_size = number_at<uint16_t>(record, 30);
  const uint64_t comment_size = number_at<uint16_t>(record, 32);
  const Bytes rest = part_of(directory, kDirectoryHeaderBytes,
                             name_size + extra_size + comment_size, "directory's entry");
  NpzEntry entry{.name = std::string(text_of(rest.first(name_size))),
                 .header_offset = number_at<uint32_t>(record, 42),
                 .stored_size = number_at<uint32_t>(record, 20),
                 .size = number_at<uint32_t>(record, 24),
                 .crc = number_at<uint32_t>(record, 16),
                 .flags = number_at<uint16_t>(record, 8),
                 .method = number_at<uint16_t>(record, 10)};
  in_context(shown_name(entry.name),
             [&] { read_field64(entry, rest.subspan(name_size, extra_size)); });
  directory = directory.subspan(kDirectoryHeaderBytes + rest.size());
  return entry;
}

constexpr std::string_view kArrayEnd = ".npy";

/// Bytes of an uncompressed entry. arrays: the file up to its directory.
Bytes stored_bytes(Bytes arrays, const NpzEntry& entry) {
  if (entry.flags & kEncrypted) fail("is encrypted");
  if (entry.method != kStored)
    fail("is compressed (zip method ", entry.method,
         "), expected stored arrays; save with numpy.savez instead of numpy.savez_compressed");
  if (entry.stored_size != entry.size)
    fail("takes ", entry.stored_size, " bytes and holds ", entry.size, ", expected the same");
  const Bytes record = part_of(arrays, entry.header_offset, kLocalHeaderBytes, "header");
  if (number_at<uint32_t>(record, 0) != kLocalHeader)
    fail("no entry's header at byte ", entry.header_offset, ", where the directory says it is");
  const uint64_t name_size = number_at<uint16_t>(record, 26);
  const uint64_t name_offset = entry.header_offset + kLocalHeaderBytes;
  const auto name = text_of(part_of(arrays, name_offset, name_size, "name"));
  if (name != entry.name + std::string(kArrayEnd))
    fail("has the name ", shown_name(name), " in its own header");
  return part_of(arrays, name_offset + name_size + number_at<uint16_t>(record, 28), entry.size,
                 "data");
}

}  // namespace

NpzFile::NpzFile(const fs::path& path) : file_(path) {
  in_context(path.string(), [&] {
    const Directory directory = find_directory(file_.bytes());
    arrays_end_ = directory.offset;
    Bytes rest = file_.bytes().subspan(directory.offset, directory.size);
    uint64_t count = 0;
    for (; !rest.empty(); ++count) {
      NpzEntry entry = in_context("entry " + std::to_string(count) + " of the directory",
                                  [&] { return take_entry(rest); });
      if (!entry.name.ends_with(kArrayEnd)) continue;
      entry.name.resize(entry.name.size() - kArrayEnd.size());
      entries_.push_back(std::move(entry));
    }
    if (count != directory.count)
      fail("directory has ", counted(count, "file"), ", the end record says ", directory.count);
  });
}

TensorView NpzFile::array(const NpzEntry& entry) const& {
  return in_context(file_.path().string() + ": array " + shown_name(entry.name), [&] {
    const Bytes bytes = stored_bytes(file_.bytes().first(arrays_end_), entry);
    const uint64_t crc = crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
    if (crc != entry.crc) fail("its bytes have CRC-32 ", crc, ", the directory says ", entry.crc);
    return parse_npy(entry.name, bytes);
  });
}

}  // namespace kvcal
