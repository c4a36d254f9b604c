#include "state/state_folder.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

#include <sys/file.h>

#include "core/byte_stream.h"
#include "core/error.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/hash.h"
#include "core/output.h"
#include "core/posix_file.h"

namespace kvcal {
namespace {

constexpr std::string_view kFormat = "kvcal state";
constexpr int64_t kVersion = 3;
constexpr const char *kStateName = "state.json", *kSha256 = "sha256";
constexpr std::array<std::string_view, 4> kNames{"state.json", "journal.bin", "hidden-0",
                                                 "hidden-1"};
/// Longest value in a message; nobody compares whole hashes.
constexpr size_t kLongestShown = 100;

std::string shown(const Json* value) {
  if (!value) return "nothing";
  const std::string text = value->is_string() ? value->get<std::string>() : value->dump();
  return shown_text(text.size() > kLongestShown ? text.substr(0, kLongestShown) + "…" : text);
}

uint64_t run_of(const Json& fingerprint) {
  const std::string text = dump_json(fingerprint);
  return hash64(std::as_bytes(std::span(text)));
}

int64_t count_of(const Json& object, std::string_view key, int64_t most) {
  const int64_t value = required_int(object, key);
  if (value < 0 || value > most) fail("key '", key, "' is ", value, ", expected 0 to ", most);
  return value;
}

Checkpoint checkpoint_of(const Json& state) {
  Checkpoint checkpoint{
      .journal_bytes = static_cast<uint64_t>(count_of(state, "journal_bytes", int64_t{1} << 50)),
      .hidden = {}};
  if (const Json* hidden = find_field(state, "hidden")) {
    if (!hidden->is_object()) fail_kind("hidden", "an object or null", *hidden);
    checkpoint.hidden = {.layer = count_of(*hidden, "layer", 1'000'000),
                         .slot = static_cast<int>(count_of(*hidden, "slot", 1)),
                         .ranks = count_of(*hidden, "ranks", 1'000'000)};
  }
  return checkpoint;
}

Json json_of(const Checkpoint& checkpoint) {
  Json json = {{"journal_bytes", checkpoint.journal_bytes}, {"hidden", nullptr}};
  if (const auto& hidden = checkpoint.hidden)
    json["hidden"] = {{"layer", hidden->layer}, {"slot", hidden->slot}, {"ranks", hidden->ranks}};
  return json;
}

}  // namespace

std::string Checkpoint::place() const {
  return hidden ? "after layer " + std::to_string(hidden->layer) : "after the forward pass";
}

StateFolder::StateFolder(fs::path path, Json fingerprint, Open how)
    : path_(std::move(path)), fingerprint_(std::move(fingerprint)), run_(run_of(fingerprint_)) {
  if (how == Open::kJoin) {
    read();
    return;
  }
  make_folders(path_);
  lock();
  try {
    check_content();
    if (how == Open::kResume) read();
    if (how == Open::kNew && is_there(path_ / kStateName))
      fail(path_.string(),
           ": holds the state of an earlier run; pass --resume to go on with it, or --overwrite to "
           "begin anew");
    for (const int number : {0, 1}) make_folders(slot(number));
    if (how == Open::kReplace) remove_state();
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

StateFolder::~StateFolder() {
  if (lock_ >= 0) ::close(lock_);
}

void StateFolder::lock() {
  lock_ = open_file(path_, O_RDONLY | O_DIRECTORY);
  if (lock_ < 0) fail_errno(path_, "cannot open");
  if (try_lock(lock_, LOCK_EX) != Locked::kNo) return;
  ::close(lock_);
  fail(path_.string(), ": another run keeps its state there; give this one another --state");
}

void StateFolder::remove_state() const {
  std::error_code error;
  fs::remove(path_ / kStateName, error);
  if (error) fail_code(path_ / kStateName, "cannot remove", error);
}

void StateFolder::check_content() const {
  for (const fs::path& path : paths_in(path_)) {
    const std::string name = path.filename().string();
    const bool is_ours = std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
                         name.starts_with(".state.json.");
    if (!is_ours) fail(path_.string(), ": is no folder for a run's state: it holds '", name, "'");
  }
  check_holds_no_links(path_);
}

void StateFolder::read() {
  const fs::path file = path_ / kStateName;
  if (!is_there(file)) return;
  in_context(file.string(), [&] {
    const Json state = parse_json(read_text(file, size_t{1} << 20));
    if (!state.is_object()) fail("is ", kind_of(state), ", expected an object");
    const std::string format = required_string(state, "format");
    const int64_t version = required_int(state, "format_version");
    if (format != kFormat || version != kVersion)
      fail("found format '", format, "', version ", version, ", expected '", kFormat, "', version ",
           kVersion);
    Json content = state;
    content.erase(kSha256);
    if (required_string(state, kSha256) != sha256_hex(dump_json(content)))
      fail("has changed since it was written: it does not hash to its ", kSha256);
    const Json* fingerprint = find_field(state, "fingerprint");
    if (!fingerprint || !fingerprint->is_object()) fail("key 'fingerprint' holds no object");
    check_fingerprint(*fingerprint);
    found_ = checkpoint_of(state);
  });
}

void StateFolder::check_fingerprint(const Json& found) const {
  std::string differences;
  const auto add = [&](const std::string& key, const Json* then, const Json* now) {
    differences +=
        "\n  " + shown_text(key) + ": it was " + shown(then) + ", now it is " + shown(now);
  };
  for (const auto& [key, now] : fingerprint_.items()) {
    const Json* then = find_field(found, key);
    if (!then || *then != now) add(key, then, &now);
  }
  for (const auto& [key, then] : found.items())
    if (!fingerprint_.contains(key)) add(key, &then, nullptr);
  if (!differences.empty())
    fail("the state is of another run, so this one cannot go on from it", Lines{differences},
         "\nGive what it was made with, or pass --overwrite without --resume to begin anew.");
}

fs::path StateFolder::hidden_file(int slot_number, int64_t rank) const {
  char name[40];
  std::snprintf(name, sizeof name, "rank-%05lld.bin", static_cast<long long>(rank));
  return slot(slot_number) / name;
}

void StateFolder::write(const Checkpoint& checkpoint) const {
  Json state = {{"format", kFormat}, {"format_version", kVersion}, {"fingerprint", fingerprint_}};
  state.update(json_of(checkpoint));
  state[kSha256] = sha256_hex(dump_json(state));
  write_file_atomically(path_ / kStateName, dump_json(state), /*overwrite=*/true);
}

void StateFolder::remove() {
  std::error_code error;
  fs::remove(path_ / kStateName, error);  // first: what is left then is no state
  for (const std::string_view name : kNames) remove_tree(path_ / name);
  fs::remove(path_, error);
}

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
  if (position_ == size_) return std::nullopt;
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
