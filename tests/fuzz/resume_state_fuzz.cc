// What `calibrate --resume` reads: state.json, the journal with what the layers saw, and hidden
// states. The first byte says which; of journal and hidden states there is one kind whose hashes
// are mended, as those of a forger are.
#include <cstring>

#include "core/file.h"
#include "core/hash.h"
#include "forward/layer_forward.h"
#include "state/hidden_file.h"
#include "state/state_folder.h"
#include "support/fuzz.h"
#include "support/json_mutator.h"

using namespace kvcal;

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

enum class File : uint8_t { kState, kJournal, kMendedJournal, kHidden, kMendedHidden };
constexpr uint8_t kFiles = 5;

constexpr int64_t kLayer = 0;
constexpr uint64_t kRun = 0;  // so that hashes are those of the bytes

File file_of(uint8_t first) {
  return static_cast<File>(first % kFiles);
}

/// Gives the records that can be told apart the hash of what they hold.
void mend_journal(std::string& file) {
  constexpr size_t kSizeAt = 8 + 4 + 8, kHead = kSizeAt + 8;
  for (size_t at = journal_head().size(); at < file.size() && file.size() - at >= kHead;) {
    uint64_t size = 0;
    std::memcpy(&size, file.data() + at + kSizeAt, sizeof size);
    if (size > file.size() - at - kHead) return;
    const size_t end = at + kHead + static_cast<size_t>(size);
    const uint64_t hash =
        hash64(std::as_bytes(std::span(file).subspan(at + sizeof hash, end - at - sizeof hash)));
    std::memcpy(file.data() + at, &hash, sizeof hash);
    at = end;
  }
}

void mend_hidden(std::string& file) {
  constexpr size_t kValuesAt = 24, kHashAt = 32, kHead = 40;
  for (size_t at = 0; at < file.size() && file.size() - at >= kHead;) {
    uint64_t values = 0;
    std::memcpy(&values, file.data() + at + kValuesAt, sizeof values);
    if (values > (file.size() - at - kHead) / sizeof(float)) return;
    const size_t bytes = static_cast<size_t>(values) * sizeof(float);
    const uint64_t hash = hash64(std::as_bytes(std::span(file).subspan(at + kHead, bytes)));
    std::memcpy(file.data() + at + kHashAt, &hash, sizeof hash);
    at += kHead + bytes;
  }
}

/// Gives a state.json the hash of what it holds.
void mend_state(const fs::path& file) {
  fuzz::accepts([&] {
    Json state = parse_json(read_text(file));
    if (!state.is_object()) return;
    state.erase("sha256");
    state["sha256"] = sha256_hex(dump_json(state));
    write_file_atomically(file, dump_json(state), true);
  });
}

/// What was read must be written as it was.
void read_result(std::span<const std::byte> bytes, LayerPass pass) {
  fuzz::accepts(
      [&] { KVCAL_CHECK(std::ranges::equal(to_bytes(layer_result_from(pass, bytes)), bytes)); });
}

void read_journal(const fs::path& path, uint64_t size) {
  JournalReader reader(path, size, kRun);
  uint64_t bytes = 0;
  while (const auto record = reader.next()) {
    bytes += record->result.size();
    KVCAL_CHECK(bytes < size);
    switch (record->kind) {
      case RecordKind::kPass:
        break;
      case RecordKind::kObserve:
      case RecordKind::kObserveAndAdvance:
        read_result(record->result, LayerPass::kObserve);
        break;
      case RecordKind::kCountSaturated:
        read_result(record->result, LayerPass::kCountSaturated);
        break;
      case RecordKind::kAdvance:
        read_result(record->result, LayerPass::kAdvance);
        break;
      case RecordKind::kHead:
        read_result(record->result, LayerPass::kObserveHead);
        break;
      case RecordKind::kCompareAttention:
        read_result(record->result, LayerPass::kCompareAttention);
        break;
    }
  }
}

void read_hidden(const fs::path& path) {
  const HiddenFileReader reader({path}, kLayer, kRun);
  for (const size_t values : {size_t{0}, size_t{4}, size_t{64}}) {
    std::vector<float> rows(values);
    for (int64_t sample = 0; sample < 4; ++sample)
      fuzz::accepts([&] { reader.read(sample, rows); });
  }
}

void read_state(const fs::path& folder) {
  mend_state(folder / "state.json");
  const StateFolder state(folder, Json{{"model", "m"}}, StateFolder::Open::kJoin);
  if (!state.found()) return;
  KVCAL_CHECK(!state.found()->place().empty());
  state.write(*state.found());
  const StateFolder again(folder, Json{{"model", "m"}}, StateFolder::Open::kJoin);
  KVCAL_CHECK(again.found()->journal_bytes == state.found()->journal_bytes);
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  if (size == 0 || file_of(data[0]) != File::kState || max_size < 2)
    return LLVMFuzzerMutate(data, size, max_size);
  return 1 + fuzz::mutate_json(data + 1, size - 1, max_size - 1, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static const fuzz::Folder folder;
  std::string content(fuzz::text_of(data, size).substr(1));
  const File kind = file_of(data[0]);
  if (kind == File::kMendedJournal) mend_journal(content);
  if (kind == File::kMendedHidden) mend_hidden(content);
  const bool is_state = kind == File::kState;
  const bool is_hidden = kind == File::kHidden || kind == File::kMendedHidden;
  const fs::path path = folder.write(is_state ? "state.json" : "file.bin", content);
  fuzz::accepts([&] {
    if (is_state) return read_state(folder.path());
    if (is_hidden) return read_hidden(path);
    read_journal(path, content.size());
  });
  return 0;
}
