#include "datasets/data_files.h"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include "core/error.h"
#include "core/folder.h"
#include "core/hash.h"

#include "core/interrupt.h"
#include "core/pages.h"
#include "core/posix_file.h"
#include "core/text.h"
#include "datasets/named_dataset.h"

namespace kvcal {
namespace {

/// The first bytes of a file that is no UTF-8 text, and the advice for it.
struct Signature {
  std::string_view bytes, message;
};

using namespace std::string_view_literals;
constexpr std::string_view kGzip = "\x1f\x8b"sv, kZstd = "\x28\xb5\x2f\xfd"sv;
constexpr std::array kUnreadable{
    Signature{"PAR1"sv, "is a Parquet file, expected text; name it .parquet"sv},
    Signature{"ARROW1"sv, "is an Arrow file, expected text; name it .arrow"sv},
    Signature{"\xff\xff\xff\xff"sv, "is an Arrow stream, expected text; name it .arrow"sv},
    Signature{kGzip, "is compressed twice; unpack it once"sv},
    Signature{kZstd, "is compressed twice; unpack it once"sv},
    Signature{"\xfd"
              "7zXZ\0"sv,
              "is compressed with xz; unpack it first, or use gzip or zstd"sv},
    Signature{"BZh"sv, "is compressed with bzip2; unpack it first, or use gzip or zstd"sv},
    Signature{"PK\x03\x04"sv, "is a ZIP archive; unpack it first"sv},
    Signature{"\xff\xfe\0\0"sv, "is UTF-32 text; convert it to UTF-8"sv},
    Signature{"\0\0\xfe\xff"sv, "is UTF-32 text; convert it to UTF-8"sv},
    Signature{"\xff\xfe"sv, "is UTF-16 text; convert it to UTF-8"sv},
    Signature{"\xfe\xff"sv, "is UTF-16 text; convert it to UTF-8"sv},
};

std::string_view view_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A kind of markup: extensions of its files, and their first characters in lower case.
struct Markup {
  std::string_view name;
  std::vector<std::string_view> extensions, beginnings;
};

/// Throws Error for HTML and XML, whose tags are no text that people write to a model.
void check_no_markup(std::string_view text, const fs::path& path) {
  static const std::array kMarkup{
      Markup{"HTML", {".html", ".htm", ".xhtml"}, {"<!doctype", "<html"}},
      Markup{"XML", {".xml", ".svg", ".rss", ".atom"}, {"<?xml"}}};
  const std::string extension = data_extension(path, /*is_packed=*/true);
  constexpr size_t kHead = 16;
  const size_t start = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  const std::string head = ascii_lower(std::string(text.substr(start, kHead)));
  for (const Markup& markup : kMarkup)
    if (std::ranges::find(markup.extensions, extension) != markup.extensions.end() ||
        std::ranges::any_of(markup.beginnings,
                            [&](std::string_view first) { return head.starts_with(first); }))
      fail(path.string(), ": is ", markup.name,
           ", expected text or records; take the text out of it first");
}

/// text without a byte order mark. Throws Error for what is none.
std::string_view checked(std::string_view text, const fs::path& path) {
  for (const Signature& signature : kUnreadable)
    if (text.starts_with(signature.bytes)) fail(path.string(), ": ", signature.message);
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  check_no_markup(text, path);
  return text;
}

}  // namespace

/// A scratch file without a name that grows while it is written and is then mapped.
class TextFile::Unpacked {
 public:
  explicit Unpacked(const fs::path& folder) : folder_(folder) {
    descriptor_ = unnamed_file(folder);
    if (descriptor_ < 0) fail_errno(folder, "cannot create a scratch file to unpack into");
  }
  ~Unpacked() {
    if (data_) ::munmap(data_, size_);
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Unpacked(const Unpacked&) = delete;
  Unpacked& operator=(const Unpacked&) = delete;

  void write(std::string_view piece) {
    in_context("the unpacked text",
               [&] { write_all(descriptor_, std::as_bytes(std::span(piece)), folder_); });
    size_ += piece.size();
  }
  std::string_view map() {
    if (size_ == 0) return {};
    void* data = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor_, 0);
    if (data == MAP_FAILED) fail_errno(folder_, "cannot map the unpacked text");
    data_ = data;
    return {static_cast<const char*>(data), size_};
  }
  uint64_t size() const { return size_; }

 private:
  fs::path folder_;
  int descriptor_ = -1;
  void* data_ = nullptr;
  size_t size_ = 0;
};

Packing packing_of(std::string_view first_bytes) {
  if (first_bytes.starts_with(kGzip)) return Packing::kGzip;
  // A frame to be skipped, with which parallel packers begin.
  const bool is_skippable = first_bytes.size() >= 4 && (first_bytes[0] & 0xf0) == 0x50 &&
                            first_bytes.substr(1, 3) == "\x2a\x4d\x18";
  return is_skippable || first_bytes.starts_with(kZstd) ? Packing::kZstd : Packing::kNone;
}

namespace {

/// What the name says.
Packing packing_by_name(const fs::path& path) {
  const std::string extension = ascii_lower(path.extension().string());
  if (extension == ".gz" || extension == ".gzip") return Packing::kGzip;
  return extension == ".zst" || extension == ".zstd" ? Packing::kZstd : Packing::kNone;
}

}  // namespace

std::string data_extension(const fs::path& path, bool is_packed) {
  const bool names_packing = packing_by_name(path) != Packing::kNone;
  return ascii_lower((is_packed && names_packing ? path.stem() : path).extension().string());
}

void check_packing(const fs::path& path, Packing found) {
  const Packing named = packing_by_name(path);
  if (named == Packing::kNone || named == found) return;
  const auto text_of = [](Packing packing) {
    return packing == Packing::kGzip   ? "gzip data"
           : packing == Packing::kZstd ? "zstd data"
                                       : "not packed";
  };
  fail(path.string(), ": is ", text_of(found), ", its name says ", text_of(named));
}

TextFile::TextFile(const fs::path& path) : path_(path) {
  if (const auto named = named_dataset(path)) {
    text_ = named->text;
    return;
  }
  file_.emplace(path);
  const std::string_view bytes = view_of(file_->bytes());
  const Packing packing = packing_of(bytes);
  check_packing(path, packing);
  if (packing == Packing::kNone) {
    text_ = checked(bytes, path);
    return;
  }
  unpacked_ = std::make_unique<Unpacked>(temporary_folder());
  in_context(path.string(), [&] {
    unpack(packing, file_->bytes(), [&](std::string_view piece, uint64_t read) {
      // The limit grows with the bytes read so far, so that a large bomb is known as soon as a
      // small one.
      const uint64_t most = std::max<uint64_t>(kAlwaysUnpackedBytes, kMaxPackingRatio * read);
      if (unpacked_->size() + piece.size() > most)
        fail("its ", bytes.size(), " bytes unpack to more than ", most, ", the limit; at most ",
             kMaxPackingRatio,
             " times a file's size is taken for text, from its begin to any place");
      unpacked_->write(piece);
      return true;
    });
  });
  text_ = checked(unpacked_->map(), path);
  file_->drop(file_->bytes());
}

TextFile::~TextFile() = default;
TextFile::TextFile(TextFile&&) noexcept = default;
TextFile& TextFile::operator=(TextFile&&) noexcept = default;

void TextFile::drop(std::string_view part) const {
  if (file_) release_pages(std::as_bytes(std::span(part)));
}

std::string TextFile::sha256() const {
  return file_ ? sha256_of_file(path_) : sha256_hex(text_);
}

std::string head_of_packed(const MappedFile& file, size_t max_bytes) {
  std::string head;
  in_context(file.path().string(), [&] {
    unpack(packing_of(view_of(file.bytes())), file.bytes(), [&](std::string_view piece, uint64_t) {
      head += piece.substr(0, max_bytes - head.size());
      return head.size() < max_bytes;
    });
  });
  return std::string(checked(head, file.path()));
}

namespace {

constexpr size_t kPieceBytes = size_t{256} << 10;

/// The progress of unpacking, for messages.
struct Progress {
  std::string_view format;
  uint64_t read = 0, written = 0;
  int64_t line = 1;

  void add(std::string_view piece) {
    written += piece.size();
    line += std::count(piece.begin(), piece.end(), '\n');
  }
  [[noreturn]] void fail_cut() const {
    fail("the ", format, " data is cut short: it ends after ", read, " bytes, in line ", line,
         " of what it holds (", written, " bytes unpacked)");
  }
  [[noreturn]] void fail_damaged(std::string_view why) const {
    fail("the ", format, " data is damaged near byte ", read, ", in line ", line,
         " of what it holds: ", why);
  }
};

using Write = std::function<bool(std::string_view piece, uint64_t read)>;

bool is_padding(std::span<const std::byte> rest) {
  return std::all_of(rest.begin(), rest.end(), [](std::byte b) { return b == std::byte{0}; });
}

void unpack_gzip(std::span<const std::byte> packed, const Write& write) {
  z_stream stream{};
  // 16: a gzip header and trailer, with its checksum, and nothing else.
  if (::inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) throw std::bad_alloc();
  const std::unique_ptr<z_stream, int (*)(z_stream*)> ended(&stream, ::inflateEnd);
  Progress progress{.format = "gzip"};
  std::vector<char> buffer(kPieceBytes);
  while (true) {
    throw_if_interrupted();
    const auto rest = packed.subspan(progress.read);
    const size_t offered = std::min<size_t>(rest.size(), kPieceBytes);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(rest.data()));
    stream.avail_in = static_cast<uInt>(offered);
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = static_cast<uInt>(buffer.size());
    const int code = ::inflate(&stream, Z_NO_FLUSH);
    progress.read += offered - stream.avail_in;
    const std::string_view piece(buffer.data(), buffer.size() - stream.avail_out);
    progress.add(piece);
    if (!piece.empty() && !write(piece, progress.read)) return;
    if (code == Z_STREAM_END) {
      const auto behind = packed.subspan(progress.read);
      if (is_padding(behind)) return;
      if (packing_of({reinterpret_cast<const char*>(behind.data()), behind.size()}) !=
          Packing::kGzip)
        progress.fail_damaged("what follows a member is not another one");
      ::inflateReset(&stream);
    } else if (code == Z_MEM_ERROR) {
      throw std::bad_alloc();
    } else if (code == Z_NEED_DICT) {
      progress.fail_damaged("it needs a dictionary");
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      progress.fail_damaged(stream.msg ? stream.msg : "not valid");
    } else if (progress.read == packed.size() && stream.avail_out > 0) {
      progress.fail_cut();
    }
  }
}

void unpack_zstd(std::span<const std::byte> packed, const Write& write) {
  const std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context(::ZSTD_createDCtx(),
                                                                   ::ZSTD_freeDCtx);
  if (!context) throw std::bad_alloc();
  Progress progress{.format = "zstd"};
  std::vector<char> buffer(kPieceBytes);
  ZSTD_inBuffer input{packed.data(), packed.size(), 0};
  while (true) {
    throw_if_interrupted();
    ZSTD_outBuffer output{buffer.data(), buffer.size(), 0};
    const size_t code = ::ZSTD_decompressStream(context.get(), &output, &input);
    progress.read = input.pos;
    if (::ZSTD_isError(code)) progress.fail_damaged(::ZSTD_getErrorName(code));
    const std::string_view piece(buffer.data(), output.pos);
    progress.add(piece);
    if (!piece.empty() && !write(piece, progress.read)) return;
    if (input.pos < input.size || output.pos == output.size) continue;
    // 0: a frame is done and all of it is written.
    if (code != 0) progress.fail_cut();
    return;
  }
}

}  // namespace

void unpack(Packing packing, std::span<const std::byte> packed, const Write& write) {
  switch (packing) {
    case Packing::kGzip:
      return unpack_gzip(packed, write);
    case Packing::kZstd:
      return unpack_zstd(packed, write);
    case Packing::kNone:
      break;
  }
  KVCAL_CHECK(false);
}

}  // namespace kvcal
