#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/diagnostics.h"
#include "forward/divided_forward.h"
#include "forward/layer_forward.h"
#include "ranks/communicator.h"
#include "ranks/exchanged_layers.h"
#include "stored/weights.h"

namespace kvcal {

/// FLOP of a forward pass over a sample of T tokens: per_token · T + per_pair · T².
struct SampleWork {
  double per_token = 1.0, per_pair = 0.0;

  double of(int64_t tokens) const {
    const auto length = static_cast<double>(tokens);
    return per_token * length + per_pair * length * length;
  }
};

/// FLOP of a sample in a model's layers: matrices (only the experts that a token is routed to) and
/// attention.
SampleWork sample_work(const ModelConfig& config, const Weights& weights);

/// Assignment of samples to ranks.
struct SampleAssignment : SampleParts {
  std::vector<int> rank_of;  ///< [samples]

  SampleAssignment() { name = "rank"; }
  size_t num_samples() const { return rank_of.size(); }
};

/// Gives each rank about the same number of tokens, which determines its memory, and the same work,
/// which determines its time. With fewer samples than ranks the last ranks have none. Equal on
/// every rank.
SampleAssignment assign_samples(std::span<const int64_t> lengths, const SampleWork& work,
                                int ranks);

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
