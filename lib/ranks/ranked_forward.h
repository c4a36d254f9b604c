#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/diagnostics.h"
#include "forward/layer_forward.h"
#include "ranks/communicator.h"
#include "ranks/rank_layer_bytes.h"
#include "ranks/sample_assignment.h"

namespace kvcal {

/// LayerForward over several ranks: each runs its own samples, one layer at a time, and every rank
/// merges all results in the order of all samples. Gives the bytes of one process. Passes are
/// collective; they end on every rank with the SharedError that names the failed rank, with
/// Interrupted where one rank was interrupted, or with LostRank.
class RankedForward : public LayerForward {
 public:
  /// local: forward over the samples that assignment gives this rank, in its order; null where it
  /// has none. lengths: of all samples. bytes: source of local's layers, whose hashes are compared;
  /// null: no comparison. Borrows ranks and bytes.
  RankedForward(std::unique_ptr<LayerForward> local, Communicator& ranks,
                SampleAssignment assignment, std::span<const int64_t> lengths,
                RankLayerBytes* bytes = nullptr);
  ~RankedForward() override;

  LayerResult run(const LayerCall& call) override;
  int64_t num_tokens() const override { return num_tokens_; }
  void request(const ObservationRequest& request) override;
  /// sink gets this rank's samples, under their numbers among all.
  void show_hidden(HiddenSink* sink) override;
  void restore_hidden(int64_t next_layer, const HiddenSource& source) override;

 private:
  void check_layer_bytes(int64_t layer, std::span<const uint64_t> hashes) const;
  int64_t sample_of(int64_t own) const;

  std::unique_ptr<LayerForward> local_;
  Communicator& ranks_;
  SampleAssignment assignment_;
  int64_t num_tokens_ = 0;
  RankLayerBytes* bytes_;
  HiddenSink* sink_ = nullptr;  ///< sink of the last call
  std::unique_ptr<RenumberedSink> own_sink_;
};

/// Receives one rank's warnings, notes and progress: warnings get the rank's name, and rank 0 alone
/// passes its notes on, and its progress as that of all.
class RankDiagnostics : public Diagnostics {
 public:
  RankDiagnostics(Diagnostics& all, const Communicator& ranks, int64_t all_tokens)
      : all_(all), ranks_(ranks), all_tokens_(all_tokens) {}
  void warn(const std::string& message) override;
  void inform(const std::string& lines) override;
  void progress(std::string_view stage, int64_t done, int64_t total,
                std::string_view unit) override;

 private:
  Diagnostics& all_;
  const Communicator& ranks_;
  int64_t all_tokens_;
};

}  // namespace kvcal
