#pragma once

#include <chrono>
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
#include "forward/layer_forward.h"
#include "state/hidden_file.h"
#include "state/journal.h"
#include "state/state_folder.h"
#include "state/state_peers.h"
#include "state/state_thread.h"

namespace kvcal {

struct StateSettings {
  fs::path folder;
  Json fingerprint;       ///< of what the result depends on: an object of plain values
  bool resumes = false;   ///< goes on from what is there, if anything is
  bool replaces = false;  ///< what is there may go
  /// The part of the run's time that keeping the state may take. A layer whose hidden states would
  /// go beyond it is not kept.
  double share = 0.03;
  int threads = 1;  ///< that compute, of which the one that writes takes its part
};

/// How far a run is, on the disk: what its forward passes gave, call by call, and the hidden states
/// behind the last layers. Writing goes on beside the run in a thread. A run that is killed
/// anywhere goes on from the last checkpoint, with any number of ranks, and gives the same bytes.
class RunState {
 public:
  /// Borrows peers and diagnostics. Throws Error as StateFolder.
  RunState(StateSettings settings, StatePeers& peers, Diagnostics& diagnostics);
  /// Finishes what is being written. Without a checkpoint the folder is removed.
  ~RunState();
  RunState(const RunState&) = delete;
  RunState& operator=(const RunState&) = delete;

  /// The checkpoint that this run resumes from; nullopt: it starts anew.
  const std::optional<Checkpoint>& resumed() const { return folder_.found(); }
  /// The last checkpoint on the disk.
  std::optional<Checkpoint> last() const;
  const fs::path& folder() const { return folder_.path(); }

  // For the forward passes (ResumableForward):
  /// The kept result of this call; nullopt: the call must be made. Throws Error where the
  /// earlier run made another one.
  std::optional<std::span<const std::byte>> replay(RecordKind kind, int64_t layer);
  /// The last layer whose calls were replayed within a pass.
  std::optional<int64_t> restored_layer() const;
  /// The hidden states after that layer.
  HiddenSource restored_hidden() const;
  void begin_pass(int64_t num_samples);
  void record(RecordKind kind, int64_t layer, std::span<const std::byte> result);
  /// Before and after the call that ends a layer: between the two its hidden states are kept, where
  /// time allows.
  void begin_layer(LayerForward& forward, int64_t layer);
  void end_layer(LayerForward& forward, int64_t layer);

  /// The passes are over: a run that goes on from here makes none.
  void finish();
  /// Returns when all that was asked for is on the disk.
  void settle() { thread_.wait_until_idle(); }
  /// The run is over: nothing is left of the state.
  void remove();
  /// Seconds of the run that the state has taken so far.
  double cost_seconds() const;

  /// Bytes on the disk of samples that have so many tokens together.
  static uint64_t bytes(int64_t samples, int64_t tokens, int64_t hidden_size);

 private:
  void start_journal();
  void append(std::span<const std::byte> bytes);
  void commit(const Checkpoint& checkpoint);
  void commit_and_wait(const Checkpoint& checkpoint);
  /// Seconds that the state may still take of the run so far.
  double seconds_left() const;
  /// Whether what was asked for is done, or is after a wait that there is time for.
  bool is_idle_in_time();
  bool is_writer() const { return peers_.rank() == 0; }
  void turn_off();

  StateSettings settings_;
  StatePeers& peers_;
  Diagnostics& diagnostics_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  StateFolder folder_;
  std::unique_ptr<JournalReader> replayed_;  ///< null: nothing is replayed any longer
  std::unique_ptr<JournalWriter> journal_;   ///< null on all ranks but the first
  uint64_t journal_bytes_ = 0;
  bool is_off_ = false, keeps_layer_ = false, has_passes_ = false;
  int slot_ = 0;                      ///< of the next hidden states
  std::optional<Checkpoint> coming_;  ///< of several ranks: hidden states may still be written
  double waited_ = 0.0, last_cost_ = 0.0, cost_before_ = 0.0;
  mutable std::mutex mutex_;
  std::optional<Checkpoint> last_;
  StateThread thread_;
  HiddenFileWriter hidden_{thread_};
};

}  // namespace kvcal
