#include "state/run_state.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/file_in_use.h"
#include "core/folder.h"
#include "core/stopwatch.h"

namespace kvcal {
namespace {

/// Time that the state may always take, even of a short run.
constexpr double kLeastSeconds = 0.1;

// Bits that ranks exchange (StatePeers::all).
constexpr uint64_t kWorks = 1, kIsIdle = 2, kHasTime = 4;

StateFolder::Open how_to_open(const StateSettings& settings, const StatePeers& peers) {
  if (peers.rank() != 0) return StateFolder::Open::kJoin;
  if (settings.resumes) return StateFolder::Open::kResume;
  return settings.replaces ? StateFolder::Open::kReplace : StateFolder::Open::kNew;
}

/// Runs body, which reads the state's files; an Error of their content becomes DamagedState.
template <class Body>
decltype(auto) undamaged(const Body& body) {
  try {
    return body();
  } catch (const SystemError&) {
    throw;
  } catch (const Error& error) {
    throw DamagedState(error.message());
  }
}

}  // namespace

uint64_t RunState::bytes(int64_t samples, int64_t tokens, int64_t carried_width) {
  return 2 *
         hidden_file_bytes(static_cast<uint64_t>(samples),
                           static_cast<uint64_t>(tokens) * static_cast<uint64_t>(carried_width));
}

RunState::RunState(StateSettings settings, StatePeers& peers, Diagnostics& diagnostics)
    : settings_(std::move(settings)),
      peers_(peers),
      diagnostics_(diagnostics),
      folder_(settings_.folder, settings_.fingerprint, how_to_open(settings_, peers)) {
  last_ = resumed();
  start_journal();
}

RunState::~RunState() {
  thread_.wait_until_idle();
  if (is_writer() && !last()) folder_.remove();
}

void RunState::start_journal() {
  const std::optional<Checkpoint>& from = resumed();
  journal_bytes_ = from ? from->journal_bytes : journal_head().size();
  if (from) {
    replayed_ =
        std::make_unique<JournalReader>(folder_.journal(), from->journal_bytes, folder_.run());
    if (from->hidden) slot_ = 1 - from->hidden->slot;
  }
  if (is_writer())
    journal_ = std::make_unique<JournalWriter>(folder_.journal(), from ? journal_bytes_ : 0);
}

std::optional<Checkpoint> RunState::last() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

std::optional<std::span<const std::byte>> RunState::replay(RecordKind kind, int64_t layer) {
  if (!replayed_) return std::nullopt;
  const std::optional<JournalRecord> record = undamaged([&] { return replayed_->next(); });
  if (!record) {
    replayed_.reset();
    return std::nullopt;
  }
  if (record->kind != kind || record->layer != layer)
    undamaged([&] {
      fail(folder_.journal().string(), ": holds step ", static_cast<uint32_t>(record->kind),
           " of layer ", record->layer, " where this run makes step ", static_cast<uint32_t>(kind),
           " of layer ", layer);
    });
  return record->result;
}

std::optional<int64_t> RunState::restored_layer() const {
  const std::optional<Checkpoint>& from = resumed();
  if (!from || !from->hidden || replayed_ || has_passes_) return std::nullopt;
  return from->hidden->layer;
}

HiddenSource RunState::restored_hidden() const {
  const Checkpoint::Hidden& hidden = resumed()->hidden.value();
  std::vector<fs::path> files;
  for (int64_t rank = 0; rank < hidden.ranks; ++rank)
    files.push_back(folder_.hidden_file(hidden.slot, rank));
  auto reader = undamaged(
      [&] { return std::make_shared<HiddenFileReader>(files, hidden.layer, folder_.run()); });
  return [reader](int64_t sample, std::span<float> rows) {
    undamaged([&] { reader->read(sample, rows); });
  };
}

std::optional<std::span<const std::byte>> RunState::begin_pass(int64_t num_samples,
                                                               std::span<const std::byte> note) {
  if (const auto kept = replay(RecordKind::kPass, num_samples)) return kept;
  // The results of earlier passes are complete.
  if (has_passes_ || resumed()) commit_and_wait({.journal_bytes = journal_bytes_, .hidden = {}});
  has_passes_ = true;
  coming_.reset();
  record(RecordKind::kPass, num_samples, note);
  return std::nullopt;
}

void RunState::record(RecordKind kind, int64_t layer, std::span<const std::byte> result) {
  throw_if_file_changed();  // nothing that was computed from them is gone on with
  std::vector<std::byte> bytes = journal_bytes(folder_.run(), kind, layer, result);
  journal_bytes_ += bytes.size();
  if (!is_writer() || is_off_) return;
  thread_.add([this, bytes = std::move(bytes)] { journal_->append(bytes); });
}

double RunState::seconds_left() const {
  return std::max(kLeastSeconds, settings_.share * watch_.seconds()) - cost_seconds() - last_cost_;
}

bool RunState::is_idle_in_time() {
  if (thread_.is_idle()) return true;
  const double left = seconds_left();
  const TimedScope watch(waited_);
  return thread_.wait_until_idle(left);
}

double RunState::cost_seconds() const {
  return waited_ + hidden_.waited_seconds() + thread_.cpu_seconds() / settings_.threads;
}

void RunState::begin_layer(LayerForward& forward, int64_t layer) {
  if (is_off_) return;
  const bool is_idle = is_idle_in_time();
  if (is_idle) last_cost_ = std::max(last_cost_, cost_seconds() - cost_before_);
  const uint64_t agreed = peers_.all((thread_.failure() ? 0 : kWorks) | (is_idle ? kIsIdle : 0) |
                                     (seconds_left() >= 0.0 ? kHasTime : 0));
  if (!(agreed & kWorks)) return turn_off();
  if (!(agreed & kIsIdle)) return;
  if (coming_) {
    commit_and_wait(*coming_);
    coming_.reset();
  }
  if (!(agreed & kHasTime)) return;
  keeps_layer_ = true;
  cost_before_ = cost_seconds();
  hidden_.begin(folder_.hidden_file(slot_, peers_.rank()), layer, folder_.run());
  forward.show_hidden(&hidden_);
}

void RunState::end_layer(LayerForward& forward, int64_t layer) {
  if (!keeps_layer_) return;
  keeps_layer_ = false;
  forward.show_hidden(nullptr);
  hidden_.end();
  Checkpoint checkpoint{
      .journal_bytes = journal_bytes_,
      .hidden = Checkpoint::Hidden{.layer = layer, .slot = slot_, .ranks = peers_.size()}};
  slot_ = 1 - slot_;
  // With several ranks the checkpoint counts when all have written; begin_layer checks that.
  if (peers_.size() == 1) return commit(checkpoint);
  coming_ = checkpoint;
}

void RunState::commit(const Checkpoint& checkpoint) {
  if (!is_writer() || is_off_) return;
  thread_.add([this, checkpoint] {
    journal_->sync();
    folder_.write(checkpoint);
    const std::lock_guard lock(mutex_);
    last_ = checkpoint;
  });
}

void RunState::commit_and_wait(const Checkpoint& checkpoint) {
  const TimedScope watch(waited_);
  commit(checkpoint);
  // With a single process, later writes follow in any case.
  if (peers_.size() > 1) {
    thread_.wait_until_idle();
    peers_.all(kWorks);
  }
}

void RunState::turn_off() {
  is_off_ = true;
  std::error_code ignored;
  fs::remove(folder_.hidden_file(slot_, peers_.rank()),
             ignored);  // a full disk is needed by others
  const std::optional<Checkpoint> kept = last();
  const std::string rest = kept ? "; what it held " + kept->place() + " stays" : "";
  if (const auto failure = thread_.failure())
    diagnostics_.warn("the state of the run is no longer kept" + rest + ": " + *failure);
}

void RunState::finish() {
  if (is_off_) return;
  replayed_.reset();
  coming_.reset();
  const Checkpoint whole{.journal_bytes = journal_bytes_, .hidden = {}};
  const auto before = last();
  if (before && before->journal_bytes == whole.journal_bytes && !before->hidden) return;
  commit(whole);
  // The output may need the room.
  thread_.add([this] {
    for (const int slot : {0, 1}) remove_tree(folder_.slot(slot));
  });
}

void RunState::remove() {
  thread_.wait_until_idle();
  if (!is_writer()) return;
  folder_.remove();
  const std::lock_guard lock(mutex_);
  last_.reset();
}

}  // namespace kvcal
