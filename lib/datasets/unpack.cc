#include "datasets/text_file.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "core/error.h"
#include "core/interrupt.h"

namespace kvcal {
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

struct InflateState {
  InflateState() {
    // 16: a gzip header and trailer, with its checksum, and nothing else.
    if (::inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) throw std::bad_alloc();
  }
  ~InflateState() { ::inflateEnd(&stream); }
  InflateState(const InflateState&) = delete;
  InflateState& operator=(const InflateState&) = delete;
  z_stream stream{};
};

bool is_padding(std::span<const std::byte> rest) {
  return std::all_of(rest.begin(), rest.end(), [](std::byte b) { return b == std::byte{0}; });
}

void unpack_gzip(std::span<const std::byte> packed, const Write& write) {
  InflateState state;
  z_stream& stream = state.stream;
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
