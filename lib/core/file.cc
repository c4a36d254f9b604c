#include "core/file.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/file_in_use.h"
#include "core/files_read.h"
#include "core/folder.h"
#include "core/interrupt.h"
#include "core/pages.h"
#include "core/posix_file.h"

namespace kvcal {

MappedFile::MappedFile(const fs::path& path, bool may_grow) : path_(path) {
  // Not blocking, so that a named pipe is refused below instead of waited for.
  const Descriptor descriptor(path, O_RDONLY | O_NONBLOCK);
  if (descriptor.get() < 0) fail_errno(path, "cannot open");
  struct stat status {};
  if (::fstat(descriptor.get(), &status) != 0) fail_errno(path, "cannot read its size");
  if (!S_ISREG(status.st_mode)) fail(path.string(), ": is not a regular file");
  note_file_read(path, status);
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) return;
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor.get(), 0);
  if (data == MAP_FAILED) fail_errno(path, "cannot map");
  data_ = static_cast<const std::byte*>(data);
  in_use_ = std::make_unique<FileInUse>(path, status, data_, may_grow);
}

MappedFile::~MappedFile() {
  in_use_.reset();  // the address may be another mapping's at once
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      in_use_(std::move(other.in_use_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(in_use_, other.in_use_);
  return *this;
}

void MappedFile::will_need(std::span<const std::byte> part) const {
  will_need_pages(part);
}
void MappedFile::drop(std::span<const std::byte> part) const {
  release_pages(part);
}

std::string read_text(const fs::path& path, size_t max_bytes) {
  const MappedFile file(path);
  if (file.bytes().size() > max_bytes)
    fail(path.string(), ": ", file.bytes().size(), " bytes, the limit is ", max_bytes);
  std::string text;
  text.reserve(file.bytes().size());
  // Copied bytes need not stay in memory twice.
  constexpr size_t kPiece = size_t{4} << 20;
  for (auto left = file.bytes(); !left.empty();) {
    const auto piece = left.first(std::min(kPiece, left.size()));
    text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    if (piece.size() == kPiece) file.drop(piece);
    left = left.subspan(piece.size());
  }
  return text;
}

// A link where a file is to be written would lead to another's.
constexpr int kAnew = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW;

FileWriter::FileWriter(const fs::path& path)
    : path_(path), descriptor_(open_file(path, kAnew, 0666)) {
  if (descriptor_ < 0) fail_errno(path, "cannot create");
}

FileWriter::~FileWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void FileWriter::write(std::span<const std::byte> bytes) {
  write_all(descriptor_, bytes, path_);
  position_ += bytes.size();
}

void FileWriter::write(std::string_view text) {
  write(std::as_bytes(std::span(text)));
}

namespace {

/// What a file stores from an offset on: bytes, or a hole, which reads as zeros. A copy keeps
/// holes: a file that states more bytes than it stores must not fill the disk.
struct StoredPart {
  uint64_t size = 0;
  bool is_hole = false;
};

/// The next one of a range. What lies behind the file's end counts as bytes, which reading misses.
StoredPart part_at(int descriptor, uint64_t offset, uint64_t size) {
  const auto from = static_cast<off64_t>(offset);
  const auto up_to = [&](off64_t end) { return std::min(size, static_cast<uint64_t>(end - from)); };
  off64_t data = ::lseek64(descriptor, from, SEEK_DATA);
  if (data < 0 && errno == ENXIO) data = ::lseek64(descriptor, 0, SEEK_END);
  if (data > from) return {up_to(data), true};
  const off64_t hole = ::lseek64(descriptor, from, SEEK_HOLE);
  return {hole > from ? up_to(hole) : size, false};
}

struct OpenFile {
  int descriptor = -1;
  const fs::path& path;
};

void append_hole(const OpenFile& output, uint64_t size) {
  const off64_t end = ::lseek64(output.descriptor, static_cast<off64_t>(size), SEEK_END);
  if (end < 0 || ::ftruncate64(output.descriptor, end) != 0)
    fail_errno(output.path, "cannot write");
}

void append_bytes(const OpenFile& input, uint64_t offset, uint64_t size, const OpenFile& output) {
  auto from = static_cast<off64_t>(offset);
  while (size > 0) {
    throw_if_interrupted();
    const ssize_t copied = ::copy_file_range(input.descriptor, &from, output.descriptor, nullptr,
                                             std::min<uint64_t>(size, uint64_t{1} << 30), 0);
    if (copied <= 0) break;
    size -= static_cast<uint64_t>(copied);
  }
  std::vector<std::byte> buffer(std::min<uint64_t>(size, uint64_t{4} << 20));
  while (size > 0) {
    throw_if_interrupted();
    const auto wanted = std::span(buffer).first(std::min<uint64_t>(size, buffer.size()));
    const size_t got = read_at(input.descriptor, wanted, static_cast<uint64_t>(from), input.path);
    if (got < wanted.size()) fail(input.path.string(), ": ends ", size - got, " bytes early");
    write_all(output.descriptor, wanted, output.path);
    from += static_cast<off64_t>(got);
    size -= got;
  }
}

}  // namespace

void FileWriter::append_range(const fs::path& source, uint64_t offset, uint64_t size) {
  const Descriptor input(source, O_RDONLY);
  if (input.get() < 0) fail_errno(source, "cannot open");
  const OpenFile output{descriptor_, path_};
  while (size > 0) {
    const StoredPart part = part_at(input.get(), offset, size);
    if (part.is_hole)
      append_hole(output, part.size);
    else
      append_bytes({input.get(), source}, offset, part.size, output);
    position_ += part.size;
    offset += part.size;
    size -= part.size;
  }
}

void FileWriter::close() {
  flush_file(descriptor_, path_);
  const int descriptor = std::exchange(descriptor_, -1);
  if (::close(descriptor) != 0) fail_errno(path_, "cannot close");
}

void write_text_file(const fs::path& path, std::string_view text) {
  FileWriter writer(path);
  writer.write(text);
  writer.close();
}

void copy_file(const fs::path& source, const fs::path& target) {
  const MappedFile input(source);
#ifdef FICLONE
  {
    const Descriptor from(source, O_RDONLY);
    const Descriptor to(target, kAnew, 0666);
    if (to.get() < 0) fail_errno(target, "cannot create");
    if (::ioctl(to.get(), FICLONE, from.get()) == 0) return flush_file(to.get(), target);
  }
#endif
  FileWriter output(target);
  output.append_range(source, 0, input.bytes().size());
  output.close();
}

fs::path resolved(const fs::path& path) {
  std::error_code error;
  const auto absolute = fs::absolute(path, error);
  const auto result = fs::weakly_canonical(absolute, error);
  return error ? absolute : result;
}

namespace {

/// The part of path before a ".." that is no folder; empty: none. The system finds nothing there,
/// though the text of the path names a place.
fs::path way_lost_at(const fs::path& path) {
  fs::path so_far;
  for (const fs::path& part : path) {
    if (part == ".." && !so_far.empty() && !is_folder(so_far)) return so_far;
    so_far /= part;
  }
  return {};
}

}  // namespace

fs::path output_place(const fs::path& target) {
  const fs::path place = without_slash(target);
  const fs::path name = place.filename();
  if (name.empty() || name == "." || name == "..") return resolved(place);
  if (const fs::path lost = way_lost_at(place); !lost.empty())
    fail(place.string(), ": no such place, for ", lost.string(), " is no folder");
  return resolved(place.has_parent_path() ? place.parent_path() : fs::path(".")) / name;
}

fs::path shortened(const fs::path& path) {
  fs::path shorter = path.lexically_normal();
  return way_lost_at(path).empty() && resolved(shorter) == resolved(path) ? shorter : path;
}

bool lies_in(const fs::path& inner, const fs::path& outer) {
  const fs::path holder = resolved(without_slash(outer));
  std::error_code error;
  for (fs::path place = resolved(without_slash(inner));; place = place.parent_path()) {
    if (place == holder || fs::equivalent(place, holder, error)) return true;
    if (!place.has_relative_path()) return false;
  }
}

ScratchMapping::ScratchMapping(const fs::path& folder, size_t size) : size_(size) {
  const int descriptor = unnamed_file(folder);
  if (descriptor < 0) fail_errno(folder, "cannot create a scratch file");
  // posix_fallocate, so that a full disk is an error here and not a signal at the first write.
  int code = 0;
  do {
    if (size > 0) code = ::posix_fallocate(descriptor, 0, static_cast<off_t>(size));
  } while (code == EINTR);
  if (code != 0) {
    ::close(descriptor);
    fail(folder.string(), ": cannot reserve a scratch file of ", size,
         " bytes: ", std::strerror(code));
  }
  void* data = size == 0 ? nullptr
                         : ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  ::close(descriptor);
  if (data == MAP_FAILED) fail_errno(folder, "cannot map a scratch file");
  data_ = static_cast<std::byte*>(data);
}

ScratchMapping::~ScratchMapping() {
  if (data_) ::munmap(data_, size_);
}

ScratchMapping::ScratchMapping(ScratchMapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

}  // namespace kvcal
