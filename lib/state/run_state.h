#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/diagnostics.h"
#include "core/file.h"
#include "core/stopwatch.h"
#include "forward/layer_forward.h"
#include "state/hidden_file.h"
#include "state/state_folder.h"

namespace kvcal {

/// The ranks of a run, as its state needs them. This class: a single process.
class StatePeers {
 public:
  virtual ~StatePeers() = default;
  virtual int64_t rank() const { return 0; }
  virtual int64_t size() const { return 1; }
  /// The bits that are set on all ranks. Collective: no rank returns before all have called.
  virtual uint64_t all(uint64_t bits) { return bits; }
};

struct StateSettings {
  fs::path folder;
  Json fingerprint;       ///< everything that the result depends on: an object of plain values
  bool resumes = false;   ///< resumes an existing state, if any
  bool replaces = false;  ///< may remove an existing state
  /// Fraction of the run's time that the state may cost. A layer whose hidden states would exceed
  /// it is not saved.
  double share = 0.03;
  int threads = 1;  ///< computing threads, with which the writer competes
};

/// Progress of a run on disk: the results of its forward passes, call by call, and the hidden
/// states after the last layers. A thread writes it beside the run. A run that is killed at any
/// point resumes from the last checkpoint, with any number of ranks, and gives the same bytes.
class RunState {
 public:
  /// Borrows peers and diagnostics. Throws Error as StateFolder does.
  RunState(StateSettings settings, StatePeers& peers, Diagnostics& diagnostics);
  /// Finishes pending writes. Removes the folder where it has no checkpoint.
  ~RunState();
  RunState(const RunState&) = delete;
  RunState& operator=(const RunState&) = delete;

  /// The checkpoint that this run resumes from; nullopt: it starts anew.
  const std::optional<Checkpoint>& resumed() const { return folder_.found(); }
  /// The last checkpoint on disk.
  std::optional<Checkpoint> last() const;
  const fs::path& folder() const { return folder_.path(); }

  // For the forward passes (ResumableForward):
  /// Recorded result of this call; nullopt: the call must be computed. Throws Error where the
  /// earlier run made a different call.
  std::optional<std::span<const std::byte>> replay(RecordKind kind, int64_t layer);
  /// The last layer whose calls were replayed within a pass.
  std::optional<int64_t> restored_layer() const;
  /// The hidden states after that layer.
  HiddenSource restored_hidden() const;
  /// note: kept with the record. Returns that of the earlier run where it made this pass.
  std::optional<std::span<const std::byte>> begin_pass(int64_t num_samples,
                                                       std::span<const std::byte> note);
  void record(RecordKind kind, int64_t layer, std::span<const std::byte> result);
  /// Called before and after the call that ends a layer. Its hidden states are saved in between,
  /// where time allows.
  void begin_layer(LayerForward& forward, int64_t layer);
  void end_layer(LayerForward& forward, int64_t layer);

  /// Marks the passes as complete: a run that resumes here makes none.
  void finish();
  /// Returns when all pending writes are on disk.
  void settle() { thread_.wait_until_idle(); }
  /// Removes the state at the end of the run.
  void remove();
  /// Seconds of the run that the state has cost so far.
  double cost_seconds() const;

  /// Bytes on disk for samples with so many tokens together.
  static uint64_t bytes(int64_t samples, int64_t tokens, int64_t carried_width);

 private:
  void start_journal();
  void append(std::span<const std::byte> bytes);
  void commit(const Checkpoint& checkpoint);
  void commit_and_wait(const Checkpoint& checkpoint);
  /// Seconds that the state may still cost at this point of the run.
  double seconds_left() const;
  /// Whether pending work is complete, or will be after a wait that the time allows.
  bool is_idle_in_time();
  bool is_writer() const { return peers_.rank() == 0; }
  void turn_off();

  StateSettings settings_;
  StatePeers& peers_;
  Diagnostics& diagnostics_;
  Stopwatch watch_;
  StateFolder folder_;
  std::unique_ptr<JournalReader> replayed_;  ///< null: the replay is over
  std::unique_ptr<JournalWriter> journal_;   ///< null on all ranks but the first
  uint64_t journal_bytes_ = 0;
  bool is_off_ = false, keeps_layer_ = false, has_passes_ = false;
  int slot_ = 0;                      ///< for the next hidden states
  std::optional<Checkpoint> coming_;  ///< with several ranks: some may still write hidden states
  double waited_ = 0.0, last_cost_ = 0.0, cost_before_ = 0.0;
  mutable std::mutex mutex_;
  std::optional<Checkpoint> last_;
  StateThread thread_;
  HiddenFileWriter hidden_{thread_};
};

}  // namespace kvcal
