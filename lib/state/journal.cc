#include "state/journal.h"

#include <algorithm>
#include <string>

#include "core/byte_stream.h"
#include "core/error.h"
#include "core/hash64.h"

namespace kvcal {
namespace {

constexpr std::string_view kHead = "kvcal journal 2\n";

}  // namespace

std::span<const std::byte> journal_head() {
  return std::as_bytes(std::span(kHead));
}

std::vector<std::byte> journal_bytes(uint64_t run, RecordKind kind, int64_t layer,
                                     std::span<const std::byte> result) {
  ByteWriter body;
  body.put(static_cast<uint32_t>(kind));
  body.put(layer);
  body.put(static_cast<uint64_t>(result.size()));
  body.put_bytes(result);
  const std::vector<std::byte> bytes = body.take();
  ByteWriter record;
  record.put(hash64(bytes) ^ run);
  record.put_bytes(bytes);
  return record.take();
}

JournalReader::JournalReader(const fs::path& path, uint64_t size, uint64_t run)
    : file_(path, /*may_grow=*/true), size_(size), run_(run) {
  const auto bytes = file_.bytes();
  if (size > bytes.size())
    fail(path.string(), ": ", bytes.size(), " bytes, expected at least ", size);
  const auto head = journal_head();
  if (size < head.size() || !std::ranges::equal(bytes.first(head.size()), head))
    fail(path.string(), ": is no journal of a run");
  position_ = head.size();
}

std::optional<JournalRecord> JournalReader::next() {
  if (is_at_end()) return std::nullopt;
  const auto left = file_.bytes().subspan(position_, size_ - position_);
  return in_context(file_.path().string() + ", byte " + std::to_string(position_), [&] {
    ByteReader reader(left);
    const auto hash = reader.get<uint64_t>();
    JournalRecord record;
    record.kind = static_cast<RecordKind>(reader.get<uint32_t>());
    record.layer = reader.get<int64_t>();
    record.result = reader.get_bytes(reader.get<uint64_t>());
    if ((hash64(left.subspan(sizeof hash, reader.offset() - sizeof hash)) ^ run_) != hash)
      fail("the record is damaged, or of another run");
    position_ += reader.offset();
    record.end = position_;
    return std::optional(record);
  });
}

JournalWriter::JournalWriter(const fs::path& path, uint64_t size)
    : path_(path), descriptor_(path, O_WRONLY | O_CREAT | O_APPEND) {
  cut_file(descriptor_.get(), size, path_);
  if (size == 0) append(journal_head());
}

void JournalWriter::append(std::span<const std::byte> bytes) {
  write_all(descriptor_.get(), bytes, path_);
}

void JournalWriter::sync() {
  flush_file(descriptor_.get(), path_);
}

}  // namespace kvcal
