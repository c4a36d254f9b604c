#pragma once

#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/page_substitute.h"
#include "core/posix_file.h"
#include "ranks/communicator.h"
#include "ranks/layer_extents.h"
#include "ranks/rank_layer_bytes.h"

namespace kvcal {

/// Layers of which each rank reads a part from its files and has the rest from the others, so that
/// all together read them once. While a layer is packed, its pages of the mapped files are memory
/// that holds what was exchanged; so packing needs to know nothing of it. All ranks bring the same
/// layers in the same order.
class ExchangedLayers : public RankLayerBytes {
 public:
  /// ranks: of its own, for the threads that bring layers. users: how many bring and drop every
  /// layer (devices); it is there until the last has dropped it. Borrows model_dir and weights.
  ExchangedLayers(std::unique_ptr<Communicator> ranks, const ModelDir& model_dir,
                  const Weights& weights, int users = 1);
  ~ExchangedLayers() override;

  void will_need(int64_t layer) override;
  /// Throws RankLeft where another rank brings no more.
  void bring(int64_t layer) override;
  void drop(int64_t layer) noexcept override;
  uint64_t hash(int64_t layer) const override;
  uint64_t bytes_read() const override { return bytes_read_; }
  void leave() noexcept override;

  /// The most that a layer takes of the machine's memory while it is packed.
  static uint64_t largest_bytes(const ModelDir& model_dir, const Weights& weights);

 private:
  struct Held {
    std::vector<FileExtent> extents;
    std::unique_ptr<PageSubstitute> pages;
    int users_left = 0;
  };
  /// A rank's announcement before it brings a layer.
  struct Step {
    int64_t layer = 0;  ///< kLeaves: none any more
    uint64_t bytes = 0;
  };
  static constexpr int64_t kLeaves = -1;

  void agree_on(const Step& own);
  void fill(const Held& held);
  /// Bytes [begin, end) of the extents, one behind the other, into memory.
  void read(const std::vector<FileExtent>& extents, uint64_t begin, std::span<std::byte> into);
  void restore(const Held& held) noexcept;
  /// The share of a rank in so many bytes, in whole pages.
  MemoryPart share(uint64_t bytes, int rank) const;

  std::unique_ptr<Communicator> ranks_;
  const ModelDir& model_dir_;
  const Weights& weights_;
  int users_;
  std::vector<std::unique_ptr<Descriptor>> files_;  ///< of the shards
  std::mutex mutex_;                                ///< of exchanges and what is held
  std::map<int64_t, Held> held_;
  bool has_left_ = false;
  mutable std::mutex hash_mutex_;
  std::map<int64_t, uint64_t> hashes_;
  std::atomic<uint64_t> bytes_read_ = 0;
  std::mutex leave_mutex_;
  std::future<void> leaving_;  ///< its end waits
};

}  // namespace kvcal
